//! Other nodes of the cluster: a client for each, with its history.
//!
//! A node is identified by its name. When a ring gives it another address, it gets another client
//! and keeps its history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use martlet_protocol::http::{
    AnnouncedRelease, ClientOptions, ClusterKey, DataPortTag, HttpBackend, NodeReport, RingTags,
    Tls,
};
use martlet_protocol::release::WIRE;
use martlet_protocol::{Clock, DataPort, Release, Term};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;

use super::clock::{ClockReading, ClusterClock};
use super::rings::RingSet;
use crate::metrics::NodeFigures;

/// Weight of one reply in the moving average: 1 in 16.
const SMOOTHING: u64 = 16;

/// Lifetime of a node's report about its clients' latency, as long as a worker yields before a
/// step.
const CLIENTS_WAIT_FOR: Duration = Duration::from_secs(2);

/// Timeout of a request with a ring.
const PUSH_PATIENCE: Duration = Duration::from_mins(1);

/// Change that a reply announced.
#[derive(Debug)]
pub(crate) enum NodeChange {
    /// The node announced rings that it had not announced before.
    Rings { node: String, rings: RingTags },
    /// The node announced a higher term than before.
    Term(Term),
}

/// Role of a process in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRole<'a> {
    /// Storage node of this name.
    Node(&'a str),
    /// Proxy, which serves clients.
    Proxy,
    /// Replicator, which does background work.
    Replicator,
}

impl<'a> MemberRole<'a> {
    /// Returns the name of a storage node, `None` for other roles.
    pub(crate) fn node(self) -> Option<&'a str> {
        match self {
            Self::Node(name) => Some(name),
            Self::Proxy | Self::Replicator => None,
        }
    }
}

/// Another node.
pub struct PeerNode {
    /// Name of the node in the rings.
    pub name: String,
    pub(crate) backend: Arc<HttpBackend>,
    /// History of the node's replies.
    pub history: Arc<ReplyHistory>,
}

/// History of a node's replies.
#[derive(Debug, Default)]
pub struct ReplyHistory {
    replies: AtomicU64,
    silences: AtomicU64,
    waited_us: AtomicU64,
    latency_us: AtomicU64,
    answers: AtomicBool,
    is_visited: AtomicBool,
    /// True if the node and this process have no version of the internal protocol in common.
    is_foreign: AtomicBool,
    /// Highest term that the node announced.
    term: AtomicU64,
    last: Mutex<LastReply>,
}

#[derive(Debug, Default)]
struct LastReply {
    heard: Option<Instant>,
    rings: Option<RingTags>,
    /// Clients' latency that the node last reported, and the time of that report.
    clients_wait: Option<(Instant, Duration)>,
    data_port: Option<DataPortTag>,
    release: Option<AnnouncedRelease>,
}

impl ReplyHistory {
    /// Returns true if the node answered its last visit in a round, or has replied since.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns true if no round has visited the node yet.
    pub(crate) fn is_new(&self) -> bool {
        !self.is_visited.load(Ordering::Relaxed)
    }

    /// Records the outcome of a visit in a round.
    pub(crate) fn note_answer(&self, answered: bool) {
        self.is_visited.store(true, Ordering::Relaxed);
        self.answers.store(answered, Ordering::Relaxed);
        self.silences.fetch_add(u64::from(!answered), Ordering::Relaxed);
    }

    /// Returns the time since the last reply, `None` without one.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.last.lock().heard.map(|heard| heard.elapsed())
    }

    /// Returns the rings that the node announced last.
    pub fn rings(&self) -> Option<RingTags> {
        self.last.lock().rings.clone()
    }

    /// Returns the data port that the node announced last, while it answers.
    pub fn data_port(&self) -> Option<DataPort> {
        let announced = self.last.lock().data_port.clone().filter(|_| self.answers());
        announced.and_then(|tag| tag.port())
    }

    /// Returns the release that the node announced last.
    pub fn release(&self) -> Option<Release> {
        self.last.lock().release.as_ref().map(AnnouncedRelease::release)
    }

    /// Returns the reason why this process and the node can't speak with each other.
    pub(crate) fn version_problem(&self, node: &str) -> Option<String> {
        let release = self.release().filter(|_| self.is_foreign.load(Ordering::Relaxed))?;
        let node = format_args!("the node {node}");
        Release::own(0).common_wire(&"this process", &node, &release).err()
    }

    /// Records the release of a reply over HTTP. Returns false if the reply is of no use.
    fn record_release(&self, announced: &AnnouncedRelease) -> bool {
        let mut last = self.last.lock();
        if last.release.as_ref() != Some(announced) {
            let is_foreign = WIRE.common(announced.release().wire).is_none();
            self.is_foreign.store(is_foreign, Ordering::Relaxed);
            last.release = Some(announced.clone());
        }
        !self.is_foreign.load(Ordering::Relaxed)
    }

    /// Returns the highest term that the node announced.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Relaxed))
    }

    /// Returns the clients' latency that the node reported within [`CLIENTS_WAIT_FOR`], else zero.
    fn clients_wait(&self) -> Duration {
        let reported = self.last.lock().clients_wait;
        let reported = reported.filter(|(at, _)| at.elapsed() < CLIENTS_WAIT_FOR);
        reported.map_or(Duration::ZERO, |(_, wait)| wait)
    }

    /// Returns the node's metrics without its name and its clock.
    pub(crate) fn figures(&self) -> NodeFigures {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        NodeFigures {
            replies: get(&self.replies),
            silences: get(&self.silences),
            waited_us: get(&self.waited_us),
            latency_us: get(&self.latency_us),
            answers: self.answers(),
            ..NodeFigures::default()
        }
    }

    /// Counts a reply and its time.
    fn count_reply(&self, round_trip: Duration) {
        let took_us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX / SMOOTHING);
        let before = self.latency_us.load(Ordering::Relaxed);
        let after = before - before / SMOOTHING + took_us / SMOOTHING;
        self.latency_us.store(after, Ordering::Relaxed);
        self.waited_us.fetch_add(took_us, Ordering::Relaxed);
        self.replies.fetch_add(1, Ordering::Relaxed);
        self.answers.store(true, Ordering::Relaxed);
    }

    /// Records the state in a reply. Returns true if it announced other rings than the state before.
    fn record_state(&self, heard: &NodeReport) -> bool {
        let mut last = self.last.lock();
        let now = Instant::now();
        last.heard = Some(now);
        if let Some(wait) = heard.clients_wait {
            last.clients_wait = Some((now, wait));
        }
        if last.data_port != heard.data_port {
            last.data_port.clone_from(&heard.data_port);
        }
        let is_new = last.rings.as_ref() != Some(&heard.rings);
        if is_new {
            last.rings = Some(heard.rings.clone());
        }
        is_new
    }
}

/// All other nodes of the rings.
pub struct PeerNodes {
    /// Name of this process, if it is a storage node.
    own: Option<String>,
    /// True if all requests to the nodes are background work.
    is_background: bool,
    credentials: PeerCredentials,
    clock: Arc<ClusterClock>,
    changes: mpsc::UnboundedSender<NodeChange>,
    known: RwLock<BTreeMap<String, Arc<PeerNode>>>,
}

/// Credentials for calls between members.
#[derive(Clone, Debug)]
pub(crate) struct PeerCredentials {
    /// Key that signs the calls.
    pub(crate) key: ClusterKey,
    /// Certificates, if members use TLS between each other.
    pub(crate) tls: Option<Tls>,
}

impl PeerNodes {
    /// Makes an empty set of nodes. `changes` receives the changes that replies announce.
    pub(crate) fn new(
        role: MemberRole<'_>,
        credentials: PeerCredentials,
        clock: Arc<ClusterClock>,
        changes: mpsc::UnboundedSender<NodeChange>,
    ) -> Self {
        let own = role.node().map(str::to_owned);
        let is_background = role == MemberRole::Replicator;
        Self { own, is_background, credentials, clock, changes, known: RwLock::default() }
    }

    /// Replaces the set of nodes by the nodes of these rings, except this process.
    pub fn follow(&self, rings: &RingSet) {
        let mut known = self.known.write();
        known.retain(|name, _| rings.addresses().contains_key(name));
        for (name, address) in rings.addresses() {
            let before = known.get(name);
            let is_there = before.is_some_and(|node| node.backend.address() == address);
            if !is_there && self.own.as_ref() != Some(name) {
                let history = before.map(|node| node.history.clone()).unwrap_or_default();
                known.insert(name.clone(), Arc::new(self.connect(name, address, history)));
            }
        }
    }

    /// Makes the receiver of a node's reports. Reports that repeat another are only counted.
    fn observer(
        &self,
        name: &str,
        history: Arc<ReplyHistory>,
    ) -> impl Fn(NodeReport) + Send + Sync + use<> {
        let (clock, changes, node) = (self.clock.clone(), self.changes.clone(), name.to_owned());
        move |report: NodeReport| {
            if report.release.as_ref().is_some_and(|announced| !history.record_release(announced)) {
                return;
            }
            history.count_reply(report.round_trip);
            if report.is_repeated {
                return;
            }
            let reading = ClockReading { own_ms: report.now_ms, cluster_ms: report.cluster_ms };
            clock.observe(&node, reading, report.round_trip);
            if report.term > Term(history.term.fetch_max(report.term.0, Ordering::Relaxed)) {
                // The receiver exists until the process ends.
                let _ = changes.send(NodeChange::Term(report.term));
            }
            if history.record_state(&report) {
                let _ = changes.send(NodeChange::Rings { node: node.clone(), rings: report.rings });
            }
        }
    }

    fn connect(&self, name: &str, address: &str, history: Arc<ReplyHistory>) -> PeerNode {
        let observer = Arc::new(self.observer(name, history.clone()));
        let is_background = self.is_background;
        let PeerCredentials { key, tls } = self.credentials.clone();
        let options = client_options(self.clock.clone(), tls);
        let options = ClientOptions { is_background, ..options };
        let backend = Arc::new(HttpBackend::new(address, key, options, observer));
        PeerNode { name: name.to_owned(), backend, history }
    }

    /// Makes a client of a node at an address, for pushes of rings. It leaves no history.
    pub fn push_client(&self, address: &str) -> HttpBackend {
        let PeerCredentials { key, tls } = self.credentials.clone();
        let options = push_options(self.clock.clone(), tls);
        HttpBackend::new(address, key, options, Arc::new(|_| ()))
    }

    /// Returns the name of this process, if it is a storage node.
    pub(crate) fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }

    /// Returns a node by its name.
    pub fn get(&self, name: &str) -> Option<Arc<PeerNode>> {
        self.known.read().get(name).cloned()
    }

    /// Returns the present clients of these nodes, without nodes that have left the rings.
    pub(crate) fn current(&self, nodes: &[Arc<PeerNode>]) -> Vec<Arc<PeerNode>> {
        let known = self.known.read();
        nodes.iter().filter_map(|node| known.get(&node.name).cloned()).collect()
    }

    /// Returns all nodes, by name.
    pub fn all(&self) -> Vec<Arc<PeerNode>> {
        self.known.read().values().cloned().collect()
    }

    /// Returns the highest latency of clients that nodes reported lately. Nodes report it in
    /// replies to background requests.
    pub fn clients_wait(&self) -> Duration {
        let known = self.known.read();
        known.values().map(|node| node.history.clients_wait()).max().unwrap_or_default()
    }

    /// Returns the metrics of calls to all nodes.
    pub fn figures(&self) -> Vec<NodeFigures> {
        let figures = |node: Arc<PeerNode>| {
            let ahead_ms = self.clock.ahead_ms(&node.name).unwrap_or(0);
            NodeFigures {
                name: node.name.clone(),
                ahead_ms: u64::try_from(ahead_ms).unwrap_or(0),
                behind_ms: u64::try_from(-ahead_ms).unwrap_or(0),
                ..node.history.figures()
            }
        };
        self.all().into_iter().map(figures).collect()
    }
}

/// Returns the options of calls between members, which carry cluster time.
pub fn client_options(clock: Arc<dyn Clock>, tls: Option<Tls>) -> ClientOptions {
    ClientOptions { clock, tls, ..ClientOptions::default() }
}

/// Returns the options of clients that push rings, which may be large.
pub fn push_options(clock: Arc<dyn Clock>, tls: Option<Tls>) -> ClientOptions {
    ClientOptions { call: PUSH_PATIENCE, ..client_options(clock, tls) }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::SystemClock;
    use martlet_protocol::http::{Announcement, RingTag};

    use super::super::clock::Ticks;
    use super::super::rings::RingName;
    use super::*;
    use crate::testing::*;

    const HOUR_MS: u64 = 3_600_000;

    fn nodes(role: MemberRole<'_>) -> (PeerNodes, mpsc::UnboundedReceiver<NodeChange>) {
        let clock = ClusterClock::new(Arc::new(Ticks::new()), Arc::new(SystemClock), true);
        let (sender, changes) = mpsc::unbounded_channel();
        let credentials = PeerCredentials { key: "0f".repeat(32).parse().unwrap(), tls: None };
        (PeerNodes::new(role, credentials, Arc::new(clock), sender), changes)
    }

    #[test]
    fn it_knows_the_others_of_the_rings_and_keeps_their_history() {
        let (nodes, _changes) = nodes(MemberRole::Node("n2"));
        let mut builder = builder(0, 3);
        let rings = |ring| RingSet::new([(RingName::Index, ring)].into()).unwrap();
        nodes.follow(&rings(next(&mut builder)));
        let names = |nodes: &PeerNodes| nodes.all().iter().map(|node| node.name.clone()).collect();
        let all: Vec<String> = names(&nodes);
        assert_eq!(all, ["n1", "n3"]);
        let before = nodes.get("n3").unwrap();
        before.history.note_answer(false);
        builder.add(device(4, "d1")).unwrap();
        nodes.follow(&rings(next(&mut builder)));
        let all: Vec<String> = names(&nodes);
        assert_eq!(all, ["n1", "n3", "n4"]);
        assert!(Arc::ptr_eq(&before, &nodes.get("n3").unwrap()));
        assert_eq!(nodes.figures()[1].silences, 1);
        let gone = nodes.get("n4").unwrap();
        nodes.follow(&rings(ring(0, 3)));
        let current = nodes.current(&[gone, before.clone()]);
        assert!(current.len() == 1 && Arc::ptr_eq(&current[0], &before));
    }

    fn report() -> NodeReport {
        NodeReport {
            now_ms: 1,
            cluster_ms: None,
            round_trip: Duration::from_millis(2),
            rings: Announcement::new(&[]).rings().clone(),
            term: Term::NONE,
            clients_wait: None,
            data_port: None,
            release: None,
            is_repeated: false,
        }
    }

    #[test]
    fn only_rings_that_were_not_announced_before_are_news() {
        let history = ReplyHistory::default();
        let hear = |heard: &NodeReport| {
            history.count_reply(heard.round_trip);
            history.record_state(heard)
        };
        let port = DataPort::new("http://n1:9002", "").unwrap();
        let heard = NodeReport { data_port: Some(DataPortTag::new(&port)), ..report() };
        assert!(!history.answers() && history.silent_for().is_none());
        assert!(hear(&heard));
        assert!(!hear(&heard));
        assert!(history.answers() && history.silent_for().is_some());
        assert_eq!(history.data_port(), Some(port.clone()));
        history.note_answer(false);
        assert_eq!(history.data_port(), None, "a silent node serves no reads");
        assert!(!hear(&NodeReport { data_port: None, ..heard.clone() }));
        assert_eq!(history.data_port(), None, "it was restarted without a data port");
        hear(&heard);
        assert_eq!(history.replies.load(Ordering::Relaxed), 4);
        assert_eq!(history.waited_us.load(Ordering::Relaxed), 8000);
    }

    #[test]
    fn rings_term_and_clock_are_learnt_from_replies_that_repeat_no_other() {
        let (nodes, mut changes) = nodes(MemberRole::Proxy);
        let history = Arc::new(ReplyHistory::default());
        let observe = nodes.observer("n1", history.clone());
        let now_ms = nodes.clock.now_ms();
        let tag = |epoch| RingTag { name: "index".into(), epoch, hash: [9; 8] };
        let heard = |epoch, term, ahead_ms| NodeReport {
            rings: Announcement::new(&[tag(epoch)]).rings().clone(),
            term: Term(term),
            now_ms: now_ms + ahead_ms,
            ..report()
        };
        let epoch = |rings: &RingTags| rings.iter().next().unwrap().epoch;
        let mut learnt = || -> Vec<String> {
            let changes = std::iter::from_fn(|| changes.try_recv().ok());
            let shown = changes.map(|change| match change {
                NodeChange::Rings { rings, .. } => format!("ring {}", epoch(&rings)),
                NodeChange::Term(term) => format!("term {}", term.0),
            });
            shown.collect()
        };
        let is_ahead = || {
            let ahead_ms = nodes.clock.ahead_ms("n1").unwrap();
            ahead_ms.unsigned_abs() > HOUR_MS / 2
        };
        observe(heard(7, 14, 0));
        assert_eq!(learnt(), ["term 14", "ring 7"]);
        assert!(!is_ahead());
        observe(NodeReport { is_repeated: true, ..heard(8, 15, HOUR_MS) });
        assert_eq!(learnt(), [""; 0], "it is only counted");
        assert!(!is_ahead() && epoch(&history.rings().unwrap()) == 7);
        assert_eq!(history.replies.load(Ordering::Relaxed), 2);
        assert_eq!(history.waited_us.load(Ordering::Relaxed), 4000);
        observe(heard(8, 15, HOUR_MS));
        assert_eq!(learnt(), ["term 15", "ring 8"]);
        assert!(is_ahead(), "its clock was set");
    }

    #[test]
    fn clients_wait_as_long_as_at_the_slowest_node_that_reported_lately() {
        let (nodes, _changes) = nodes(MemberRole::Replicator);
        let rings = RingSet::new([(RingName::Index, next(&mut builder(0, 3)))].into()).unwrap();
        nodes.follow(&rings);
        assert_eq!(nodes.clients_wait(), Duration::ZERO);
        let report = |node: &str, clients_wait: Option<u64>| {
            let clients_wait = clients_wait.map(Duration::from_millis);
            let heard = NodeReport { clients_wait, ..report() };
            nodes.get(node).unwrap().history.record_state(&heard);
        };
        report("n1", Some(5));
        report("n2", Some(300));
        // A reply without a latency leaves the last report in place.
        report("n2", None);
        assert_eq!(nodes.clients_wait(), Duration::from_millis(300));
        report("n2", Some(0));
        assert_eq!(nodes.clients_wait(), Duration::from_millis(5));
        let history = nodes.get("n1").unwrap().history.clone();
        let long_ago = Instant::now().checked_sub(2 * CLIENTS_WAIT_FOR).unwrap();
        history.last.lock().clients_wait = Some((long_ago, Duration::from_secs(9)));
        assert_eq!(nodes.clients_wait(), Duration::ZERO);
    }
}

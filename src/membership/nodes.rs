//! The other nodes of the cluster: a client for each, and what was heard of it.
//!
//! A node is known by its name. When a ring gives it another address, it gets another client and
//! keeps its history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use martlet_protocol::http::{ClientOptions, ClusterKey, Heard, HttpBackend, RingTags, Tls};
use martlet_protocol::{Clock, Term};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;

use super::clock::ClusterClock;
use super::rings::Rings;
use crate::process::metrics::NodeFigures;

/// Weight of one reply in the moving average: 1 in 16.
const SMOOTHING: u64 = 16;

/// How long it holds what a node told of its clients: as long as workers step back before a step.
const CLIENTS_WAIT_FOR: Duration = Duration::from_secs(2);

/// What was heard and is worth a look.
#[derive(Debug)]
pub(crate) enum News {
    /// A node announced rings that it had not announced before.
    Rings { node: String, rings: RingTags },
    /// A node announced a higher term than before.
    Term(Term),
}

/// What a process is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    /// The storage node of this name.
    Node(&'a str),
    /// One that serves clients.
    Proxy,
    /// One that does background work.
    Replicator,
}

impl<'a> Role<'a> {
    /// Its name, if it is a storage node.
    pub(crate) fn node(self) -> Option<&'a str> {
        match self {
            Self::Node(name) => Some(name),
            Self::Proxy | Self::Replicator => None,
        }
    }
}

/// Another node.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) backend: Arc<HttpBackend>,
    pub(crate) history: Arc<History>,
}

/// What was heard of a node.
#[derive(Debug, Default)]
pub(crate) struct History {
    replies: AtomicU64,
    silences: AtomicU64,
    waited_us: AtomicU64,
    latency_us: AtomicU64,
    answers: AtomicBool,
    /// The highest term that it announced.
    term: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    heard: Option<Instant>,
    rings: Option<RingTags>,
    /// How long clients waited at it when it last told, and when that was.
    clients_wait: Option<(Instant, Duration)>,
}

impl History {
    /// Whether it answered when it was last asked.
    pub(crate) fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Takes note of whether it answered when it was asked.
    pub(crate) fn note_answer(&self, answered: bool) {
        self.answers.store(answered, Ordering::Relaxed);
        self.silences.fetch_add(u64::from(!answered), Ordering::Relaxed);
    }

    /// How long ago it was last heard.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.last.lock().heard.map(|heard| heard.elapsed())
    }

    /// The rings that it announced last.
    pub(crate) fn rings(&self) -> Option<RingTags> {
        self.last.lock().rings.clone()
    }

    /// The highest term that it announced.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Relaxed))
    }

    /// How long clients wait at it, as far as it told lately.
    fn clients_wait(&self) -> Duration {
        let told = self.last.lock().clients_wait;
        let told = told.filter(|(at, _)| at.elapsed() < CLIENTS_WAIT_FOR);
        told.map_or(Duration::ZERO, |(_, wait)| wait)
    }

    /// The figures of it that are known without its name and its clock.
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

    /// Takes note of a reply; whether it announced other rings than the one before.
    fn hear(&self, heard: &Heard) -> bool {
        let took_us = u64::try_from(heard.round_trip.as_micros()).unwrap_or(u64::MAX / SMOOTHING);
        let before = self.latency_us.load(Ordering::Relaxed);
        let after = before - before / SMOOTHING + took_us / SMOOTHING;
        self.latency_us.store(after, Ordering::Relaxed);
        self.waited_us.fetch_add(took_us, Ordering::Relaxed);
        self.replies.fetch_add(1, Ordering::Relaxed);
        self.answers.store(true, Ordering::Relaxed);
        let mut last = self.last.lock();
        let now = Instant::now();
        last.heard = Some(now);
        if let Some(wait) = heard.clients_wait {
            last.clients_wait = Some((now, wait));
        }
        let is_new = last.rings.as_ref() != Some(&heard.rings);
        if is_new {
            last.rings = Some(heard.rings.clone());
        }
        is_new
    }
}

/// All other nodes of the rings.
pub(crate) struct Nodes {
    /// The node that this process is.
    own: Option<String>,
    /// True when all that they are asked is background work.
    is_background: bool,
    key: ClusterKey,
    tls: Option<Tls>,
    clock: Arc<ClusterClock>,
    tell: mpsc::UnboundedSender<News>,
    known: RwLock<BTreeMap<String, Arc<Node>>>,
}

impl Nodes {
    /// Nobody yet. `tell` hears of nodes whose rings changed.
    pub(crate) fn new(
        role: Role<'_>,
        (key, tls): (ClusterKey, Option<Tls>),
        clock: Arc<ClusterClock>,
        tell: mpsc::UnboundedSender<News>,
    ) -> Self {
        let own = role.node().map(str::to_owned);
        let is_background = role == Role::Replicator;
        Self { own, is_background, key, tls, clock, tell, known: RwLock::default() }
    }

    /// Knows the nodes of these rings from now on, and no others.
    pub(crate) fn follow(&self, rings: &Rings) {
        let mut known = self.known.write();
        known.retain(|name, _| rings.addresses().contains_key(name));
        for (name, address) in rings.addresses() {
            let before = known.get(name);
            let is_there = before.is_some_and(|node| node.backend.address() == address);
            if !is_there && self.own.as_ref() != Some(name) {
                let history = before.map(|node| node.history.clone()).unwrap_or_default();
                known.insert(name.clone(), Arc::new(self.meet(name, address, history)));
            }
        }
    }

    fn meet(&self, name: &str, address: &str, history: Arc<History>) -> Node {
        let (clock, tell) = (self.clock.clone(), self.tell.clone());
        let (node, notes) = (name.to_owned(), history.clone());
        let heard = Arc::new(move |heard: Heard| {
            clock.observe(&node, heard.now_ms, heard.round_trip);
            if heard.term > Term(notes.term.fetch_max(heard.term.0, Ordering::Relaxed)) {
                // Nobody listens any more only when the process ends.
                let _ = tell.send(News::Term(heard.term));
            }
            if notes.hear(&heard) {
                let _ = tell.send(News::Rings { node: node.clone(), rings: heard.rings });
            }
        });
        let is_background = self.is_background;
        let options = client_options(self.clock.clone(), self.tls.clone());
        let options = ClientOptions { is_background, ..options };
        let backend = Arc::new(HttpBackend::new(address, self.key.clone(), options, heard));
        Node { name: name.to_owned(), backend, history }
    }

    /// The node that this process is, if it is one.
    pub(crate) fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }

    /// A node by its name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.known.read().get(name).cloned()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.known.read().values().cloned().collect()
    }

    /// How long clients wait at the one where they wait longest, as far as nodes told lately: those
    /// that background work asks do.
    pub(crate) fn clients_wait(&self) -> Duration {
        let known = self.known.read();
        known.values().map(|node| node.history.clients_wait()).max().unwrap_or_default()
    }

    /// How calls of them went.
    pub(crate) fn figures(&self) -> Vec<NodeFigures> {
        let figures = |node: Arc<Node>| {
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

/// How members call each other: what they send is dated by the cluster's time.
pub(crate) fn client_options(clock: Arc<dyn Clock>, tls: Option<Tls>) -> ClientOptions {
    ClientOptions { clock, tls, ..ClientOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Ticks;
    use super::super::rings::RingName;
    use super::super::rings::testing::*;
    use super::*;
    use martlet_protocol::SystemClock;
    use martlet_protocol::http::Announcement;

    fn nodes(role: Role<'_>) -> (Nodes, mpsc::UnboundedReceiver<News>) {
        let clock = ClusterClock::new(Arc::new(Ticks::new()), Arc::new(SystemClock), true);
        let (tell, told) = mpsc::unbounded_channel();
        (Nodes::new(role, ("0f".repeat(32).parse().unwrap(), None), Arc::new(clock), tell), told)
    }

    #[test]
    fn it_knows_the_others_of_the_rings_and_keeps_their_history() {
        let (nodes, _told) = nodes(Role::Node("n2"));
        let mut builder = builder(0, 3);
        let rings = |ring| Rings::new([(RingName::Index, ring)].into()).unwrap();
        nodes.follow(&rings(next(&mut builder)));
        let names = |nodes: &Nodes| nodes.all().iter().map(|node| node.name.clone()).collect();
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
    }

    #[test]
    fn only_rings_that_were_not_announced_before_are_news() {
        let history = History::default();
        let rings = Announcement::new(&[]).rings().clone();
        let term = Term::NONE;
        let round_trip = Duration::from_millis(2);
        let heard = Heard { now_ms: 1, round_trip, rings, term, clients_wait: None };
        assert!(!history.answers() && history.silent_for().is_none());
        assert!(history.hear(&heard));
        assert!(!history.hear(&heard));
        assert!(history.answers() && history.silent_for().is_some());
        assert_eq!(history.replies.load(Ordering::Relaxed), 2);
        assert_eq!(history.waited_us.load(Ordering::Relaxed), 4000);
    }
    #[test]
    fn clients_wait_as_long_as_at_the_slowest_node_that_told_lately() {
        let (nodes, _told) = nodes(Role::Replicator);
        let rings = Rings::new([(RingName::Index, next(&mut builder(0, 3)))].into()).unwrap();
        nodes.follow(&rings);
        assert_eq!(nodes.clients_wait(), Duration::ZERO);
        let tell = |node: &str, clients_wait: Option<u64>| {
            let heard = Heard {
                now_ms: 1,
                round_trip: Duration::ZERO,
                rings: Announcement::new(&[]).rings().clone(),
                term: Term::NONE,
                clients_wait: clients_wait.map(Duration::from_millis),
            };
            nodes.get(node).unwrap().history.hear(&heard);
        };
        tell("n1", Some(5));
        tell("n2", Some(300));
        // A reply that says nothing of clients takes nothing back.
        tell("n2", None);
        assert_eq!(nodes.clients_wait(), Duration::from_millis(300));
        tell("n2", Some(0));
        assert_eq!(nodes.clients_wait(), Duration::from_millis(5));
        let history = nodes.get("n1").unwrap().history.clone();
        let long_ago = Instant::now().checked_sub(2 * CLIENTS_WAIT_FOR).unwrap();
        history.last.lock().clients_wait = Some((long_ago, Duration::from_secs(9)));
        assert_eq!(nodes.clients_wait(), Duration::ZERO);
    }
}

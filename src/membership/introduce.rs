//! Devices introduce themselves to the other nodes: what they were is compared with what is remembered
//! before they may use their votes (rule G1).
//!
//! ```text
//!  opened, has votes ──most nodes remember it, none a later one──▶ votes; all others are told
//!         │  ▲                                                        │ a node remembers a later one
//!         │  └────────────── sync ◀──── no votes ◀──── begins anew ◀──┘
//!         └ a node remembers a later one, or another: ────▲
//!
//!  new, no votes ── a majority of the others asked, nobody was in its place; and either it is the
//!         │         first ring, or the device decides about nothing yet ──▶ votes
//!         └ else: it has to sync first
//! ```
//!
//! A device that was refused keeps what it holds until enough of its peers vote for it to sync from:
//! where all devices of a cluster came from a copy, none of them empties itself.

mod verdict;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::{Backend, DeviceId, DeviceIdentity};
use martlet_ring::Ring;
use martlet_storage_node::{Incarnation, OpeningStatus, StorageNode};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::verdict::{Inquiry, Verdict, judge};
use super::nodes::Node;
use super::peers::{Identity, Introduction, Remembered};
use super::rings::Rings;
use super::routes::{self, Host};
use crate::process::listen::told;

/// Between two rounds of introductions, while there is somebody to meet.
const EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at a device that has to sync.
const QUIET: Duration = Duration::from_secs(10);
/// How often a device that stays open begins a new generation. A copy that was made of it before the
/// last of them is recognised.
const ADVANCE_EVERY: Duration = Duration::from_hours(1);

/// What a node was told of a device: its opening, whether it had votes, and was confirmed.
type Met = (Option<Incarnation>, bool, bool);

/// Introduces the devices of a node.
pub(crate) struct Introducer {
    host: Host,
    node: Arc<StorageNode>,
    /// Who has met which device, as what.
    met: BTreeMap<(String, DeviceId), Met>,
    /// What was logged of the openings of devices: once.
    told: BTreeMap<(DeviceId, &'static str), Incarnation>,
    /// Which openings of devices have to sync, and since when nobody was asked about them.
    quiet: BTreeMap<DeviceId, (Incarnation, Instant)>,
    /// Since when each device is confirmed.
    confirmed: BTreeMap<DeviceId, Instant>,
}

impl Introducer {
    /// For the devices of `node`.
    pub(crate) fn new(host: Host, node: Arc<StorageNode>) -> Self {
        let (met, told, quiet) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { host, node, met, told, quiet, confirmed: BTreeMap::new() }
    }

    /// Introduces devices, and looks after new ones, until `stop`.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut rounds = interval(EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let introduce = async {
            loop {
                rounds.tick().await;
                self.round().await;
            }
        };
        tokio::select! {
            () = told(&mut stop) => {}
            () = introduce => {}
        }
    }

    /// Looks at each device once.
    pub(crate) async fn round(&mut self) {
        let rings = self.host.member.keeper.rings();
        for device in self.node.devices().await.unwrap_or_default() {
            // What the own devices were told is told to others in every reply (rule P3).
            self.host.member.keeper.hear_term(device.term);
        }
        for it in self.node.openings() {
            let holds_entries = rings.index().is_some_and(|ring| ring.device(it.device).is_some());
            if it.replaced_by.is_some() {
                self.begin_anew(&rings, &it).await;
            } else if (holds_entries || it.has_votes) && !self.is_quiet(&it) {
                self.look_after(&rings, &it).await;
            }
        }
    }

    /// Returns true when a device has to sync and was asked about not long ago.
    fn is_quiet(&self, it: &OpeningStatus) -> bool {
        let quiet = self.quiet.get(&it.device).filter(|(current, _)| *current == it.current);
        !it.has_votes && quiet.is_some_and(|(_, since)| since.elapsed() < QUIET)
    }

    async fn look_after(&mut self, rings: &Rings, it: &OpeningStatus) {
        let introduction = Introduction {
            device: it.device,
            identity: Identity(DeviceIdentity(it.current.device.0)),
            voting: it.has_votes,
            current: Some(it.current),
            base: it.base,
            confirmed: it.confirmed,
        };
        // The own memory follows once the others have agreed.
        let asks = Introduction { voting: false, ..introduction };
        let Some(own) = self.remember(asks) else { return };
        let others: Vec<Arc<Node>> = rings
            .index_nodes()
            .iter()
            .filter_map(|name| self.host.member.nodes.get(name))
            .collect();
        let answers = self.introduce(&others, introduction).await;
        let Some(index) = rings.index() else { return };
        let verdict = judge(Inquiry {
            it: introduction,
            is_first_ring: index.identity().parent == [0; 32],
            has_say: it.has_votes || it.base.is_some() || self.has_say(index, it.device),
            is_alone: others.is_empty() && index.replicas() == 1,
            others: others.len(),
            answers: &answers,
            own,
        });
        if verdict == Verdict::Confirmed && self.remember(introduction).is_none() {
            return;
        }
        self.carry_out(verdict, it).await;
    }

    /// Introduces a device to this node itself; what the node remembered.
    fn remember(&self, introduction: Introduction) -> Option<Remembered> {
        let (peers, folder) = (&self.host.peers, &self.host.folder);
        let own = tokio::task::block_in_place(|| peers.meet(folder, introduction));
        own.inspect_err(|error| tracing::error!(%error, "own devices can't be remembered")).ok()
    }

    /// Returns true when a device is one of those that decide about some partition.
    fn has_say(&self, index: &Ring, device: DeviceId) -> bool {
        let term = self.host.member.keeper.term();
        index.partitions().any(|partition| index.sets(partition, term).contains(device))
    }

    /// Introduces a device to the nodes that have not met it as it is; what they remembered.
    async fn introduce(&mut self, nodes: &[Arc<Node>], who: Introduction) -> Vec<Remembered> {
        let met: Met = (who.current, who.voting, who.confirmed);
        let is_over = |node: &&Arc<Node>| {
            let told = self.met.get(&(node.name.clone(), who.device));
            who.voting && who.confirmed && told == Some(&met)
        };
        let asked: Vec<&Arc<Node>> = nodes.iter().filter(|node| !is_over(node)).collect();
        let answers = join_all(asked.iter().map(|node| ask(node, &who))).await;
        let mut remembered = Vec::new();
        for (node, answer) in asked.into_iter().zip(answers) {
            let Some(answer) = answer else { continue };
            self.met.insert((node.name.clone(), who.device), met);
            remembered.push(answer);
        }
        remembered
    }

    async fn carry_out(&mut self, verdict: Verdict, it: &OpeningStatus) {
        let device = it.device;
        let done = match verdict {
            Verdict::Wait => Ok(()),
            Verdict::Confirmed if it.confirmed => self.advance(it).await,
            Verdict::Confirmed => self.node.confirm(device, it.current).await.inspect(|()| {
                let generation = it.current.generation;
                tracing::info!(%device, generation, "the device is the one that its peers remember");
            }),
            Verdict::HasToSync => {
                self.quiet.insert(device, (it.current, Instant::now()));
                if self.is_news(it, "has to sync") {
                    tracing::warn!(
                        %device,
                        "the device stands in for one that others remember: it has no votes until it \
                         has synced"
                    );
                }
                Ok(())
            }
            Verdict::Votes => self.node.set_voting(device, true).await.inspect(|()| {
                tracing::info!(%device, "a new device of a new cluster has its votes");
            }),
            Verdict::Elsewhere(id) => {
                if self.is_news(it, "is elsewhere") {
                    tracing::error!(
                        %device, known_as = %id,
                        "the folder of the device holds another device: mount each disk where it was, \
                         or exchange the paths in the settings; it has no votes here"
                    );
                }
                Ok(())
            }
            Verdict::Replaced(by) => self.node.refuse(device, by).await.inspect(|()| {
                if it.has_votes {
                    tracing::error!(
                        %device, generation = it.current.generation, remembered = by.generation,
                        other = %by.device,
                        "the device is an older copy of what its peers remember, or another disk: its \
                         votes are taken away"
                    );
                }
            }),
        };
        if let Err(error) = done {
            tracing::warn!(%device, %error, "what its peers know of a device can't be written down");
        }
    }

    /// Returns true when something is said of an opening for the first time.
    fn is_news(&mut self, it: &OpeningStatus, what: &'static str) -> bool {
        self.told.insert((it.device, what), it.current) != Some(it.current)
    }

    /// Begins a new generation when the last one is old enough.
    async fn advance(&mut self, it: &OpeningStatus) -> martlet_protocol::Result<()> {
        let since = *self.confirmed.entry(it.device).or_insert_with(Instant::now);
        if since.elapsed() < ADVANCE_EVERY {
            return Ok(());
        }
        self.confirmed.remove(&it.device);
        self.node.advance(it.device).await
    }

    /// Lets a device that was refused begin anew: one that never voted at once, another when its
    /// peers have what it needs.
    async fn begin_anew(&mut self, rings: &Rings, it: &OpeningStatus) {
        let device = it.device;
        let never_voted = !it.has_votes && it.base.is_none();
        if !never_voted && !self.can_sync(rings, device).await {
            if self.is_news(it, "waits for peers") {
                tracing::error!(
                    %device,
                    "the device has no votes, and too few of its peers have theirs for it to begin \
                     anew: it is left as it is until they do"
                );
            }
            return;
        }
        match self.node.begin_anew(device).await {
            Ok(()) => tracing::warn!(%device, "the device begins anew, without votes"),
            Err(error) => tracing::warn!(%device, %error, "the device can't begin anew"),
        }
    }

    /// Returns true when the others decide without the device, wherever it has a say.
    async fn can_sync(&self, rings: &Rings, device: DeviceId) -> bool {
        let Some(index) = rings.index() else { return false };
        let nodes = rings.index_nodes().into_iter();
        let nodes: Vec<_> = nodes.filter_map(|name| self.host.member.nodes.get(name)).collect();
        let asked = nodes.iter().map(|node| timeout(PATIENCE, node.backend.devices()));
        let theirs = join_all(asked).await.into_iter().flatten().flatten().flatten();
        let own = self.node.devices().await.unwrap_or_default();
        let voting = theirs.chain(own).filter(|status| status.voting);
        let voting: HashSet<DeviceId> = voting.map(|status| status.device).collect();
        let term = self.host.member.keeper.term();
        suffice(index, term, device, &voting)
    }
}

/// Returns true when these devices decide about every partition without `device`.
fn suffice(
    index: &Ring,
    term: martlet_protocol::Term,
    device: DeviceId,
    voting: &HashSet<DeviceId>,
) -> bool {
    index.partitions().all(|partition| {
        let sets = index.sets(partition, term);
        (0..sets.count()).filter(|at| sets.is_of(*at, device)).all(|at| {
            let others = sets.set(at).filter(|id| *id != device && voting.contains(id)).count();
            let count = sets.set(at).count();
            // A quorum without the device may have decided all by itself.
            others >= (count - count / 2).max(1)
        })
    })
}

async fn ask(node: &Node, who: &Introduction) -> Option<Remembered> {
    let body = serde_json::to_vec(who).expect("plain data can be encoded");
    let asked = node.backend.post(routes::INTRODUCE, Bytes::from(body));
    match timeout(PATIENCE, asked).await {
        Ok(Ok(bytes)) => serde_json::from_slice(&bytes).ok(),
        Ok(Err(error)) => {
            tracing::debug!(node = node.name, %error, "a node was not introduced to a device");
            None
        }
        Err(_) => None,
    }
}

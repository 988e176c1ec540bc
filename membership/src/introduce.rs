//! Introduction of devices to the other nodes, which compare each device with the one that they
//! remember. A device may use its votes only after that (rule G1).
//!
//! ```text
//!  opened, has votes ──most nodes remember it, none a later one──▶ votes; all others informed
//!         │  ▲                                                        │ a node has a later one
//!         │  └────────────── sync ◀──── no votes ◀──── begins anew ◀──┘
//!         └ a node has a later one, or another: ──────────▲
//!
//!  new, no votes ── a majority of the others queried, none remembers a device in its place; and
//!         │         it is the first ring, or the device decides about nothing yet ──▶ votes
//!         └ else: it has to sync first
//! ```
//!
//! A refused device keeps its contents until enough peers with votes can be synced from. So if all
//! devices of a cluster were restored from a copy, none of them empties itself.

mod outcome;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::opening::{Incarnation, OpeningStatus};
use martlet_protocol::{Backend, DeviceId, DeviceIdentity, Result};
use martlet_ring::Ring;
use martlet_serving::wait_for_stop;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::outcome::{IntroductionFacts, IntroductionOutcome, decide};
use super::nodes::PeerNode;
use super::peers::{FormerRecord, IdentityDocument, Introduction};
use super::rings::RingSet;
use super::routes::{self, Host};

/// Pause between two rounds of introductions.
const EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two checks of a device that has to sync.
const QUIET: Duration = Duration::from_secs(10);
/// Interval at which an open device begins a new generation. Older copies of the device are
/// detected by their generation.
const ADVANCE_EVERY: Duration = Duration::from_hours(1);

/// State of a device as a node received it: its opening, whether it had votes, and whether it was
/// confirmed.
type IntroductionAnswer = (Option<Incarnation>, bool, bool);

/// Devices of this node, as their introduction needs them.
#[async_trait]
pub trait IntroducedDevices: Send + Sync {
    /// Returns the status of all devices.
    async fn devices(&self) -> Result<Vec<DeviceStatus>>;
    /// Returns the openings of all open devices.
    fn openings(&self) -> Vec<OpeningStatus>;
    /// Records that peers confirmed an opening.
    async fn confirm(&self, device: DeviceId, current: Incarnation) -> Result<()>;
    /// Records that peers remember another opening.
    async fn refuse(&self, device: DeviceId, by: Incarnation) -> Result<()>;
    /// Grants the votes of a device, if its formatting is that of `current`. A founder takes first-hand
    /// writes at once (rule M2).
    async fn grant_votes(
        &self,
        device: DeviceId,
        current: Incarnation,
        is_founder: bool,
    ) -> Result<()>;
    /// Begins a new generation of an open device.
    async fn advance(&self, device: DeviceId) -> Result<()>;
    /// Begins a refused device anew, without votes.
    async fn begin_anew(&self, device: DeviceId) -> Result<()>;
}

/// Task that introduces the devices of a node.
pub struct Introducer {
    host: Host,
    devices: Arc<dyn IntroducedDevices>,
    /// State of each device as each node last received it.
    met: BTreeMap<(String, DeviceId), IntroductionAnswer>,
    /// Openings for which each message was logged, so that it is logged once.
    logged: BTreeMap<(DeviceId, &'static str), Incarnation>,
    /// Openings that have to sync, and the time of their last check.
    quiet: BTreeMap<DeviceId, (Incarnation, Instant)>,
    /// Time at which each device was confirmed.
    confirmed: BTreeMap<DeviceId, Instant>,
}

impl Introducer {
    /// Makes an introducer for the devices of a node.
    pub fn new(host: Host, devices: Arc<dyn IntroducedDevices>) -> Self {
        let (met, logged, quiet) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { host, devices, met, logged, quiet, confirmed: BTreeMap::new() }
    }

    /// Introduces devices, including later ones, until `stop`.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut rounds = interval(EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let introduce = async {
            loop {
                rounds.tick().await;
                self.round().await;
            }
        };
        tokio::select! {
            () = wait_for_stop(&mut stop) => {}
            () = introduce => {}
        }
    }

    /// Checks each device once.
    pub(crate) async fn round(&mut self) {
        let rings = self.host.member.keeper.rings();
        for device in self.devices.devices().await.unwrap_or_default() {
            // Replies to other nodes announce the highest term of this node's devices (rule P3).
            self.host.member.keeper.receive_term(device.term);
        }
        for it in self.devices.openings() {
            let holds_entries = rings.index().is_some_and(|ring| ring.device(it.device).is_some());
            if it.replaced_by.is_some() {
                self.begin_anew(&rings, &it).await;
            } else if (holds_entries || it.has_votes) && !self.is_quiet(&it) {
                self.attend_device(&rings, &it).await;
            }
        }
    }

    /// Returns true if a device has to sync and was checked less than [`QUIET`] ago.
    fn is_quiet(&self, it: &OpeningStatus) -> bool {
        let quiet = self.quiet.get(&it.device).filter(|(current, _)| *current == it.current);
        !it.has_votes && quiet.is_some_and(|(_, since)| since.elapsed() < QUIET)
    }

    async fn attend_device(&mut self, rings: &RingSet, it: &OpeningStatus) {
        let introduction = Introduction {
            device: it.device,
            identity: IdentityDocument(DeviceIdentity(it.current.device.0)),
            voting: it.has_votes,
            current: Some(it.current),
            base: it.base,
            confirmed: it.confirmed,
        };
        // This node records the device's votes only after the other nodes agree.
        let own = Introduction { voting: false, ..introduction };
        let Some(own) = self.remember(own) else { return };
        let others: Vec<Arc<PeerNode>> = rings
            .index_nodes()
            .iter()
            .filter_map(|name| self.host.member.nodes.get(name))
            .collect();
        let answers = self.introduce(&others, introduction).await;
        let Some(index) = rings.index() else { return };
        let verdict = decide(IntroductionFacts {
            it: introduction,
            is_first_ring: index.identity().parent == [0; 32],
            has_say: it.has_votes || it.base.is_some() || self.decides(index, it.device),
            is_alone: others.is_empty() && index.replicas() == 1,
            others: others.len(),
            answers: &answers,
            own,
        });
        if verdict == IntroductionOutcome::Confirmed && self.remember(introduction).is_none() {
            return;
        }
        self.apply_outcome(verdict, it).await;
    }

    /// Introduces a device to this node. Returns the node's previous record.
    fn remember(&self, introduction: Introduction) -> Option<FormerRecord> {
        let (peers, folder) = (&self.host.peers, &self.host.folder);
        let own = tokio::task::block_in_place(|| peers.record_introduction(folder, introduction));
        own.inspect_err(|error| tracing::error!(%error, "could not store the state of own devices"))
            .ok()
    }

    /// Returns true if a device is in the deciding set of some partition.
    fn decides(&self, index: &Ring, device: DeviceId) -> bool {
        let term = self.host.member.keeper.term();
        index.partitions().any(|partition| index.sets(partition, term).contains(device))
    }

    /// Introduces a device to the nodes that have not recorded its current state. Returns their
    /// previous records.
    async fn introduce(&mut self, nodes: &[Arc<PeerNode>], who: Introduction) -> Vec<FormerRecord> {
        let met: IntroductionAnswer = (who.current, who.voting, who.confirmed);
        let is_over = |node: &&Arc<PeerNode>| {
            let last = self.met.get(&(node.name.clone(), who.device));
            who.voting && who.confirmed && last == Some(&met)
        };
        let receivers: Vec<&Arc<PeerNode>> = nodes.iter().filter(|node| !is_over(node)).collect();
        let answers = join_all(receivers.iter().map(|node| introduce_to(node, &who))).await;
        let mut remembered = Vec::new();
        for (node, answer) in receivers.into_iter().zip(answers) {
            let Some(answer) = answer else { continue };
            self.met.insert((node.name.clone(), who.device), met);
            remembered.push(answer);
        }
        remembered
    }

    async fn apply_outcome(&mut self, verdict: IntroductionOutcome, it: &OpeningStatus) {
        let device = it.device;
        let done = match verdict {
            IntroductionOutcome::Wait => Ok(()),
            IntroductionOutcome::Confirmed if it.confirmed => self.advance(it).await,
            IntroductionOutcome::Confirmed => {
                self.devices.confirm(device, it.current).await.inspect(|()| {
                    let generation = it.current.generation;
                    tracing::info!(%device, generation, "peers confirmed the device");
                })
            }
            IntroductionOutcome::HasToSync => {
                self.quiet.insert(device, (it.current, Instant::now()));
                if self.is_first(it, "has to sync") {
                    tracing::warn!(
                        %device,
                        "the device replaces one that its peers remember: no votes until it has \
                         synced"
                    );
                }
                Ok(())
            }
            IntroductionOutcome::Votes { is_founder } => {
                let granted = self.devices.grant_votes(device, it.current, is_founder).await;
                granted.inspect(|()| tracing::info!(%device, is_founder, "a new device got its votes"))
            }
            IntroductionOutcome::Elsewhere(id) => {
                if self.is_first(it, "is elsewhere") {
                    tracing::error!(
                        %device, known_as = %id,
                        "the folder holds another device, which has no votes here: mount each disk \
                         where it was, or swap the paths in the settings"
                    );
                }
                Ok(())
            }
            IntroductionOutcome::Replaced(by) => self.devices.refuse(device, by).await.inspect(|()| {
                if it.has_votes {
                    tracing::error!(
                        %device, generation = it.current.generation, remembered = by.generation,
                        other = %by.device,
                        "revoked the votes of the device, which is an older copy or another disk \
                         than its peers remember"
                    );
                }
            }),
        };
        if let Err(error) = done {
            tracing::warn!(%device, %error, "could not record the peers' verdict on a device");
        }
    }

    /// Returns true if a message about an opening is new.
    fn is_first(&mut self, it: &OpeningStatus, what: &'static str) -> bool {
        self.logged.insert((it.device, what), it.current) != Some(it.current)
    }

    /// Begins a new generation once the last one is [`ADVANCE_EVERY`] old.
    async fn advance(&mut self, it: &OpeningStatus) -> Result<()> {
        let since = *self.confirmed.entry(it.device).or_insert_with(Instant::now);
        if since.elapsed() < ADVANCE_EVERY {
            return Ok(());
        }
        self.confirmed.remove(&it.device);
        self.devices.advance(it.device).await
    }

    /// Makes a refused device begin anew, without votes. A device that never voted begins anew at
    /// once, another device only when its peers can supply its contents.
    async fn begin_anew(&mut self, rings: &RingSet, it: &OpeningStatus) {
        let device = it.device;
        let never_voted = !it.has_votes && it.base.is_none();
        if !never_voted && !self.can_sync(rings, device).await {
            if self.is_first(it, "waits for peers") {
                tracing::error!(
                    %device,
                    "the device has no votes, and too few peers have votes to restart it: waiting \
                     for peers"
                );
            }
            return;
        }
        match self.devices.begin_anew(device).await {
            Ok(()) => tracing::warn!(%device, "restarting the device without votes"),
            Err(error) => {
                tracing::warn!(%device, %error, "could not restart the device without votes");
            }
        }
    }

    /// Returns true if enough other devices have votes in all partitions of this device.
    async fn can_sync(&self, rings: &RingSet, device: DeviceId) -> bool {
        let Some(index) = rings.index() else { return false };
        let nodes = rings.index_nodes().into_iter();
        let nodes: Vec<_> = nodes.filter_map(|name| self.host.member.nodes.get(name)).collect();
        let statuses = nodes.iter().map(|node| timeout(PATIENCE, node.backend.devices()));
        let theirs = join_all(statuses).await.into_iter().flatten().flatten().flatten();
        let own = self.devices.devices().await.unwrap_or_default();
        let voting = theirs.chain(own).filter(|status| status.voting);
        let voting: HashSet<DeviceId> = voting.map(|status| status.device).collect();
        let term = self.host.member.keeper.term();
        suffice(index, term, device, &voting)
    }
}

/// Returns true if these devices can decide about every partition of `device` without it.
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
            // Every quorum, even one that included the device, then has a voter among the other
            // devices.
            others >= (count - count / 2).max(1)
        })
    })
}

async fn introduce_to(node: &PeerNode, who: &Introduction) -> Option<FormerRecord> {
    let body = serde_json::to_vec(who).expect("plain data can be encoded");
    let answer = node.backend.post(routes::INTRODUCE, Bytes::from(body));
    match timeout(PATIENCE, answer).await {
        Ok(Ok(bytes)) => serde_json::from_slice(&bytes).ok(),
        Ok(Err(error)) => {
            tracing::debug!(node = node.name, %error, "could not introduce a device to a node");
            None
        }
        Err(_) => None,
    }
}

//! Sync: a device that forgot its registers gets its votes back (rules G1, G2).
//!
//! ```text
//! no votes ──floor f on its peers──▶ copying ──a pass that finds nothing missing──▶ votes
//!     ▲                                 │
//!     └── wiped again, another ring, ───┘
//!         or a peer that forgot too
//! ```
//!
//! A device that was wiped or replaced may have made promises and accepted writes that no other
//! device remembers.
//!
//! 1. All other devices that decide about its partitions, before and after an unfinished ring
//!    change, persist a promise floor f. After it a quorum can promise or accept nothing below f,
//!    so its peers' registers below f don't change. f lies ahead of the clock by the maximum
//!    clock skew: every promise of the device alone lies below f.
//! 2. The merge of all of their registers that belong on the device is copied. Where they differ
//!    below f, an identity round settles the register first. Fences are copied too. Sums tell where
//!    the device lacks something, and where its peers agree; there one of them is read. What lies
//!    below f is frozen on the peers, so they agree for ever about what they agreed about once.
//! 3. The walk is repeated until a whole pass finds nothing below f that the device lacks.
//! 4. The device's own floor is raised above f and above every promise found: one of these peers
//!    shared each promise that the device has forgotten. The device also gets the highest known
//!    term, which it may have forgotten too. Then it votes.
//!
//! Writes above f are chosen without the device meanwhile, and later quorums that include it find
//! them. Its own floor comes last: before it, old orders must still be accepted.
//!
//! Each quorum that may have included the device must have another member among the participating
//! peers: of three primaries, both others. With too few peers, nothing happens. In a cluster of
//! only new devices the founding process gives the votes, and only under the first ring. Under that
//! ring, a device is left to its founders for some seconds after other devices got their votes.
//! Otherwise a floor would stamp the first minute of the cluster ahead of its time.
//!
//! A device that decides about no partition has nothing to sync: a new device that waits for the
//! ring change that adds it. It gets its votes when every device of the ring has confirmed this,
//! and no floor: with a floor above the registers moved to it, it would accept each of them by a
//! ballot only.
//!
//! Several devices are synced in turn, so that one that never ends delays no other. A session that
//! begins anew, after a restart or under another ring or term, reads sums, and registers only where
//! the device lacks some.

mod peers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use martlet_protocol::backend::{DeviceCondition, DeviceStatus};
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{
    BackendExt, Clock, DeviceId, DeviceIdentity, Error, Partition, Result, Stamp, StampSource, Term,
};
use martlet_ring::RingHash;
use martlet_topology::Topology;

pub(crate) use self::peers::{bring_fences, copy_fences};
use self::peers::{check_accepted, check_coverage, peers_of, set_fenced};
use crate::cluster::{DeviceScope, StepTopology, in_time};
use crate::copying::ranges::{CopyRange, PARTITIONS, SourcedSpan, differing, span_of};
use crate::copying::{PAGE, RegisterCopy};
use crate::partitions::NearPartitions;
use crate::rebuild::loss::IndexLoss;
use crate::worker::{StepProgress, Worker};

/// Pause between two looks for devices without votes.
const REST: Duration = Duration::from_secs(2);
/// Number of consecutive failed steps after which a session begins anew, perhaps with other peers.
const FAILURES_MAX: u32 = 30;
/// Devices synced in turn, and milliseconds after which another one may join them: a look at a
/// device's peers goes through its partitions.
const SESSIONS_MAX: usize = 8;
const BEGIN_EVERY_MS: u64 = 10_000;
/// Registers copied by a step, for each node, and at most: each step asks every node for its state.
const STEP_A_NODE: usize = 64;
const STEP_MAX: usize = 8192;

/// The worker.
pub struct SyncDevices {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    stamps: StampSource,
    /// Partitions of the devices that wait for a sync; none while no device waits.
    near: NearPartitions,
    /// Devices that are being synced; the first one is next.
    sessions: VecDeque<SyncSession>,
    /// Device with which a session began last, and the time of the last attempt to begin one.
    begun_last: Option<DeviceId>,
    begun_ms: u64,
    /// Milliseconds for which a device under the first ring is left to its founders.
    founding_ms: u64,
    /// Times from which on devices without votes could have been synced.
    ready_since_ms: HashMap<(DeviceId, DeviceIdentity), u64>,
    /// Last logged reason for which no session began; logged once.
    reported: Option<String>,
    /// Devices whose loss an operator has accepted: only these are synced then.
    accepted: Option<BTreeSet<DeviceId>>,
}

/// A device that is being synced.
struct SyncSession {
    device: DeviceId,
    identity: DeviceIdentity,
    ring: RingHash,
    /// Term at its begin, which determines the deciding devices.
    term: Term,
    /// Peers that persisted the floor, with their identities at that time.
    peers: BTreeMap<DeviceId, DeviceIdentity>,
    floor: Stamp,
    /// Highest promise found.
    promise: Stamp,
    /// Partitions about which the device decides, and those that this pass has not compared yet.
    all: Vec<Partition>,
    left: Vec<Partition>,
    /// Ranges in which the device differs, not yet copied.
    ranges: VecDeque<CopyRange>,
    /// Number of registers below the floor that this pass found missing.
    missing: u64,
    passes: u32,
    since_ms: u64,
    failures: u32,
    accepts_loss: bool,
}

impl SyncDevices {
    /// Creates a worker over the index devices in `scope`.
    pub fn new(topology: impl Into<Topology>, clock: Arc<dyn Clock>, scope: DeviceScope) -> Self {
        let stamps = StampSource::new(clock.clone());
        Self {
            topology: topology.into(),
            clock,
            scope,
            stamps,
            near: NearPartitions::default(),
            sessions: VecDeque::new(),
            begun_last: None,
            begun_ms: 0,
            founding_ms: 0,
            ready_since_ms: HashMap::new(),
            reported: None,
            accepted: None,
        }
    }

    /// Fills these devices from the peers that have votes, however few these are. All other peers must
    /// answer, and be among the devices. Collection must be held when a device gets its votes.
    pub(crate) fn accepting_loss(mut self, devices: BTreeSet<DeviceId>) -> Self {
        self.accepted = Some(devices);
        self
    }

    /// Returns the last failure.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.reported.as_deref()
    }

    /// Leaves devices under the first ring to their founders for `founding_ms`.
    #[must_use]
    pub fn after_founding(mut self, founding_ms: u64) -> Self {
        self.founding_ms = founding_ms;
        self
    }

    /// Returns true if a device that could be synced may soon get its votes from its founders.
    fn is_being_founded(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        identity: DeviceIdentity,
    ) -> bool {
        let now_ms = self.clock.now_ms();
        let since_ms = *self.ready_since_ms.entry((device, identity)).or_insert(now_ms);
        let is_first_ring = cluster.index().identity().parent == [0; 32];
        is_first_ring && now_ms.saturating_sub(since_ms) < self.founding_ms
    }

    /// Returns the session whose turn it is, after beginning one more if a device waits for it.
    async fn next_session(
        &mut self,
        cluster: &StepTopology,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<SyncSession> {
        let has_none = |id: &&DeviceId| self.sessions.iter().all(|session| session.device != **id);
        let others: Vec<DeviceId> = waiting.iter().filter(has_none).copied().collect();
        let now_ms = self.clock.now_ms();
        let is_due = self.sessions.is_empty()
            || (self.sessions.len() < SESSIONS_MAX
                && self.begun_ms.saturating_add(BEGIN_EVERY_MS) <= now_ms);
        if is_due && !others.is_empty() {
            self.begun_ms = now_ms;
            match self.begin(cluster, &others, statuses).await {
                Ok(session) => self.sessions.push_back(session),
                Err(error) if self.sessions.is_empty() => return Err(error),
                Err(error) => tracing::debug!(%error, "could not begin with another device"),
            }
        }
        let next = self.sessions.pop_front();
        next.ok_or_else(|| Error::unavailable("no device waits for a sync"))
    }

    /// Begins with the next of `waiting` that has enough peers.
    async fn begin(
        &mut self,
        cluster: &StepTopology,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<SyncSession> {
        let mut reason = None;
        // The device after the last one comes first.
        let last = waiting.iter().position(|id| Some(*id) > self.begun_last).unwrap_or(0);
        for device in waiting.iter().cycle().skip(last).take(waiting.len()) {
            match self.begin_with(cluster, *device, waiting, statuses).await {
                Ok(session) => {
                    self.begun_last = Some(*device);
                    return Ok(session);
                }
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        Err(reason.unwrap_or_else(|| Error::unavailable("no device waits for a sync")))
    }

    async fn begin_with(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<SyncSession> {
        let voting = |id: &DeviceId| statuses.get(id).is_some_and(|status| status.voting);
        // By the next ring the device may decide about more than this ring shows.
        cluster.check_not_behind()?;
        let term = cluster.named()?;
        let decided = self.near.decided_by(cluster.index(), device, term, waiting).await;
        let mut peers = peers_of(&decided, device);
        let accepts_loss = self.accepted.is_some();
        if let Some(accepted) = &self.accepted {
            // A device that left the ring never answers. Where all terms are lost, the ring's last
            // change counts as just begun, and names such devices.
            peers.retain(|id| cluster.index().device(*id).is_some());
            check_accepted(&peers, accepted, statuses)?;
        }
        let voters: BTreeSet<DeviceId> = peers.into_iter().filter(voting).collect();
        if !accepts_loss {
            check_coverage(&decided, device, &voters)?;
        }
        let identity = |id: &DeviceId| statuses.get(id).map(|status| (*id, status.identity));
        let own = identity(&device)
            .map(|(_, identity)| identity)
            .ok_or_else(|| Error::unavailable(format!("device {device} does not answer")))?;
        if !accepts_loss && self.is_being_founded(cluster, device, own) {
            return Err(Error::unavailable(format!(
                "device {device} has no vote yet, and may get it as a new device"
            )));
        }
        // The device takes writes from here on, so that it has most of those above the floor.
        bring_fences(cluster, device, own, voters.iter(), || self.clock.now_ms()).await?;
        let now_ms = self.clock.now_ms();
        let floor = floor_at(now_ms);
        let raised = voters.iter().filter_map(identity).map(|(peer, identity)| async move {
            let condition = DeviceCondition::at(identity, now_ms);
            let raised = cluster.node(peer)?.raise_floor_of(peer, condition, floor);
            in_time(raised).await.map(|()| peer)
        });
        let raised: BTreeSet<DeviceId> = join_all(raised).await.into_iter().flatten().collect();
        if !accepts_loss {
            check_coverage(&decided, device, &raised)?;
        } else if raised != voters {
            return Err(Error::unavailable("a device with votes did not raise its floor"));
        }
        copy_fences(cluster, device, &raised).await?;
        tracing::info!(%device, peers = raised.len(), "syncing a device without votes");
        let all: Vec<Partition> = decided.into_iter().map(|(partition, _)| partition).collect();
        Ok(SyncSession {
            device,
            identity: own,
            ring: cluster.index().hash(),
            term,
            peers: raised.iter().filter_map(identity).collect(),
            floor,
            promise: floor,
            left: all.clone(),
            all,
            ranges: VecDeque::new(),
            missing: 0,
            passes: 0,
            since_ms: self.clock.now_ms(),
            failures: 0,
            accepts_loss,
        })
    }

    /// Copies some pages, and ends the sync after the last page if the pass found nothing missing.
    /// Returns true if the device has its votes now, and the number of registers visited.
    async fn resume(
        &self,
        cluster: &StepTopology,
        session: &mut SyncSession,
    ) -> Result<(bool, u64)> {
        let most = (STEP_A_NODE * cluster.index_nodes()).clamp(PAGE, STEP_MAX) as u64;
        let mut items = 0;
        while session.compare(cluster).await? {
            items += session.copy_page(cluster, &self.stamps).await?;
            if items >= most {
                return Ok((false, items));
            }
        }
        session.passes += 1;
        session.left.clone_from(&session.all);
        if std::mem::take(&mut session.missing) > 0 {
            return Ok((false, items));
        }
        if let Some(accepted) = &self.accepted {
            IndexLoss::check_accepted(&self.topology, accepted).await?;
        }
        session.end(cluster, &*self.clock).await?;
        tracing::info!(device = %session.device, passes = session.passes, "a device has synced and \
                                                                           has votes again");
        Ok((true, items))
    }

    fn report_error(&mut self, error: &Error) {
        let reason = error.to_string();
        if self.reported.as_ref() != Some(&reason) {
            tracing::warn!(%error, "could not sync a device, which stays without votes for now");
            self.reported = Some(reason);
        }
    }
}

impl SyncSession {
    /// Finds the next range in which the device differs. Returns false at the end of the pass.
    async fn compare(&mut self, cluster: &StepTopology) -> Result<bool> {
        while self.ranges.is_empty() && !self.left.is_empty() && !self.peers.is_empty() {
            let from = self.left.len().saturating_sub(PARTITIONS);
            let index = cluster.index();
            let sourced = |partition: &Partition| {
                let sets = index.sets(*partition, self.term);
                let sources = sets.members().filter(|id| self.peers.contains_key(id));
                SourcedSpan { span: span_of(index, *partition), sources: sources.collect() }
            };
            let spans: Vec<SourcedSpan> = self.left[from..].iter().map(sourced).collect();
            // After an accepted loss, some partitions have no source.
            let spans: Vec<SourcedSpan> =
                spans.into_iter().filter(|span| !span.sources.is_empty()).collect();
            self.ranges = differing(cluster, self.device, &spans).await?.into();
            self.left.truncate(from);
        }
        Ok(!self.ranges.is_empty())
    }

    /// Copies the missing registers of the next page; returns the number of registers visited.
    async fn copy_page(&mut self, cluster: &StepTopology, stamps: &StampSource) -> Result<u64> {
        let Some(range) = self.ranges.front_mut() else { return Ok(0) };
        let page = range.page(cluster, self.device, stamps.now_ms()).await?;
        let copying = RegisterCopy {
            cluster,
            stamps,
            device: self.device,
            sources: &range.sources,
            read_from: range.read_from(),
            changing_from: None,
            fresh_from: Some(self.floor),
            above: self.promise,
        };
        let copied = copying.page(&page).await?;
        self.missing += copied.missing;
        self.promise = self.promise.max(copied.promise);
        if !range.advance(&page) {
            self.ranges.pop_front();
        }
        Ok(copied.items)
    }

    /// Returns true if device, peers, ring and term are unchanged.
    fn is_valid(&self, cluster: &StepTopology, statuses: &HashMap<DeviceId, DeviceStatus>) -> bool {
        let same = |id: &DeviceId, identity: &DeviceIdentity, voting: bool| {
            statuses
                .get(id)
                .is_none_or(|status| status.identity == *identity && status.voting == voting)
        };
        cluster.index().hash() == self.ring
            && cluster.term() == self.term
            && same(&self.device, &self.identity, false)
            && self.peers.iter().all(|(peer, identity)| same(peer, identity, true))
    }

    /// Gives the device its votes, if no peer has lost its votes or identity. A device that takes its
    /// place meanwhile, or loses its votes later, gets none by these calls.
    async fn end(&self, cluster: &StepTopology, clock: &dyn Clock) -> Result<()> {
        copy_fences(cluster, self.device, self.peers.keys()).await?;
        let condition = DeviceCondition::at(self.identity, clock.now_ms());
        let statuses = cluster.statuses().await;
        let everyone = cluster.index_devices();
        let mut needed: Vec<&DeviceId> = self.peers.keys().chain([&self.device]).collect();
        if self.peers.is_empty() {
            // A silent device may know of a change in which this device decides.
            needed.extend(&everyone);
        }
        let all_answer = needed.iter().all(|id| statuses.contains_key(id));
        if !all_answer || !self.is_valid(cluster, &statuses) {
            return Err(Error::unavailable(if self.peers.is_empty() {
                "a new device gets its vote once every device of the index ring answers"
            } else {
                "a device in a sync is gone or lost its state"
            }));
        }
        if !self.all.is_empty() {
            set_fenced(cluster, self.device, condition).await?;
        }
        let node = cluster.node(self.device)?;
        if !self.peers.is_empty() || self.accepts_loss {
            let floor = self.floor.max(self.promise);
            in_time(node.raise_floor_of(self.device, condition, floor)).await?;
        }
        if self.term > Term::NONE {
            in_time(node.raise_term(self.device, self.term)).await?;
        }
        in_time(node.set_voting_of(self.device, condition, true)).await
    }
}

/// Returns a floor above every stamp that may have been promised by now.
pub(crate) fn floor_at(now_ms: u64) -> Stamp {
    Stamp::at_ms(now_ms.saturating_add(CLOCK_SKEW_MS_MAX + 1))
}

#[async_trait]
impl Worker for SyncDevices {
    fn name(&self) -> &'static str {
        "sync"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.min(REST)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let statuses = cluster.statuses().await;
        let is_mine = |id: &DeviceId| self.accepted.as_ref().is_none_or(|of| of.contains(id));
        let lacks =
            |id: &DeviceId| is_mine(id) && statuses.get(id).is_some_and(|status| !status.voting);
        let waiting: Vec<DeviceId> =
            cluster.index_devices_of(&self.scope).into_iter().filter(lacks).collect();
        let mut progress =
            StepProgress { backlog: waiting.len() as u64, ..StepProgress::default() };
        self.sessions.retain(|session| session.is_valid(&cluster, &statuses));
        if waiting.is_empty() && self.sessions.is_empty() {
            self.ready_since_ms.clear();
            self.near = NearPartitions::default();
            return Ok(StepProgress { idle: true, ..progress });
        }
        let outcome = match self.next_session(&cluster, &waiting, &statuses).await {
            Err(error) => Err(error),
            Ok(mut session) => match self.resume(&cluster, &mut session).await {
                Ok((true, items)) => Ok((1, items)),
                Ok((false, items)) => {
                    session.failures = 0;
                    self.sessions.push_back(session);
                    Ok((0, items))
                }
                Err(error) => {
                    session.failures += 1;
                    self.sessions.extend(Some(session).filter(|it| it.failures < FAILURES_MAX));
                    Err(error)
                }
            },
        };
        match outcome {
            Ok((done, items)) => {
                self.reported = None;
                (progress.items, progress.done) = (items, done);
                progress.backlog -= done.min(progress.backlog);
            }
            Err(error) => {
                self.report_error(&error);
                // Other devices go on at once.
                (progress.kept, progress.idle) = (1, self.sessions.len() <= 1);
            }
        }
        let now_ms = self.clock.now_ms();
        let since = self.sessions.iter().map(|session| session.since_ms).min();
        progress.oldest_age_ms = since.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

//! Sync: a device that forgot gets its votes back (rules G1, G2).
//!
//! ```text
//! no votes ──floor f on its peers──▶ copying ──a pass that finds nothing missing──▶ votes
//!     ▲                                 │
//!     └── wiped again, another ring, ───┘
//!         or a peer that forgot too
//! ```
//!
//! A device that was wiped or replaced may have promised and accepted what nobody else remembers.
//!
//! 1. Every other device that has a say in its partitions, before and after a ring change that isn't
//!    over, persists a promise floor f: nothing below f can be promised or accepted by a quorum any
//!    more, so what its peers hold below f stands still. f lies ahead of the clock by as much as a
//!    stamp may: whoever was promised something by the device alone was promised it below f.
//! 2. The merge of all of their registers that belong on the device is copied; where they differ below
//!    f, an identity round settles it first. Fences are copied too.
//! 3. The walk is done again until a whole pass finds nothing below f that the device lacks.
//! 4. The device's own floor is raised above f and above every promise that was met: whoever holds a
//!    promise that the device has forgotten shared it with one of these peers. It is told the highest
//!    term that is known, for it may have forgotten that too. Then it votes.
//!
//! What is written above f meanwhile is chosen without the device, and found by the quorums that it
//! will be part of. Its own floor comes last: until then old orders must still be taken.
//!
//! So many peers must take part that each quorum which the device may have been part of had one of
//! them: of three primaries, both others. Where there are too few, nothing happens; a cluster whose
//! devices are all new is given its votes by whoever founds it, and only under the first ring. There a
//! device is left to its founders for some seconds after others got theirs: a floor would stamp the
//! first minute of the cluster ahead of its time.
//!
//! A device that has no say in any partition has nothing to sync: a new one that waits for the ring
//! change which brings it in. It gets its votes when every device of the ring has said so, and no
//! floor: whoever has a floor above what is moved to it takes each register by a ballot only.

mod peers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{join_all, try_join_all};
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{
    Clock, DeviceId, DeviceIdentity, Error, RegisterKey, Result, Stamp, StampSource, Term,
};
use martlet_ring::RingHash;

pub(crate) use self::peers::copy_fences;
use self::peers::{check_coverage, peers_of};
use crate::cluster::{Cluster, Scope, SharedCluster, in_time};
use crate::copying::{Copied, Copying, PAGE, Page};
use crate::worker::{Progress, Worker};

/// Between two looks for devices without votes.
const REST: Duration = Duration::from_secs(2);
/// Steps that may fail in a row before a session begins anew, perhaps with other peers.
const FAILURES_MAX: u32 = 30;

/// The worker.
pub struct SyncDevices {
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    scope: Scope,
    stamps: StampSource,
    session: Option<Session>,
    /// For how long a device under the first ring is left to its founders.
    founding_ms: u64,
    /// Since when which devices without votes could have been synced.
    ready_since_ms: HashMap<(DeviceId, DeviceIdentity), u64>,
    /// Why the last attempt came to nothing: said once, not every time.
    told: Option<String>,
}

/// One device on its way to its votes.
struct Session {
    device: DeviceId,
    identity: DeviceIdentity,
    ring: RingHash,
    /// How far the ring change had come: who has a say follows from it.
    term: Term,
    /// The peers that persisted the floor, and which formatting of them did.
    peers: BTreeMap<DeviceId, DeviceIdentity>,
    floor: Stamp,
    /// The highest promise that was met.
    promise: Stamp,
    /// Up to where this pass has come.
    after: Option<RegisterKey>,
    /// What this pass found missing below the floor.
    missing: u64,
    passes: u32,
    since_ms: u64,
    failures: u32,
}

impl SyncDevices {
    /// A worker over the index devices that `scope` looks after.
    pub fn new(cluster: impl Into<SharedCluster>, clock: Arc<dyn Clock>, scope: Scope) -> Self {
        let stamps = StampSource::new(clock.clone());
        Self {
            cluster: cluster.into(),
            clock,
            scope,
            stamps,
            session: None,
            founding_ms: 0,
            ready_since_ms: HashMap::new(),
            told: None,
        }
    }

    /// The same, leaving devices under the first ring to their founders for so long.
    #[must_use]
    pub fn after_founding(mut self, founding_ms: u64) -> Self {
        self.founding_ms = founding_ms;
        self
    }

    /// Whether a device that could be synced may be about to get its votes as a new one.
    fn is_being_founded(&mut self, cluster: &Cluster, who: (DeviceId, DeviceIdentity)) -> bool {
        let now_ms = self.clock.now_ms();
        let since_ms = *self.ready_since_ms.entry(who).or_insert(now_ms);
        let is_first_ring = cluster.index.identity().parent == [0; 32];
        is_first_ring && now_ms.saturating_sub(since_ms) < self.founding_ms
    }

    /// Begins with the first of `waiting` that has peers enough.
    async fn begin(
        &mut self,
        cluster: &Cluster,
        waiting: &[DeviceId],
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<Session> {
        let mut reason = None;
        for device in waiting {
            match self.begin_with(cluster, *device, statuses).await {
                Ok(session) => return Ok(session),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        Err(reason.unwrap_or_else(|| Error::unavailable("no device waits")))
    }

    async fn begin_with(
        &mut self,
        cluster: &Cluster,
        device: DeviceId,
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Result<Session> {
        let voting = |id: &DeviceId| statuses.get(id).is_some_and(|status| status.voting);
        cluster.named()?;
        let term = cluster.term.get();
        let voters = peers_of(cluster, device, term).into_iter().filter(voting).collect();
        check_coverage(cluster, device, term, &voters)?;
        let identity = |id: &DeviceId| statuses.get(id).map(|status| (*id, status.identity));
        let own = identity(&device)
            .ok_or_else(|| Error::unavailable(format!("device {device} does not answer")))?;
        if self.is_being_founded(cluster, own) {
            return Err(Error::unavailable(format!(
                "device {device} has no vote yet, and may be about to get it as a new one"
            )));
        }
        let floor = floor_at(self.clock.now_ms());
        let raised = voters.iter().map(|peer| async move {
            in_time(cluster.node(*peer)?.raise_floor(*peer, floor)).await.map(|()| *peer)
        });
        let raised: BTreeSet<DeviceId> = join_all(raised).await.into_iter().flatten().collect();
        check_coverage(cluster, device, term, &raised)?;
        copy_fences(cluster, device, &raised).await?;
        tracing::info!(%device, peers = raised.len(), "a device without votes is being synced");
        Ok(Session {
            device,
            identity: own.1,
            ring: cluster.index.hash(),
            term,
            peers: raised.iter().filter_map(identity).collect(),
            floor,
            promise: floor,
            after: None,
            missing: 0,
            passes: 0,
            since_ms: self.clock.now_ms(),
            failures: 0,
        })
    }

    /// One page, and what is to be done when it was the last of a pass: whether the device has its
    /// votes now, and how many registers were looked at.
    async fn go_on(&self, cluster: &Cluster, session: &mut Session) -> Result<(bool, u64)> {
        let copied = session.copy_page(cluster, &self.stamps).await?;
        let items = copied.items;
        session.missing += copied.missing;
        session.promise = session.promise.max(copied.promise);
        if session.after.is_some() {
            return Ok((false, items));
        }
        session.passes += 1;
        if std::mem::take(&mut session.missing) > 0 {
            return Ok((false, items));
        }
        session.end(cluster).await?;
        tracing::info!(device = %session.device, passes = session.passes, "a device has synced and votes again");
        Ok((true, items))
    }

    fn tell(&mut self, error: &Error) {
        let reason = error.to_string();
        if self.told.as_ref() != Some(&reason) {
            tracing::warn!(%error, "a device stays without votes for now");
            self.told = Some(reason);
        }
    }
}

impl Session {
    /// Copies what is missing of the next page.
    async fn copy_page(&mut self, cluster: &Cluster, stamps: &StampSource) -> Result<Copied> {
        let sources: Vec<DeviceId> = self.peers.keys().copied().collect();
        let (after, read_ms) = (self.after.as_ref(), stamps.now_ms());
        let asked = sources.iter().chain([&self.device]).map(|device| async move {
            let node = cluster.node(*device)?;
            let page = in_time(node.registers(*device, after, PAGE)).await?;
            Ok::<_, Error>((*device, page))
        });
        let belongs = |key: &RegisterKey| {
            let sets = cluster.index.sets(cluster.index.partition(key.placement()), self.term);
            sets.contains(self.device)
        };
        let page = if sources.is_empty() {
            Page::merge(read_ms, Vec::new(), belongs)
        } else {
            Page::merge(read_ms, try_join_all(asked).await?, belongs)
        };
        let copying = Copying {
            cluster,
            stamps,
            device: self.device,
            sources: &sources,
            fresh_from: Some(self.floor),
            above: self.promise,
        };
        let copied = copying.page(&page).await?;
        self.after = page.horizon;
        Ok(copied)
    }

    /// Whether it is still about the same device, peers, ring and term.
    fn stands(&self, cluster: &Cluster, statuses: &HashMap<DeviceId, DeviceStatus>) -> bool {
        let same = |id: &DeviceId, identity: &DeviceIdentity, voting: bool| {
            statuses
                .get(id)
                .is_none_or(|status| status.identity == *identity && status.voting == voting)
        };
        cluster.index.hash() == self.ring
            && cluster.term.get() == self.term
            && same(&self.device, &self.identity, false)
            && self.peers.iter().all(|(peer, identity)| same(peer, identity, true))
    }

    /// Gives the device its votes, if everybody whom it learned from still remembers.
    async fn end(&self, cluster: &Cluster) -> Result<()> {
        copy_fences(cluster, self.device, self.peers.keys()).await?;
        let statuses = cluster.statuses().await;
        let everyone = cluster.index_devices();
        let mut needed: Vec<&DeviceId> = self.peers.keys().chain([&self.device]).collect();
        if self.peers.is_empty() {
            // One silent device may know that a change has begun in which this one had a say.
            needed.extend(&everyone);
        }
        let all_answer = needed.iter().all(|id| statuses.contains_key(id));
        if !all_answer || !self.stands(cluster, &statuses) {
            return Err(Error::unavailable(if self.peers.is_empty() {
                "a new device waits for its vote until every device of the index ring answers"
            } else {
                "a device that took part in a sync is gone or forgot"
            }));
        }
        let node = cluster.node(self.device)?;
        if !self.peers.is_empty() {
            let floor = self.floor.max(self.promise);
            in_time(node.raise_floor(self.device, floor)).await?;
        }
        if self.term > Term::NONE {
            in_time(node.raise_term(self.device, self.term)).await?;
        }
        in_time(node.set_voting(self.device, true)).await
    }
}

/// Above every stamp that anybody may have been promised by now.
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

    async fn step(&mut self) -> Result<Progress> {
        let cluster = self.cluster.get();
        let statuses = cluster.statuses().await;
        let lacks = |id: &DeviceId| statuses.get(id).is_some_and(|status| !status.voting);
        let waiting: Vec<DeviceId> =
            cluster.index_devices_of(&self.scope).into_iter().filter(lacks).collect();
        let mut progress = Progress { backlog: waiting.len() as u64, ..Progress::default() };
        self.session.take_if(|session| !session.stands(&cluster, &statuses));
        let session = match self.session.take() {
            Some(session) => Ok(session),
            None if waiting.is_empty() => {
                self.ready_since_ms.clear();
                return Ok(Progress { idle: true, ..progress });
            }
            None => self.begin(&cluster, &waiting, &statuses).await,
        };
        let outcome = match session {
            Err(error) => Err(error),
            Ok(mut session) => match self.go_on(&cluster, &mut session).await {
                Ok((true, items)) => Ok((1, items)),
                Ok((false, items)) => {
                    session.failures = 0;
                    self.session = Some(session);
                    Ok((0, items))
                }
                Err(error) => {
                    session.failures += 1;
                    self.session = Some(session).filter(|it| it.failures < FAILURES_MAX);
                    Err(error)
                }
            },
        };
        match outcome {
            Ok((done, items)) => {
                self.told = None;
                (progress.items, progress.done) = (items, done);
                progress.backlog -= done.min(progress.backlog);
            }
            Err(error) => {
                self.tell(&error);
                (progress.kept, progress.idle) = (1, true);
            }
        }
        let now_ms = self.clock.now_ms();
        let since = self.session.as_ref().map(|session| session.since_ms);
        progress.oldest_age_ms = since.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

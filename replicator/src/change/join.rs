//! Joining: a new holder copies the registers that move to it, while old and new holders decide
//! together (rule P2).
//!
//! ```text
//! a quorum of both sets knows the term ──▶ walk each partition at the old holders that knew it
//!        ──▶ fences ──▶ the device's own floor ──▶ joined
//! ```
//!
//! The choice of sources ensures that nothing is missed. An old holder that doesn't know the term
//! yet may still accept a write of the old holders alone. But a quorum of them needs a member that
//! accepted the write before it recorded the term. So the sources are devices that knew the term
//! before the walk began, a quorum of the old set. Their merge contains everything that the old set
//! decided alone. Later decisions are on a quorum of the new set already.
//!
//! The replaced device may have made promises that no device of a later quorum knows, even for
//! empty registers. So the new holder makes equal promises before it has joined. Its floor lies
//! ahead of the clock by the maximum clock skew, and above each promise found. The floor comes
//! last: before it, old orders must still be accepted.
//!
//! Sums tell where the device lacks something, and where its sources agree; there one of them is
//! read. Sources that agreed go on from there, so one of them has all that was decided before. A
//! register that may have changed since is read from all of them, because its newest write may be
//! undecided.
//!
//! The position is only in memory: a walk that begins anew reads sums, and registers only where the
//! device lacks some.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use martlet_protocol::backend::{DeviceCondition, DeviceStatus};
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::{
    BackendExt, DeviceId, DeviceIdentity, Error, Partition, Phase, Result, Stamp, StampSource, Term,
};
use martlet_ring::RingHash;

use super::moves::PlannedMoves;
use super::plan::sources_of;
use crate::cluster::{StepTopology, in_time};
use crate::copying::ranges::{CopyRange, PARTITIONS, SourcedSpan, differing, span_of};
use crate::copying::{PAGE, RegisterCopy};
use crate::sync::{bring_fences, copy_fences, floor_at};

/// Maximum number of pages in a step, because small ranges have short pages.
const PAGES: u32 = 64;
/// Registers copied by a step, for each node, and at most: each step asks every node for its state.
const STEP_A_NODE: usize = 64;
const STEP_MAX: usize = 8192;
/// Age in milliseconds from which on a write is refused first-hand, with a margin.
const YOUNG_MS: u64 = FIRST_HAND_AGE_MS_MAX + 2 * CLOCK_SKEW_MS_MAX;

/// A device that is joining.
pub(super) struct JoiningDevice {
    device: DeviceId,
    identity: DeviceIdentity,
    ring: RingHash,
    change: u64,
    /// Partitions that move to the device and were not compared yet.
    left: Vec<Partition>,
    /// Ranges in which the device differs, not yet copied.
    ranges: VecDeque<CopyRange>,
    /// Sources, with their identities at the time they knew the term.
    sources: BTreeMap<DeviceId, DeviceIdentity>,
    /// True if the device has received the fences of its sources.
    is_fenced: bool,
    /// Highest promise found.
    promise: Stamp,
    /// Number of consecutive failed pages.
    pub(super) failures: u32,
    pub(super) since_ms: u64,
    brought: u64,
}

impl JoiningDevice {
    /// Begins with a device. `Unavailable` if the device has no vote, or its sources don't know the
    /// term.
    pub(super) fn begin(
        moves: &PlannedMoves<'_>,
        device: DeviceId,
        statuses: &HashMap<DeviceId, DeviceStatus>,
        now_ms: u64,
    ) -> Result<Self> {
        let own = statuses.get(&device).filter(|status| status.voting);
        let own = own.ok_or_else(|| {
            Error::unavailable(format!("device {device} must join and has no vote yet"))
        })?;
        let ring = moves.ring();
        let joint = Term::of(ring.change(), Phase::Joint);
        let mut left = moves.moving_to(device).to_vec();
        let mut all = BTreeSet::new();
        for partition in &left {
            let sources = sources_of(&ring.sets(*partition, joint), joint, statuses);
            all.extend(sources.ok_or_else(|| {
                Error::unavailable(format!(
                    "too few holders of partition {}, which moves to device {device}, answer",
                    partition.0
                ))
            })?);
        }
        left.reverse();
        tracing::info!(%device, partitions = left.len(), change = ring.change(), "copying moved \
                                                                                  registers to a \
                                                                                  device");
        Ok(Self {
            device,
            identity: own.identity,
            ring: ring.hash(),
            change: ring.change(),
            left,
            ranges: VecDeque::new(),
            sources: all.into_iter().map(|id| (id, statuses[&id].identity)).collect(),
            is_fenced: false,
            promise: Stamp::ZERO,
            failures: 0,
            since_ms: now_ms,
            brought: 0,
        })
    }

    /// Device that is joining.
    pub(super) fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns true if device, sources, ring and phase are unchanged.
    pub(super) fn is_unchanged(
        &self,
        cluster: &StepTopology,
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> bool {
        let same = |(id, identity): (&DeviceId, &DeviceIdentity)| {
            statuses.get(id).is_none_or(|status| status.identity == *identity && status.voting)
        };
        cluster.index().hash() == self.ring
            && cluster.term() == Term::of(self.change, Phase::Joint)
            && self.sources.iter().chain([(&self.device, &self.identity)]).all(same)
    }

    /// Copies some pages, or ends. Returns true at the end, and the number of registers visited.
    pub(super) async fn resume(
        &mut self,
        cluster: &StepTopology,
        stamps: &StampSource,
    ) -> Result<(bool, u64)> {
        if !self.is_fenced {
            // All sources know the term of the joint phase. So each fence that ended before this term is on
            // one of them, and each later one needs a quorum of the new holders too (rule M2).
            let peers = self.sources.keys();
            bring_fences(cluster, self.device, self.identity, peers, || stamps.now_ms()).await?;
            self.is_fenced = true;
        }
        let most = (STEP_A_NODE * cluster.index_nodes()).clamp(PAGE, STEP_MAX) as u64;
        let (mut items, mut pages) = (0, 0);
        while self.compare(cluster).await? {
            if pages >= PAGES || items >= most {
                return Ok((false, items));
            }
            items += self.page(cluster, stamps).await?;
            (self.failures, pages) = (0, pages + 1);
        }
        self.end(cluster, stamps).await?;
        Ok((true, items))
    }

    /// Finds the next range in which the device differs. Returns false at the end.
    async fn compare(&mut self, cluster: &StepTopology) -> Result<bool> {
        while self.ranges.is_empty() && !self.left.is_empty() {
            let from = self.left.len().saturating_sub(PARTITIONS);
            let (index, joint) = (cluster.index(), Term::of(self.change, Phase::Joint));
            let sourced = |partition: &Partition| {
                let sets = index.sets(*partition, joint);
                let sources = sets.set(0).filter(|id| self.sources.contains_key(id));
                SourcedSpan { span: span_of(index, *partition), sources: sources.collect() }
            };
            let spans: Vec<SourcedSpan> = self.left[from..].iter().map(sourced).collect();
            self.ranges = differing(cluster, self.device, &spans).await?.into();
            self.left.truncate(from);
        }
        Ok(!self.ranges.is_empty())
    }

    /// Copies a page; returns the number of registers visited.
    async fn page(&mut self, cluster: &StepTopology, stamps: &StampSource) -> Result<u64> {
        let Some(range) = self.ranges.front_mut() else { return Ok(0) };
        let read_ms = stamps.now_ms();
        let page = range.page(cluster, self.device, read_ms).await?;
        let copying = RegisterCopy {
            cluster,
            stamps,
            device: self.device,
            sources: &range.sources,
            read_from: range.read_from(),
            changing_from: Some(Stamp::at_ms(read_ms.saturating_sub(YOUNG_MS))),
            fresh_from: None,
            above: self.promise,
        };
        let copied = copying.page(&page).await?;
        self.promise = self.promise.max(copied.promise);
        self.brought += copied.brought;
        if !range.advance(&page) {
            self.ranges.pop_front();
        }
        Ok(copied.items)
    }

    /// Records that the device has joined, if no source has lost its votes or identity. Both times are taken
    /// after the fences, which may take minutes. With an earlier time the calls would be refused as late, or a
    /// device that is behind would accept them for longer. The floor would lie below what the replaced device
    /// has promised meanwhile.
    async fn end(&self, cluster: &StepTopology, stamps: &StampSource) -> Result<()> {
        copy_fences(cluster, self.device, self.sources.keys()).await?;
        let condition = DeviceCondition::at(self.identity, stamps.now_ms());
        let statuses = cluster.statuses().await;
        let all_answer =
            self.sources.keys().chain([&self.device]).all(|id| statuses.contains_key(id));
        if !all_answer || !self.is_unchanged(cluster, &statuses) {
            return Err(Error::unavailable("a device in a move is gone or lost its state"));
        }
        let node = cluster.node(self.device)?;
        let floor = floor_at(stamps.now_ms()).max(self.promise);
        in_time(node.raise_floor_of(self.device, condition, floor)).await?;
        in_time(node.set_joined_of(self.device, condition, self.change)).await?;
        tracing::info!(
            device = %self.device, change = self.change, registers = self.brought,
            "a device holds its moved registers"
        );
        Ok(())
    }
}

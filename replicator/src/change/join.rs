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
//! The position is only in memory: a new walk finds most registers already copied.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::try_join_all;
use martlet_protocol::backend::{DeviceStatus, Walk, Want};
use martlet_protocol::tree::Span;
use martlet_protocol::{
    BackendExt, DeviceId, DeviceIdentity, Error, Partition, Phase, RegisterKey, Result, Stamp,
    StampSource, Term,
};
use martlet_ring::{Ring, RingHash};

use super::plan::{moving_to, sources_of};
use crate::cluster::{StepTopology, in_time};
use crate::copying::{PAGE, RegisterCopy, RegisterPage};
use crate::sync::{copy_fences, floor_at};

/// Maximum number of pages in a step, because small partitions have short pages.
const PAGES: u32 = 64;

/// A device that is joining.
pub(super) struct JoiningDevice {
    device: DeviceId,
    identity: DeviceIdentity,
    ring: RingHash,
    change: u64,
    /// Partitions that move to the device; the walk is in the last one.
    left: Vec<Partition>,
    /// Position in that partition.
    after: Option<RegisterKey>,
    /// Sources, with their identities at the time they knew the term.
    sources: BTreeMap<DeviceId, DeviceIdentity>,
    /// Highest promise found.
    promise: Stamp,
    /// Number of consecutive failed pages.
    pub(super) failures: u32,
    pub(super) since_ms: u64,
    brought: u64,
}

/// Returns the placements of a partition.
pub(super) fn span_of(ring: &Ring, partition: Partition) -> Span {
    let power = u32::from(ring.part_power());
    if power == 0 {
        return Span::ALL;
    }
    let first = u64::from(partition.0) << (64 - power);
    Span { first, last: first | (u64::MAX >> power) }
}

impl JoiningDevice {
    /// Begins with a device. `Unavailable` if the device has no vote, or its sources don't know the
    /// term.
    pub(super) fn begin(
        ring: &Ring,
        device: DeviceId,
        statuses: &HashMap<DeviceId, DeviceStatus>,
        now_ms: u64,
    ) -> Result<Self> {
        let own = statuses.get(&device).filter(|status| status.voting);
        let own = own.ok_or_else(|| {
            Error::unavailable(format!("device {device} must join and has no vote yet"))
        })?;
        let joint = Term::of(ring.change(), Phase::Joint);
        let mut left = moving_to(ring, device);
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
            after: None,
            sources: all.into_iter().map(|id| (id, statuses[&id].identity)).collect(),
            promise: Stamp::ZERO,
            failures: 0,
            since_ms: now_ms,
            brought: 0,
        })
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
        now_ms: u64,
    ) -> Result<(bool, u64)> {
        let (mut items, mut pages) = (0, 0);
        while let Some(partition) = self.left.last().copied() {
            if pages >= PAGES || items >= PAGE as u64 {
                return Ok((false, items));
            }
            items += self.page(cluster, stamps, partition).await?;
            (self.failures, pages) = (0, pages + 1);
        }
        self.end(cluster, now_ms).await?;
        Ok((true, items))
    }

    /// Copies a page; returns the number of registers visited.
    async fn page(
        &mut self,
        cluster: &StepTopology,
        stamps: &StampSource,
        partition: Partition,
    ) -> Result<u64> {
        let sets = cluster.index().sets(partition, Term::of(self.change, Phase::Joint));
        let sources: Vec<DeviceId> =
            sets.set(0).filter(|id| self.sources.contains_key(id)).collect();
        let span = span_of(cluster.index(), partition);
        let walk = &Walk { span, bin: None, want: Want::EntryAndInline };
        let (after, read_ms) = (self.after.as_ref(), stamps.now_ms());
        let queries = sources.iter().chain([&self.device]).map(|device| async move {
            let node = cluster.node(*device)?;
            Ok::<_, Error>((*device, in_time(node.walk(*device, walk, after, PAGE)).await?))
        });
        let pages = try_join_all(queries).await?;
        let page = RegisterPage::merge(read_ms, pages, |key| span.contains(key.placement()));
        let (device, sources) = (self.device, &sources[..]);
        let copying = RegisterCopy {
            cluster,
            stamps,
            device,
            sources,
            fresh_from: None,
            above: self.promise,
        };
        let copied = copying.page(&page).await?;
        self.promise = self.promise.max(copied.promise);
        self.brought += copied.brought;
        self.after = page.horizon;
        if self.after.is_none() {
            self.left.pop();
        }
        Ok(copied.items)
    }

    /// Records that the device has joined, if no source has lost its votes or identity.
    async fn end(&self, cluster: &StepTopology, now_ms: u64) -> Result<()> {
        copy_fences(cluster, self.device, self.sources.keys()).await?;
        let statuses = cluster.statuses().await;
        let all_answer =
            self.sources.keys().chain([&self.device]).all(|id| statuses.contains_key(id));
        if !all_answer || !self.is_unchanged(cluster, &statuses) {
            return Err(Error::unavailable("a device in a move is gone or lost its state"));
        }
        let node = cluster.node(self.device)?;
        in_time(node.raise_floor(self.device, floor_at(now_ms).max(self.promise))).await?;
        in_time(node.set_joined(self.device, self.change)).await?;
        tracing::info!(
            device = %self.device, change = self.change, registers = self.brought,
            "a device holds its moved registers"
        );
        Ok(())
    }
}

//! Joining: a new holder copies what moves to it while old and new holders decide together (rule P2).
//!
//! ```text
//! a quorum of both sets has heard ──▶ walk each partition at those of the old set that had heard
//!        ──▶ fences ──▶ the device's own floor ──▶ joined
//! ```
//!
//! Whom it copies from decides whether anything is missed. A write of the old holders alone may still
//! be taken by one of them that has not heard yet; but no quorum of them can take one any more without
//! one that took it before it heard. So the merge is made of devices that had heard before the walk
//! began, a quorum of the old set, and it contains whatever the old set decided by itself. What was
//! decided later is on a quorum of the new set already.
//!
//! The device takes the place of one that may have promised what no other device of a later quorum
//! knows of, in registers too that hold nothing. So it promises as much itself before it has joined: a
//! floor ahead of the clock by as much as a stamp may be, and above each promise that was met. The
//! floor comes last: until then old orders must still be taken.
//!
//! Where it stands is known to the process alone: begun anew, a walk finds most of it there already.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::try_join_all;
use martlet_protocol::backend::{DeviceStatus, Walk, Want};
use martlet_protocol::tree::Span;
use martlet_protocol::{
    DeviceId, DeviceIdentity, Error, Partition, Phase, RegisterKey, Result, Stamp, StampSource,
    Term,
};
use martlet_ring::{Ring, RingHash};

use super::plan::{moving_to, sources_of};
use crate::cluster::{Cluster, in_time};
use crate::copying::{Copying, PAGE, Page};
use crate::sync::{copy_fences, floor_at};

/// Most pages of a step: small partitions have little on each.
const PAGES: u32 = 64;

/// One device on its way to hold what moves to it.
pub(super) struct Joining {
    device: DeviceId,
    identity: DeviceIdentity,
    ring: RingHash,
    change: u64,
    /// The partitions that move to it, the last one first; the walk stands in the last.
    left: Vec<Partition>,
    /// Where in it.
    after: Option<RegisterKey>,
    /// Those that are copied from, and which formatting of them had heard.
    sources: BTreeMap<DeviceId, DeviceIdentity>,
    /// The highest promise that was met.
    promise: Stamp,
    /// Pages in a row that failed.
    pub(super) failures: u32,
    pub(super) since_ms: u64,
    brought: u64,
}

/// The placements of a partition.
pub(super) fn span_of(ring: &Ring, partition: Partition) -> Span {
    let power = u32::from(ring.part_power());
    if power == 0 {
        return Span::ALL;
    }
    let first = u64::from(partition.0) << (64 - power);
    Span { first, last: first | (u64::MAX >> power) }
}

impl Joining {
    /// Begins with a device, if those whom it must copy from have heard.
    pub(super) fn begin(
        ring: &Ring,
        device: DeviceId,
        statuses: &HashMap<DeviceId, DeviceStatus>,
        now_ms: u64,
    ) -> Result<Self> {
        let own = statuses.get(&device).filter(|status| status.voting);
        let own = own.ok_or_else(|| {
            Error::unavailable(format!("device {device} is to join and has no vote yet"))
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
        tracing::info!(%device, partitions = left.len(), change = ring.change(), "a device copies what moves to it");
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

    /// Whether it is still about the same device, sources, ring and phase.
    pub(super) fn stands(
        &self,
        cluster: &Cluster,
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> bool {
        let same = |(id, identity): (&DeviceId, &DeviceIdentity)| {
            statuses.get(id).is_none_or(|status| status.identity == *identity && status.voting)
        };
        cluster.index.hash() == self.ring
            && cluster.term.get() == Term::of(self.change, Phase::Joint)
            && self.sources.iter().chain([(&self.device, &self.identity)]).all(same)
    }

    /// Copies some pages, or ends; whether it has ended, and how many registers were looked at.
    pub(super) async fn go_on(
        &mut self,
        cluster: &Cluster,
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

    /// Copies a page; how many registers were looked at.
    async fn page(
        &mut self,
        cluster: &Cluster,
        stamps: &StampSource,
        partition: Partition,
    ) -> Result<u64> {
        let sets = cluster.index.sets(partition, Term::of(self.change, Phase::Joint));
        let sources: Vec<DeviceId> =
            sets.set(0).filter(|id| self.sources.contains_key(id)).collect();
        let span = span_of(&cluster.index, partition);
        let walk = &Walk { span, bin: None, want: Want::EntryAndInline };
        let (after, read_ms) = (self.after.as_ref(), stamps.now_ms());
        let asked = sources.iter().chain([&self.device]).map(|device| async move {
            let node = cluster.node(*device)?;
            Ok::<_, Error>((*device, in_time(node.walk(*device, walk, after, PAGE)).await?))
        });
        let pages = try_join_all(asked).await?;
        let page = Page::merge(read_ms, pages, |key| span.contains(key.placement()));
        let (device, sources) = (self.device, &sources[..]);
        let copying =
            Copying { cluster, stamps, device, sources, fresh_from: None, above: self.promise };
        let copied = copying.page(&page).await?;
        self.promise = self.promise.max(copied.promise);
        self.brought += copied.brought;
        self.after = page.horizon;
        if self.after.is_none() {
            self.left.pop();
        }
        Ok(copied.items)
    }

    /// Says that the device holds it all, if everybody whom it learned from still remembers.
    async fn end(&self, cluster: &Cluster, now_ms: u64) -> Result<()> {
        copy_fences(cluster, self.device, self.sources.keys()).await?;
        let statuses = cluster.statuses().await;
        let all_answer =
            self.sources.keys().chain([&self.device]).all(|id| statuses.contains_key(id));
        if !all_answer || !self.stands(cluster, &statuses) {
            return Err(Error::unavailable("a device that took part in a move is gone or forgot"));
        }
        let node = cluster.node(self.device)?;
        in_time(node.raise_floor(self.device, floor_at(now_ms).max(self.promise))).await?;
        in_time(node.set_joined(self.device, self.change)).await?;
        tracing::info!(device = %self.device, change = self.change, registers = self.brought, "a device holds what moved to it");
        Ok(())
    }
}

//! Ranges of registers in which a device differs from its sources, found by sums (rule H1).
//!
//! ```text
//! sums of partitions ── equal on all ──▶ nothing to read
//!        ├── equal on the sources, zero on the device ──▶ one source, the whole partition
//!        └── bins of the partition ── equal on the sources ──▶ one source, the bins that differ
//!                                  └── different ───────────▶ every source, the bins that differ
//! ```
//!
//! So what the device holds is the position of the work: a walk that begins anew reads sums, and
//! registers only where it had not been. Inline bytes come from one source.
//!
//! Sums leave out registers without an entry, whose promises a floor of the device covers, and
//! tombstones that may be collected: no device has anything older of these (rule T1).

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use martlet_protocol::backend::{RegisterView, Walk, Want};
use martlet_protocol::key::index_placement;
use martlet_protocol::tree::{BinKey, Span, Sum};
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, Error, Partition, RegisterKey, Result, Shard,
};
use martlet_ring::Ring;

use super::{PAGE, RegisterPage};
use crate::cluster::{StepTopology, in_time};

/// Partitions whose sums are compared at a time.
pub(crate) const PARTITIONS: usize = 256;
/// Bins requested at a time: at most those of a run.
const BINS_PAGE: usize = 1000;
/// A device reads a whole run to find one bin. If more bins than this differ, the run is walked
/// once.
const BINS_APART_MAX: usize = 4;

/// A partition that belongs on a device, with the devices that it is copied from.
#[derive(Clone, Debug)]
pub(crate) struct SourcedSpan {
    pub(crate) span: Span,
    pub(crate) sources: Vec<DeviceId>,
}

/// A range in which the device differs, and the position in it.
#[derive(Clone, Debug)]
pub(crate) struct CopyRange {
    walk: Walk,
    after: Option<RegisterKey>,
    pub(crate) sources: Vec<DeviceId>,
    /// True if the sources agreed about the range.
    agreed: bool,
}

/// Sums of some bins, of the device and of each source.
struct BinSums {
    mine: Sum,
    theirs: Vec<Sum>,
}

/// Returns the placements of a partition.
pub(crate) fn span_of(ring: &Ring, partition: Partition) -> Span {
    let power = u32::from(ring.part_power());
    if power == 0 {
        return Span::ALL;
    }
    let first = u64::from(partition.0) << (64 - power);
    Span { first, last: first | (u64::MAX >> power) }
}

/// Returns the ranges of `spans` in which `device` differs from its sources.
///
/// # Errors
/// If the device or any source does not answer.
pub(crate) async fn differing(
    cluster: &StepTopology,
    device: DeviceId,
    spans: &[SourcedSpan],
) -> Result<Vec<CopyRange>> {
    let mut asked: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
    for (at, sourced) in spans.iter().enumerate() {
        for from in sourced.sources.iter().chain([&device]) {
            asked.entry(*from).or_default().push(at);
        }
    }
    let queries = asked.into_iter().map(|(from, of)| async move {
        let wanted: Vec<Span> = of.iter().map(|at| spans[*at].span).collect();
        let sums = in_time(cluster.node(from)?.sums(from, &wanted)).await?;
        if sums.len() != wanted.len() {
            return Err(Error::internal(format!("device {from} left out sums")));
        }
        Ok((from, of.into_iter().zip(sums).collect::<BTreeMap<usize, Sum>>()))
    });
    let sums: BTreeMap<DeviceId, BTreeMap<usize, Sum>> =
        try_join_all(queries.collect::<Vec<_>>()).await?.into_iter().collect();
    let mut ranges = Vec::new();
    for (at, SourcedSpan { span, sources }) in spans.iter().enumerate() {
        let of = |from: &DeviceId| sums.get(from).and_then(|sums| sums.get(&at)).copied();
        let mine = of(&device).unwrap_or_default();
        let theirs = sources.iter().map(|from| of(from).unwrap_or_default()).collect();
        let sums = BinSums { mine, theirs };
        if sums.are_all_equal() {
            continue;
        }
        if sums.do_sources_agree() && mine == Sum::default() {
            let walk = Walk { span: *span, bin: None, want: Want::EntryAndInline };
            ranges.push(CopyRange { walk, after: None, sources: sources.clone(), agreed: true });
            continue;
        }
        ranges.extend(differing_bins(cluster, device, *span, sources).await?);
    }
    Ok(ranges)
}

/// Returns the ranges of a span whose bins differ.
async fn differing_bins(
    cluster: &StepTopology,
    device: DeviceId,
    span: Span,
    sources: &[DeviceId],
) -> Result<Vec<CopyRange>> {
    let all = sources.iter().chain([&device]).map(|from| bins_of(cluster, *from, span));
    let mut all = try_join_all(all.collect::<Vec<_>>()).await?;
    let mine = all.pop().unwrap_or_default();
    let bins: BTreeSet<BinKey> =
        all.iter().chain([&mine]).flat_map(BTreeMap::keys).copied().collect();
    let mut runs: BTreeMap<(BucketId, Shard), Vec<(BinKey, bool)>> = BTreeMap::new();
    for bin in bins {
        let of = |sums: &BTreeMap<BinKey, Sum>| sums.get(&bin).copied().unwrap_or_default();
        let sums = BinSums { mine: of(&mine), theirs: all.iter().map(of).collect() };
        if !sums.are_all_equal() {
            let apart = runs.entry((bin.bucket, bin.shard)).or_default();
            apart.push((bin, sums.do_sources_agree()));
        }
    }
    let mut ranges = Vec::new();
    for ((bucket, shard), apart) in runs {
        let placement = index_placement(bucket, shard);
        let span = Span { first: placement, last: placement };
        let mut range = |bin, agreed| {
            let walk = Walk { span, bin, want: Want::EntryAndInline };
            ranges.push(CopyRange { walk, after: None, sources: sources.to_vec(), agreed });
        };
        if apart.len() > BINS_APART_MAX {
            range(None, apart.iter().all(|(_, agreed)| *agreed));
        } else {
            for (bin, agreed) in apart {
                range(Some(bin), agreed);
            }
        }
    }
    Ok(ranges)
}

async fn bins_of(
    cluster: &StepTopology,
    from: DeviceId,
    span: Span,
) -> Result<BTreeMap<BinKey, Sum>> {
    let (mut all, mut after) = (BTreeMap::new(), None);
    loop {
        let page = in_time(cluster.node(from)?.bins(from, span, after, BINS_PAGE)).await?;
        after = page.last().map(|(bin, _)| *bin);
        let is_last = page.len() < BINS_PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

impl BinSums {
    fn do_sources_agree(&self) -> bool {
        self.theirs.windows(2).all(|two| two[0] == two[1])
    }

    fn are_all_equal(&self) -> bool {
        self.theirs.iter().all(|sum| *sum == self.mine)
    }
}

impl CopyRange {
    /// Sources whose pages are read.
    pub(crate) fn read_from(&self) -> &[DeviceId] {
        if self.agreed { &self.sources[..self.sources.len().min(1)] } else { &self.sources }
    }

    /// Reads the next page of the range, from its sources and from the device.
    pub(crate) async fn page(
        &self,
        cluster: &StepTopology,
        device: DeviceId,
        read_ms: u64,
    ) -> Result<RegisterPage> {
        let first = self.read_from().first().copied();
        let queries = self.read_from().iter().copied().chain([device]).map(|from| async move {
            let want = if Some(from) == first { Want::EntryAndInline } else { Want::Entry };
            let walk = Walk { want, ..self.walk };
            let node = cluster.node(from)?;
            let page = in_time(node.walk(from, &walk, self.after.as_ref(), PAGE)).await?;
            Ok::<(DeviceId, Vec<(RegisterKey, RegisterView)>), Error>((from, page))
        });
        let pages = try_join_all(queries.collect::<Vec<_>>()).await?;
        let span = self.walk.span;
        Ok(RegisterPage::merge(read_ms, pages, |key| span.contains(key.placement())))
    }

    /// Continues after a page; returns false if it was the last.
    pub(crate) fn advance(&mut self, page: &RegisterPage) -> bool {
        self.after.clone_from(&page.horizon);
        self.after.is_some()
    }
}

//! Search for registers in which two devices differ: bins, then walks, a page at a time.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join;
use martlet_protocol::backend::{RegisterView, Walk, Want};
use martlet_protocol::key::index_placement;
use martlet_protocol::tree::{BinKey, Span, Sum};
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, Partition, RegisterKey, Result, Shard, Stamp,
};

use super::failures::DeviceFailure;
use crate::cluster::{StepTopology, in_time};

/// Bins requested at a time: those of a run.
const BINS_PAGE: usize = 1000;
/// Registers requested at a time.
const WALK_PAGE: usize = 500;
/// A device reads a whole run to find one bin. If more bins than this differ, the run is walked
/// once.
const BINS_APART_MAX: usize = 4;

/// Pending work.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// A range in which two devices differ.
    Pair { device: DeviceId, peer: DeviceId, look: ComparisonRange },
    /// Registers of a partition on a device that is not a member of it.
    Strays { device: DeviceId, partition: Partition, after: Option<RegisterKey> },
}

impl Task {
    /// Creates the comparison of a whole span.
    pub(super) fn bins(device: DeviceId, peer: DeviceId, span: Span) -> Self {
        Self::Pair { device, peer, look: ComparisonRange::Bins { span, after: None } }
    }

    /// Creates the work on strays of a whole partition.
    pub(super) fn misplaced(device: DeviceId, partition: Partition) -> Self {
        Self::Strays { device, partition, after: None }
    }

    /// Device that the task belongs to.
    pub(super) fn device(&self) -> DeviceId {
        match self {
            Self::Pair { device, .. } | Self::Strays { device, .. } => *device,
        }
    }

    /// The other device that the task needs, if it is a single one.
    pub(super) fn peer(&self) -> Option<DeviceId> {
        match self {
            Self::Pair { peer, .. } => Some(*peer),
            Self::Strays { .. } => None,
        }
    }
}

/// Range of a comparison.
#[derive(Clone, Debug)]
pub(super) enum ComparisonRange {
    /// The bins of a span, above `after`.
    Bins { span: Span, after: Option<BinKey> },
    /// The registers of a walk, above `after`.
    Walk { walk: Walk, after: Option<RegisterKey> },
}

/// A register in which two devices differ, with their orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) key: RegisterKey,
    pub(super) mine: Option<Stamp>,
    pub(super) theirs: Option<Stamp>,
}

impl ComparisonRange {
    /// Compares one page. Returns the registers in which the devices differ, and the ranges to
    /// compare next.
    ///
    /// # Errors
    /// Errors of either device, with its id; those of `device` before those of `peer`.
    pub(super) async fn resume(
        self,
        cluster: &StepTopology,
        device: DeviceId,
        peer: DeviceId,
    ) -> Result<(Vec<Difference>, Vec<Self>), DeviceFailure> {
        match self {
            Self::Bins { span, after } => {
                let mine = bins(cluster, device, span, after);
                let (mine, theirs) = join(mine, bins(cluster, peer, span, after)).await;
                let mine = mine.map_err(DeviceFailure::by(device))?;
                let theirs = theirs.map_err(DeviceFailure::by(peer))?;
                let (apart, horizon) = apart(mine, theirs, BINS_PAGE);
                let mut next = walks(apart.into_keys().map(|(_, bin)| bin));
                next.extend(horizon.map(|(_, bin)| Self::Bins { span, after: Some(bin) }));
                Ok((Vec::new(), next))
            }
            Self::Walk { walk, after } => {
                let mine = registers(cluster, device, &walk, after.as_ref());
                let theirs = registers(cluster, peer, &walk, after.as_ref());
                let (mine, theirs) = join(mine, theirs).await;
                let mine = mine.map_err(DeviceFailure::by(device))?;
                let theirs = theirs.map_err(DeviceFailure::by(peer))?;
                let (apart, horizon) = apart(mine, theirs, WALK_PAGE);
                let found = apart.into_iter().map(|(key, (mine, theirs))| Difference {
                    key,
                    mine: mine.map(|held| held.0),
                    theirs: theirs.map(|held| held.0),
                });
                let next = horizon.map(|after| Self::Walk { walk, after: Some(after) });
                Ok((found.collect(), next.into_iter().collect()))
            }
        }
    }
}

/// Returns the differences between two sorted pages, up to the lower end of the full pages. Also
/// returns that end, if more pages may follow.
#[expect(clippy::type_complexity, reason = "differences on both sides")]
fn apart<K: Ord + Clone, V: PartialEq>(
    mine: Vec<(K, V)>,
    theirs: Vec<(K, V)>,
    limit: usize,
) -> (BTreeMap<K, (Option<V>, Option<V>)>, Option<K>) {
    let full = [&mine, &theirs].into_iter().filter(|page| page.len() >= limit);
    let horizon = full.filter_map(|page| page.last()).map(|(key, _)| key).min().cloned();
    let within = |key: &K| horizon.as_ref().is_none_or(|horizon| key <= horizon);
    let mut sides: BTreeMap<K, (Option<V>, Option<V>)> = BTreeMap::new();
    for (key, value) in mine.into_iter().filter(|(key, _)| within(key)) {
        sides.insert(key, (Some(value), None));
    }
    for (key, value) in theirs.into_iter().filter(|(key, _)| within(key)) {
        sides.entry(key).or_default().1 = Some(value);
    }
    sides.retain(|_, (mine, theirs)| mine != theirs);
    (sides, horizon)
}

/// Returns the best walks for differing bins.
fn walks(bins: impl Iterator<Item = BinKey>) -> Vec<ComparisonRange> {
    let mut runs: BTreeMap<(BucketId, Shard), BTreeSet<BinKey>> = BTreeMap::new();
    for bin in bins {
        runs.entry((bin.bucket, bin.shard)).or_default().insert(bin);
    }
    let mut looks = Vec::new();
    for ((bucket, shard), bins) in runs {
        let placement = index_placement(bucket, shard);
        let span = Span { first: placement, last: placement };
        let walk = |bin| Walk { span, bin, want: Want::Entry };
        let whole = bins.len() > BINS_APART_MAX;
        let ways: Vec<_> = if whole { vec![None] } else { bins.into_iter().map(Some).collect() };
        looks.extend(
            ways.into_iter().map(|bin| ComparisonRange::Walk { walk: walk(bin), after: None }),
        );
    }
    looks
}

async fn bins(
    cluster: &StepTopology,
    device: DeviceId,
    span: Span,
    after: Option<BinKey>,
) -> Result<Vec<((u64, BinKey), Sum)>> {
    let bins = in_time(cluster.node(device)?.bins(device, span, after, BINS_PAGE)).await?;
    Ok(bins.into_iter().map(|(bin, sum)| ((bin.placement(), bin), sum)).collect())
}

/// Returns order and write id of a device's registers.
async fn registers(
    cluster: &StepTopology,
    device: DeviceId,
    walk: &Walk,
    after: Option<&RegisterKey>,
) -> Result<Vec<(RegisterKey, (Stamp, martlet_protocol::WriteId))>> {
    let page = in_time(cluster.node(device)?.walk(device, walk, after, WALK_PAGE)).await?;
    let held = |(key, view): (RegisterKey, RegisterView)| {
        view.entry.map(|entry| (key, (entry.order, entry.write_id)))
    };
    Ok(page.into_iter().filter_map(held).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_compared_up_to_the_lower_end_of_the_full_ones() {
        let page = |keys: &[u32]| keys.iter().map(|key| (*key, *key)).collect::<Vec<_>>();
        let (sides, horizon) = apart(page(&[1, 2, 5]), page(&[2, 3]), 3);
        assert_eq!(horizon, Some(5));
        assert_eq!(sides.into_keys().collect::<Vec<_>>(), [1, 3, 5]);
        // The other page ends at 4: keys above may be on its next page.
        let (sides, horizon) = apart(page(&[1, 2, 9]), page(&[2, 3, 4]), 3);
        assert_eq!(horizon, Some(4));
        assert_eq!(sides.into_keys().collect::<Vec<_>>(), [1, 3, 4]);
        let (sides, horizon) = apart(page(&[1, 2]), page(&[1, 2]), 3);
        assert!(sides.is_empty() && horizon.is_none());
        let (sides, _) = apart(vec![(1, 'a')], vec![(1, 'b')], 3);
        assert_eq!(sides[&1], (Some('a'), Some('b')));
    }

    #[test]
    fn few_bins_are_walked_one_by_one_and_many_as_their_run() {
        let bucket = BucketId([3; 16]);
        let bin = |shard, bin| BinKey {
            bucket,
            shard: Shard(shard),
            bin: martlet_protocol::tree::Bin(bin),
        };
        let few = (0..4).map(|at| bin(1, at));
        let many = (0..5).map(|at| bin(2, at));
        let looks = walks(few.chain(many));
        let mut seen = Vec::new();
        for look in looks {
            let ComparisonRange::Walk { walk, after: None } = look else { panic!("{look:?}") };
            assert_eq!(walk.span.first, walk.span.last);
            seen.push((walk.span.first, walk.bin.map(|bin| bin.bin.0)));
        }
        let (one, two) = (index_placement(bucket, Shard(1)), index_placement(bucket, Shard(2)));
        let expected: Vec<_> = (0..4).map(|at| (one, Some(at))).chain([(two, None)]).collect();
        assert_eq!(seen, expected);
    }
}

//! Bins in which a device's extents differ from those of the other holders (rule X7).
//!
//! ```text
//! own sums ──for each bin and class──▶ nothing to do │ visit │ compare with these devices
//!                                                                 │ one call for each of them
//!            bins to visit ◀── sums that differ ◀─────────────────┘
//! ```
//!
//! Doubt visits: bins of unknown policies and of extents away from home, bins that are wider than
//! partitions, and peers that don't return sums. A silent peer doesn't: its presence would be
//! unknown too, and nothing is done for it until it answers. Nor does a peer that counts its extents
//! after a crash: visits would walk over all extents of the partitions that it shares.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use martlet_protocol::extent_sums::{ExtentBin, ExtentClass, ExtentSum, PolicySums, bin_span};
use martlet_protocol::tree::Span;
use martlet_protocol::{BackendExt, DeviceId, Error, ErrorKind, Partition, PolicyId, Result};
use martlet_ring::Ring;

use crate::cluster::{StepTopology, in_time};
use crate::pages::visits::Visits;

/// Peers requested at a time. A reply has at most 65,536 sums, about 1 MiB.
const PEERS_AT_ONCE: usize = 4;
/// Spans in one request.
const SPANS_MAX: usize = 4096;

/// Treatment of one bin and class of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The worker has nothing to do with these extents.
    Pass,
    /// The extents are visited.
    Visit,
    /// The extents are visited if their sum differs from a device's sum of a class.
    With(Vec<(DeviceId, ExtentClass)>),
}

/// Extents of a class in one partition, on one device.
#[derive(Clone, Copy)]
pub(crate) struct ClassHome<'a> {
    pub(crate) ring: &'a Ring,
    /// Primaries of the partition, in the order of the replicas.
    pub(crate) primaries: &'a [DeviceId],
    pub(crate) class: ExtentClass,
    pub(crate) device: DeviceId,
}

/// Bin of a device, and the class of a peer that should have an equal sum.
#[derive(Clone, Copy)]
struct Pair {
    mine: ExtentBin,
    theirs: ExtentClass,
}

/// Returns the bins of a device that differ, as `compare` selects them.
///
/// # Errors
/// If the device itself is silent, or counts its extents.
pub(crate) async fn differing(
    cluster: &StepTopology,
    device: DeviceId,
    compare: impl Fn(ClassHome<'_>) -> Comparison + Send,
) -> Result<Visits> {
    let asked = in_time(cluster.node(device)?.extent_sums(device, None, &[Span::ALL])).await;
    let own = match asked {
        Ok(own) => own,
        Err(error) => {
            if is_silent(cluster, device, &error).await {
                return Err(error);
            }
            tracing::debug!(%device, %error, "visiting all extents of a device without sums");
            return Ok(Visits::everything());
        }
    };
    let mut visits = Visits::default();
    for of in own {
        let bins = match cluster.data(of.policy) {
            Ok(ring) if ring.part_power() <= of.power => {
                let (bins, pairs) = select(ring, device, &of, &compare);
                let (bins, uncompared) = compare_pairs(cluster, ring, &of, bins, pairs).await;
                visits.uncompared += uncompared;
                bins
            }
            _ => of.sums.iter().map(|(at, _)| at.bin).collect(),
        };
        visits.add(&of, &bins);
    }
    Ok(visits)
}

/// Returns the bins to visit in any case, and the bins to compare with each peer.
fn select(
    ring: &Ring,
    device: DeviceId,
    of: &PolicySums,
    compare: &impl Fn(ClassHome<'_>) -> Comparison,
) -> (BTreeSet<u32>, BTreeMap<DeviceId, Vec<Pair>>) {
    let (mut bins, mut pairs) = (BTreeSet::new(), BTreeMap::<DeviceId, Vec<Pair>>::new());
    let mut known: Option<(Partition, Vec<DeviceId>)> = None;
    for (at, _) in &of.sums {
        let partition = partition_of(at.bin, of.power, ring);
        let primaries = match known.take() {
            Some((same, primaries)) if same == partition => primaries,
            _ => ring.primaries(partition).collect(),
        };
        match compare(ClassHome { ring, primaries: &primaries, class: at.class, device }) {
            Comparison::Pass => {}
            Comparison::Visit => {
                bins.insert(at.bin);
            }
            Comparison::With(peers) => {
                for (peer, theirs) in peers {
                    pairs.entry(peer).or_default().push(Pair { mine: *at, theirs });
                }
            }
        }
        known = Some((partition, primaries));
    }
    (bins, pairs)
}

fn partition_of(bin: u32, power: u8, ring: &Ring) -> Partition {
    ring.partition(bin_span(bin, power).first)
}

/// Adds the bins whose sums differ from those of a peer. Returns the number of peers that count their
/// extents, too.
async fn compare_pairs(
    cluster: &StepTopology,
    ring: &Ring,
    of: &PolicySums,
    mut bins: BTreeSet<u32>,
    pairs: BTreeMap<DeviceId, Vec<Pair>>,
) -> (BTreeSet<u32>, u64) {
    let mut uncompared = 0;
    let requests = pairs.into_iter().map(|(peer, pairs)| async move {
        let spans = spans_of(ring, of, &pairs);
        (sums_of(cluster, peer, of.policy, &spans).await, peer, pairs)
    });
    let requests: Vec<_> = requests.collect();
    let mut folded = BTreeMap::new();
    let mut replies = futures::stream::iter(requests).buffer_unordered(PEERS_AT_ONCE);
    while let Some((reply, peer, pairs)) = replies.next().await {
        match reply {
            Ok(theirs) => bins.extend(differences(ring, of, &mut folded, &theirs, &pairs)),
            Err(error) => {
                tracing::debug!(device = %peer, %error, "could not compare sums of extents");
                if is_counting(&error) {
                    uncompared += 1;
                } else if !is_silent(cluster, peer, &error).await {
                    bins.extend(pairs.iter().map(|pair| pair.mine.bin));
                }
            }
        }
    }
    (bins, uncompared)
}

/// Returns true if a device has no sums yet, because it counts its extents after a crash.
fn is_counting(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict
}

/// Returns true if a device that failed to return sums counts its extents, or doesn't answer other
/// calls either. A node of an earlier version has no sums, and refuses the call like a silent one.
async fn is_silent(cluster: &StepTopology, device: DeviceId, error: &Error) -> bool {
    if is_counting(error) {
        return true;
    }
    let answer = async { in_time(cluster.node(device)?.presence(device, &[])).await };
    answer.await.is_err()
}

/// Returns the partitions of some bins as spans, neighbours joined.
fn spans_of(ring: &Ring, of: &PolicySums, pairs: &[Pair]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for pair in pairs {
        let span = ring.span(partition_of(pair.mine.bin, of.power, ring));
        match spans.last_mut() {
            Some(last) if span.first <= last.last.saturating_add(1) => last.last = span.last,
            _ => spans.push(span),
        }
    }
    spans
}

/// Requests a peer's sums of a policy; a policy without extents has no sums.
async fn sums_of(
    cluster: &StepTopology,
    peer: DeviceId,
    policy: PolicyId,
    spans: &[Span],
) -> Result<PolicySums> {
    let mut all = PolicySums { policy, power: u8::MAX, sums: Vec::new() };
    for spans in spans.chunks(SPANS_MAX) {
        let page = in_time(cluster.node(peer)?.extent_sums(peer, Some(policy), spans)).await?;
        for of in page.into_iter().filter(|of| of.policy == policy) {
            // Between two requests a peer's bins may have become wider.
            let power = of.power.min(all.power);
            if power < all.power {
                all.sums = all.folded(power).into_iter().collect();
                all.power = power;
            }
            all.sums.extend(of.folded(power));
        }
    }
    Ok(all)
}

type Folded = BTreeMap<u8, BTreeMap<ExtentBin, ExtentSum>>;

/// Returns the own bins whose sums differ from a peer's, at the width of the wider bins.
fn differences(
    ring: &Ring,
    of: &PolicySums,
    folded: &mut Folded,
    theirs: &PolicySums,
    pairs: &[Pair],
) -> Vec<u32> {
    let power = of.power.min(theirs.power);
    if power < ring.part_power() {
        // A bin of the peer has extents of other partitions too.
        return pairs.iter().map(|pair| pair.mine.bin).collect();
    }
    let mine = folded.entry(power).or_insert_with(|| of.folded(power));
    let theirs = theirs.folded(power);
    let differs = |pair: &&Pair| {
        let bin = pair.mine.bin >> (of.power - power);
        let own = mine.get(&ExtentBin { bin, class: pair.mine.class });
        own != theirs.get(&ExtentBin { bin, class: pair.theirs })
    };
    pairs.iter().filter(differs).map(|pair| pair.mine.bin).collect()
}

#[cfg(test)]
mod tests;

//! Batches of a device's partitions: those that it shares with other devices, one span each, and the
//! runs of partitions between them, one span each.
//!
//! ```text
//! partitions   0 1 2 3 4 5 6 7 8 9       the device decides about 3, 4 and 8
//! spans        ─────             a run of others, cut at the size of the batch
//!                    ─ ─         shared with peers: compared with each of them
//!                        ─────   a run of others
//!                              ─ …
//! ```
//!
//! So the peers of a batch are those that share its partitions, and no other device is asked. In a
//! large ring a device decides about few partitions, and a batch covers a large part of the ring.
//! Runs of others should hold nothing: strays in them are looked for on the device alone.

use std::collections::BTreeMap;
use std::ops::Range;

use martlet_protocol::tree::Span;
use martlet_protocol::{BackendExt, DeviceId, Error, Partition, Result, Term};
use martlet_ring::Ring;

use crate::cluster::{StepTopology, in_time};
use crate::partitions::partition_count;

/// Partitions with strays that one batch finds at most. Tests need several batches for few.
const STRAYS_MAX: usize = if cfg!(test) { 16 } else { 1024 };

/// A batch of a device's partitions, and the devices that share them.
#[derive(Debug, Default)]
pub(super) struct PartitionBatch {
    /// Partitions of the batch, the end excluded.
    pub(super) run: Range<u32>,
    /// Spans of the shared partitions and of the runs between them, ascending.
    pub(super) spans: Vec<Span>,
    /// First partition of each span.
    starts: Vec<u32>,
    /// For each peer, indexes of the spans of shared partitions.
    pub(super) shared: BTreeMap<DeviceId, Vec<usize>>,
    /// Runs of partitions about which the device doesn't decide.
    pub(super) foreign: Vec<ForeignRun>,
}

/// A run of partitions about which a device doesn't decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForeignRun {
    /// Index of its span.
    pub(super) at: usize,
    pub(super) partitions: Range<u32>,
}

impl PartitionBatch {
    /// Makes the batch that begins at the partition `from`, of at most `limit` spans. `decided` are
    /// the partitions about which the device decides at `term`, ascending.
    pub(super) fn of(
        ring: &Ring,
        term: Term,
        device: DeviceId,
        decided: &[Partition],
        from: u32,
        limit: u32,
    ) -> Self {
        let (end, limit) = (partition_count(ring), limit.max(1));
        let mut decided = decided[decided.partition_point(|it| it.0 < from)..].iter().peekable();
        let mut batch = Self { run: from..from.min(end), ..Self::default() };
        while batch.run.end < end && batch.spans.len() < limit as usize {
            let at = batch.run.end;
            let next = decided.peek().map_or(end, |partition| partition.0);
            if next == at {
                decided.next();
                batch.share(ring, term, device, Partition(at));
            } else {
                // As the batch, a run shrinks where sums take long: it may hold many strays.
                batch.pass_over(ring, at..next.min(at.saturating_add(limit)));
            }
        }
        batch
    }

    fn share(&mut self, ring: &Ring, term: Term, device: DeviceId, partition: Partition) {
        let at = self.push(partition.0, ring.span(partition));
        self.run.end = partition.0 + 1;
        let sets = ring.sets(partition, term);
        for peer in sets.members().filter(|peer| *peer != device) {
            self.shared.entry(peer).or_default().push(at);
        }
    }

    fn pass_over(&mut self, ring: &Ring, partitions: Range<u32>) {
        let (first, last) = (Partition(partitions.start), Partition(partitions.end - 1));
        let span = Span { first: ring.span(first).first, last: ring.span(last).last };
        let at = self.push(partitions.start, span);
        self.run.end = partitions.end;
        self.foreign.push(ForeignRun { at, partitions });
    }

    fn push(&mut self, start: u32, span: Span) -> usize {
        self.starts.push(start);
        self.spans.push(span);
        self.spans.len() - 1
    }

    /// Ends the batch before the partition `end`: shared partitions from there on come later.
    pub(super) fn cut(&mut self, end: u32) {
        self.run.end = self.run.end.min(end);
        let starts = &self.starts;
        self.shared.retain(|_, spans| {
            spans.retain(|at| starts[*at] < end);
            !spans.is_empty()
        });
    }

    /// Returns the partitions with strays. `is_empty` returns true if the device holds nothing in a
    /// span. Cuts the batch behind the last of [`STRAYS_MAX`] partitions.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) async fn find_strays(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        is_empty: impl Fn(usize) -> bool,
    ) -> Result<Vec<Partition>> {
        let mut found = Vec::new();
        let held: Vec<ForeignRun> =
            self.foreign.iter().filter(|run| !is_empty(run.at)).cloned().collect();
        for run in held {
            let most = STRAYS_MAX - found.len();
            found.extend(held_in(cluster, device, run.partitions, most).await?);
            if found.len() >= STRAYS_MAX {
                self.cut(found.last().map_or(self.run.end, |last| last.0 + 1));
                break;
            }
        }
        Ok(found)
    }
}

/// Returns the first partitions of a run in which a device holds anything, `most` at most: one call
/// for each of them.
async fn held_in(
    cluster: &StepTopology,
    device: DeviceId,
    run: Range<u32>,
    most: usize,
) -> Result<Vec<Partition>> {
    if run.len() == 1 {
        return Ok(run.map(Partition).collect());
    }
    let ring = cluster.index();
    let last = ring.span(Partition(run.end - 1)).last;
    let (mut found, mut next) = (Vec::new(), run.start);
    while next < run.end && found.len() < most {
        let span = Span { first: ring.span(Partition(next)).first, last };
        let bins = in_time(cluster.node(device)?.bins(device, span, None, 1)).await?;
        let Some((bin, _)) = bins.first() else { break };
        let partition = ring.partition(bin.placement());
        if !(next..run.end).contains(&partition.0) {
            return Err(Error::internal(format!("device {device} returned a bin of another span")));
        }
        found.push(partition);
        next = partition.0 + 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::growth::small_ring;

    /// Returns all batches of a pass over a device.
    fn batches(ring: &Ring, device: DeviceId, limit: u32) -> Vec<PartitionBatch> {
        let term = ring.last_term();
        let decided: Vec<Partition> =
            ring.partitions().filter(|at| ring.sets(*at, term).contains(device)).collect();
        let (mut all, mut next) = (Vec::new(), 0);
        while next < partition_count(ring) {
            let batch = PartitionBatch::of(ring, term, device, &decided, next, limit);
            assert!(batch.run.start == next && batch.run.end > next, "a batch makes progress");
            assert!(batch.spans.len() <= limit as usize);
            next = batch.run.end;
            all.push(batch);
        }
        all
    }

    #[test]
    fn batches_of_any_size_cover_each_placement_once() {
        let ring = small_ring(40);
        for (device, limit) in [(0, 1), (0, 3), (7, 2), (39, 1024), (77, 5)] {
            let all = batches(&ring, DeviceId(device), limit);
            let mut next = Some(0);
            for span in all.iter().flat_map(|batch| &batch.spans) {
                assert_eq!(Some(span.first), next, "device {device}, {limit} at a time");
                next = span.last.checked_add(1);
            }
            assert_eq!(next, None, "the last span ends with the last placement");
        }
    }

    #[test]
    fn peers_share_partitions_and_all_others_are_foreign() {
        let ring = small_ring(40);
        let term = ring.last_term();
        for device in (0..40).map(DeviceId) {
            let mut pairs = Vec::new();
            let mut foreign = 0;
            for batch in batches(&ring, device, 8) {
                foreign += batch.foreign.iter().map(|run| run.partitions.len()).sum::<usize>();
                for (peer, shared) in &batch.shared {
                    pairs.extend(shared.iter().map(|at| (batch.spans[*at], *peer)));
                }
            }
            let mut expected = Vec::new();
            let mut decided = 0;
            for partition in ring.partitions() {
                let sets = ring.sets(partition, term);
                decided += usize::from(sets.contains(device));
                for peer in sets.members().filter(|it| sets.contains(device) && *it != device) {
                    expected.push((ring.span(partition), peer));
                }
            }
            pairs.sort_by_key(|(span, peer)| (span.first, *peer));
            expected.sort_by_key(|(span, peer)| (span.first, *peer));
            assert_eq!(pairs, expected, "device {device}");
            assert_eq!(foreign + decided, 32, "device {device}");
        }
    }

    #[test]
    fn a_cut_batch_leaves_shared_partitions_to_the_next_one() {
        let ring = small_ring(3);
        let mut batch = batches(&ring, DeviceId(0), 1024).remove(0);
        assert_eq!((batch.run.clone(), batch.shared.len()), (0..32, 2));
        batch.cut(5);
        assert_eq!(batch.run, 0..5);
        assert!(batch.shared.values().all(|shared| *shared == [0, 1, 2, 3, 4]));
        batch.cut(0);
        assert!(batch.run.is_empty() && batch.shared.is_empty());
    }
}

//! Choice of the next request. Each worker follows its own plan; workers share only a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::args::{BenchArgs, BenchOperation};

/// Alignment of ranges' offsets, typical of readers of datasets.
const OFFSET_STEP: u64 = 4096;
/// Number of keys in a page of a listing.
pub(super) const PAGE_KEYS: u32 = 1000;
/// Smallest object that an overwrite writes, unless `--size` is smaller.
const OVERWRITE_BYTES_MIN: u64 = 8 << 10;

/// Request of the bench. `PutBytes` writes the beginning of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BenchRequest {
    Put { key: String },
    PutBytes { key: String, bytes: u64 },
    Get { key: String },
    Range { key: String, first: u64, last: u64 },
    List,
    ListAfter { key: String },
    Delete { key: String },
    DeleteMany { keys: Vec<String> },
    MakeBucket,
    RemoveBucket,
}

/// Returns the key of the prepared object number `index`.
pub(super) fn prepared_key(prefix: &str, index: u64) -> String {
    format!("{prefix}/{index:08}")
}

/// Plan of one worker.
pub(super) struct WorkerPlan {
    op: BenchOperation,
    prefix: String,
    size: u64,
    object_size: u64,
    prepared: u64,
    overwrite: Option<u64>,
    worker: usize,
    rng: SmallRng,
    /// Number of deletes by all workers, so that each key is deleted once.
    deletes: Arc<AtomicU64>,
    /// Number of keys that this worker has written.
    puts: u64,
    /// Number of its own keys that this worker has deleted.
    deleted: u64,
}

impl WorkerPlan {
    /// Makes the plan of worker number `worker`. Workers of one run share `deletes`.
    pub(super) fn new(args: &BenchArgs, worker: usize, deletes: Arc<AtomicU64>) -> Self {
        Self {
            op: args.op,
            prefix: args.prefix.clone(),
            size: args.size.0,
            object_size: args.object_size.0,
            prepared: args.objects_prepared(),
            overwrite: args
                .objects
                .filter(|_| args.op == BenchOperation::Put)
                .map(|objects| objects.max(1)),
            worker,
            rng: SmallRng::seed_from_u64(worker as u64),
            deletes,
            puts: 0,
            deleted: 0,
        }
    }

    /// Returns the next request, or `None` if nothing is left to do.
    pub(super) fn next(&mut self) -> Option<BenchRequest> {
        match self.op {
            BenchOperation::Put => Some(self.put()),
            BenchOperation::Get => Some(self.get()),
            BenchOperation::Range => Some(self.range()),
            BenchOperation::Overwrite => Some(self.overwrite_any()),
            BenchOperation::List => Some(self.list()),
            BenchOperation::Delete => {
                let index = self.deletes.fetch_add(1, Ordering::Relaxed);
                let key = prepared_key(&self.prefix, index);
                (index < self.prepared).then_some(BenchRequest::Delete { key })
            }
            BenchOperation::Mixed => Some(self.mixed()),
            BenchOperation::Files
            | BenchOperation::Receive
            | BenchOperation::Commit
            | BenchOperation::Seal
            | BenchOperation::Answer
            | BenchOperation::Relay => None,
        }
    }

    /// Returns the keys that this worker has written and not deleted.
    pub(super) fn made(&self) -> Vec<String> {
        match self.overwrite {
            Some(objects) => (0..objects).map(|index| self.written_key(index)).collect(),
            None => (self.deleted..self.puts).map(|index| self.written_key(index)).collect(),
        }
    }

    fn written_key(&self, index: u64) -> String {
        format!("{}/w{:03}-{index:08}", self.prefix, self.worker)
    }

    fn put(&mut self) -> BenchRequest {
        let index = self.overwrite.map_or(self.puts, |objects| self.puts % objects);
        self.puts += 1;
        BenchRequest::Put { key: self.written_key(index) }
    }

    /// Overwrites a random prepared object. Each power of two has the same share of the sizes.
    fn overwrite_any(&mut self) -> BenchRequest {
        let index = self.rng.random_range(0..self.prepared);
        let least = OVERWRITE_BYTES_MIN.min(self.size);
        let low = least << self.rng.random_range(0..=(self.size / least).ilog2());
        let bytes = self.rng.random_range(low..=(2 * low).min(self.size));
        BenchRequest::PutBytes { key: prepared_key(&self.prefix, index), bytes }
    }

    /// Lists a full page of the prepared objects, from a random one on if they fill more pages.
    fn list(&mut self) -> BenchRequest {
        match self.prepared.checked_sub(u64::from(PAGE_KEYS) + 1) {
            Some(last) => {
                let index = self.rng.random_range(0..=last);
                BenchRequest::ListAfter { key: prepared_key(&self.prefix, index) }
            }
            None => BenchRequest::List,
        }
    }

    fn get(&mut self) -> BenchRequest {
        let index = self.rng.random_range(0..self.prepared);
        BenchRequest::Get { key: prepared_key(&self.prefix, index) }
    }

    fn range(&mut self) -> BenchRequest {
        let index = self.rng.random_range(0..self.prepared);
        let steps = (self.object_size - self.size) / OFFSET_STEP;
        let first = self.rng.random_range(0..=steps) * OFFSET_STEP;
        BenchRequest::Range {
            key: prepared_key(&self.prefix, index),
            first,
            last: first + self.size - 1,
        }
    }

    fn mixed(&mut self) -> BenchRequest {
        match self.rng.random_range(0..20) {
            0..13 => self.get(),
            18 if self.deleted < self.puts => {
                self.deleted += 1;
                BenchRequest::Delete { key: self.written_key(self.deleted - 1) }
            }
            19 => BenchRequest::List,
            _ => self.put(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::Parser;

    use super::super::args::BenchCli;
    use super::*;

    fn plan(line: &str, worker: usize) -> WorkerPlan {
        let line = format!("bench --access-key a --secret-key b {line}");
        let args = BenchCli::try_parse_from(line.split(' ')).unwrap().bench;
        WorkerPlan::new(&args, worker, Arc::default())
    }

    #[test]
    fn puts_make_new_keys_that_are_known_afterwards() {
        let mut plan = plan("--op put", 3);
        let keys: Vec<_> = (0..5).filter_map(|_| plan.next()).collect();
        let made: Vec<_> = plan.made().into_iter().map(|key| BenchRequest::Put { key }).collect();
        assert_eq!(keys, made);
    }

    #[test]
    fn puts_over_a_given_number_of_names() {
        let mut plan = plan("--op put --objects 2", 0);
        let keys: HashSet<_> =
            (0..9).filter_map(|_| plan.next()).map(|call| format!("{call:?}")).collect();
        assert_eq!(keys.len(), 2);
        assert_eq!(plan.made().len(), 2);
    }

    #[test]
    fn ranges_lie_within_their_object() {
        let mut plan = plan("--op range --size 1000 --object-size 9000", 1);
        for _ in 0..200 {
            let Some(BenchRequest::Range { first, last, .. }) = plan.next() else {
                panic!("not a range")
            };
            assert_eq!((last - first + 1, first % OFFSET_STEP), (1000, 0));
            assert!(last < 9000);
        }
    }

    #[test]
    fn overwrites_have_all_sizes_between_their_bounds() {
        let mut plan = plan("--op overwrite --size 1MiB --objects 9", 1);
        let (mut keys, mut sizes) = (HashSet::new(), HashSet::new());
        for _ in 0..500 {
            let Some(BenchRequest::PutBytes { key, bytes }) = plan.next() else {
                panic!("not an overwrite")
            };
            assert!((OVERWRITE_BYTES_MIN..=1 << 20).contains(&bytes));
            keys.insert(key);
            sizes.insert(bytes.ilog2());
        }
        assert_eq!(keys.len(), 9);
        assert!(sizes.len() >= 7, "{sizes:?}");
        assert!(plan.made().is_empty());
    }

    #[test]
    fn lists_of_many_objects_begin_anywhere_and_fill_a_page() {
        assert_eq!(plan("--op list", 0).next(), Some(BenchRequest::List));
        let mut plan = plan("--op list --objects 1002", 0);
        let keys: HashSet<_> =
            (0..50).filter_map(|_| plan.next()).map(|it| format!("{it:?}")).collect();
        assert_eq!(keys.len(), 2, "{keys:?}");
    }

    #[test]
    fn workers_share_out_the_deletes() {
        let deletes = Arc::new(AtomicU64::new(0));
        let mut plans = [0, 1].map(|worker| {
            let mut plan = plan("--op delete --objects 7", worker);
            plan.deletes = deletes.clone();
            plan
        });
        let mut keys = HashSet::new();
        for turn in 0..20 {
            if let Some(BenchRequest::Delete { key }) = plans[turn % 2].next() {
                assert!(keys.insert(key));
            }
        }
        assert_eq!(keys.len(), 7);
    }

    #[test]
    fn a_mixed_plan_deletes_only_its_own_objects() {
        let mut plan = plan("--op mixed", 0);
        let mut live = HashSet::new();
        for _ in 0..2000 {
            match plan.next() {
                Some(BenchRequest::Put { key }) => assert!(live.insert(key)),
                Some(BenchRequest::Delete { key }) => assert!(live.remove(&key)),
                Some(_) => {}
                None => panic!("a mixed plan goes on"),
            }
        }
        assert_eq!(live, plan.made().into_iter().collect());
    }
}

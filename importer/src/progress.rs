//! Counters of a run, which the copy advances and the display reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

/// Counters of a run.
#[derive(Debug, Default)]
pub struct Counters {
    /// Objects and bytes that are done, for whatever reason.
    pub(crate) done: Tally,
    /// Objects and bytes counted ahead; final when `is_counted`.
    pub(crate) total: Tally,
    pub(crate) is_counted: AtomicBool,
    pub(crate) copied: Tally,
    /// Objects that the target had already.
    pub(crate) present: Tally,
    /// Other objects at the target that were kept.
    pub(crate) kept: Tally,
    /// Objects of the listing that the source no longer had.
    pub(crate) vanished: Tally,
    pub(crate) failed: Tally,
    /// Copies whose ETag is another than the source's.
    pub(crate) other_etags: AtomicU64,
    /// Copies about whose bytes the source claims nothing.
    pub(crate) unclaimed: AtomicU64,
    /// Copies of objects of another storage class than STANDARD.
    pub(crate) other_classes: AtomicU64,
    /// Repeated attempts.
    pub(crate) retries: AtomicU64,
    /// Bytes that were read from the source, repetitions included.
    pub(crate) streamed_bytes: AtomicU64,
    pub(crate) compared: Tally,
    pub(crate) different: Tally,
    /// Objects that were compared by their size alone.
    pub(crate) unverified: Tally,
    /// Objects at the target that the source does not have.
    pub(crate) only_target: Tally,
    pub(crate) is_verifying: AtomicBool,
    /// True if the copy pass went through all objects, and not only those that an earlier run left.
    pub(crate) is_whole_pass: AtomicBool,
    /// Objects counted ahead of the comparison; final when `is_counted_to_compare`.
    pub(crate) to_compare: Tally,
    pub(crate) is_counted_to_compare: AtomicBool,
}

/// Number of objects and of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    objects: AtomicU64,
    bytes: AtomicU64,
}

/// Number of objects and of their bytes, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Objects.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&self, bytes: u64) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn amount(&self) -> Amount {
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed);
        Amount { objects: load(&self.objects), bytes: load(&self.bytes) }
    }
}

/// State of a run for its display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// Objects that are done, and their bytes.
    pub done: Amount,
    /// Objects counted so far.
    pub total: Amount,
    /// True if all objects are counted.
    pub is_counted: bool,
    /// Objects that failed.
    pub failed: u64,
    /// Bytes read from the source.
    pub streamed_bytes: u64,
    /// True during the comparison of both buckets.
    pub is_verifying: bool,
    /// Objects that were compared.
    pub compared: u64,
    /// Objects to compare. `None` until they are counted: while the copy of an interrupted import goes
    /// on, only the rest is counted for the copy.
    pub to_compare: Option<u64>,
}

impl Counters {
    /// Returns the state of the run.
    pub fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            done: self.done.amount(),
            total: self.total.amount(),
            is_counted: self.is_counted.load(Ordering::Relaxed),
            failed: self.failed.amount().objects,
            streamed_bytes: self.streamed_bytes.load(Ordering::Relaxed),
            is_verifying: self.is_verifying.load(Ordering::Relaxed),
            compared: self.compared.amount().objects,
            to_compare: self.to_compare(),
        }
    }

    /// Returns the number of objects to compare, if it is known.
    pub(crate) fn to_compare(&self) -> Option<u64> {
        if self.is_whole_pass.load(Ordering::Relaxed) && self.is_verifying.load(Ordering::Relaxed) {
            return Some(self.done.amount().objects);
        }
        let is_counted = self.is_counted_to_compare.load(Ordering::Relaxed);
        is_counted.then(|| self.to_compare.amount().objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_to_compare_are_those_of_a_whole_copy_or_counted() {
        let counters = Counters::default();
        for _ in 0..3 {
            counters.done.add(10);
        }
        counters.to_compare.add(10);
        assert_eq!(counters.snapshot().to_compare, None, "the count goes on");
        counters.is_counted_to_compare.store(true, Ordering::Relaxed);
        assert_eq!(counters.snapshot().to_compare, Some(1));
        counters.is_whole_pass.store(true, Ordering::Relaxed);
        assert_eq!(counters.snapshot().to_compare, Some(1), "the copy goes on");
        counters.is_verifying.store(true, Ordering::Relaxed);
        assert_eq!(counters.snapshot().to_compare, Some(3));
    }
}

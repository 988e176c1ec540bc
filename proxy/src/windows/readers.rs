//! Readers of each extent, so that a reader learns of others whose ranges overlap its own.
//!
//! The cost is one lock and a scan of the extent's readers at each begin and end of a range. There
//! are no more of these than concurrent requests.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::ExtentId;
use parking_lot::Mutex;

/// Running reads by extent. An extent without a reader takes no memory.
#[derive(Default)]
pub(super) struct Readers(Mutex<HashMap<ExtentId, Vec<Reading>>>);

struct Reading {
    range: Range<u64>,
    met: Arc<AtomicBool>,
}

/// Registration of one reader, until it is dropped.
pub(super) struct Seat {
    readers: Arc<Readers>,
    extent: ExtentId,
    met: Arc<AtomicBool>,
}

impl Readers {
    /// Registers a reader of `range`. It and all readers of overlapping ranges have company now.
    pub(super) fn sit(self: &Arc<Self>, extent: ExtentId, range: Range<u64>) -> Seat {
        let met = Arc::new(AtomicBool::new(false));
        let mut readers = self.0.lock();
        let readings = readers.entry(extent).or_default();
        let others = readings.iter();
        for other in others.filter(|it| it.range.start < range.end && range.start < it.range.end) {
            other.met.store(true, Ordering::Relaxed);
            met.store(true, Ordering::Relaxed);
        }
        readings.push(Reading { range, met: met.clone() });
        drop(readers);
        Seat { readers: self.clone(), extent, met }
    }

    #[cfg(test)]
    pub(super) fn extents(&self) -> usize {
        self.0.lock().len()
    }
}

impl Seat {
    /// Notes that others need the same bytes, though they aren't here.
    pub(super) fn meet(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Returns true if others need the same bytes.
    pub(super) fn met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut readers = self.readers.0.lock();
        let Some(readings) = readers.get_mut(&self.extent) else { return };
        readings.retain(|reading| !Arc::ptr_eq(&reading.met, &self.met));
        if readings.is_empty() {
            readers.remove(&self.extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ExtentId = ExtentId([1; 16]);
    const B: ExtentId = ExtentId([2; 16]);

    #[test]
    fn readers_of_overlapping_ranges_meet() {
        let readers = Arc::new(Readers::default());
        let first = readers.sit(A, 0..10);
        let behind = readers.sit(A, 10..20);
        let elsewhere = readers.sit(B, 0..10);
        assert!(!first.met() && !behind.met() && !elsewhere.met());
        let across = readers.sit(A, 9..11);
        assert!(first.met() && behind.met() && across.met() && !elsewhere.met());
    }

    #[test]
    fn a_reader_that_left_shares_nothing_and_leaves_nothing() {
        let readers = Arc::new(Readers::default());
        drop(readers.sit(A, 0..10));
        let alone = readers.sit(A, 0..10);
        assert!(!alone.met());
        drop((alone, readers.sit(B, 0..10)));
        assert_eq!(readers.extents(), 0);
    }
}

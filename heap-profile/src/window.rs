//! Window in which allocations are sampled, and its result.

use std::sync::atomic::{AtomicBool, Ordering};

use super::allocator::{is_installed, turn_off, turn_on, unsampled};
use super::samples::HeapSamples;
use super::tables;

/// A window is one for the whole process.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Open window. Its drop ends sampling.
#[derive(Debug)]
pub struct HeapWindow {
    /// True once the samples were taken.
    is_taken: bool,
}

/// Reason for no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapRefusal {
    /// Another window is open.
    Busy,
    /// The program's allocator is no [`SampledAllocator`](crate::SampledAllocator).
    NotInstalled,
}

impl HeapWindow {
    /// Begins to sample one allocation in a mean of `interval` bytes, 1 at least.
    pub fn begin(interval: u64) -> Result<Self, HeapRefusal> {
        if IS_OPEN.swap(true, Ordering::AcqRel) {
            return Err(HeapRefusal::Busy);
        }
        let window = Self { is_taken: false };
        let interval = interval.max(1);
        unsampled(|| tables::begin(interval));
        turn_on(interval);
        if is_installed() { Ok(window) } else { Err(HeapRefusal::NotInstalled) }
    }

    /// Ends the window, and returns its samples.
    pub fn end(mut self) -> HeapSamples {
        self.is_taken = true;
        take()
    }
}

impl Drop for HeapWindow {
    fn drop(&mut self) {
        if !self.is_taken {
            drop(take());
        }
        IS_OPEN.store(false, Ordering::Release);
    }
}

fn take() -> HeapSamples {
    turn_off();
    unsampled(tables::end)
}

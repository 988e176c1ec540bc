//! Counters of a lane's messages.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a lane's messages.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) taken: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Attempts that failed.
    pub(super) failures: AtomicU64,
    /// Bytes in the spool.
    pub(super) waiting_bytes: AtomicU64,
    /// Messages that were set aside.
    pub(super) refused: AtomicU64,
    /// Bytes of messages set aside that are still in the file.
    pub(super) refused_bytes: AtomicU64,
}

impl Counts {
    /// Counts lost messages.
    pub(super) fn lose(&self, messages: u64) {
        self.lost.fetch_add(messages, Ordering::Relaxed);
    }

    /// Counts bytes that left the spool.
    pub(super) fn leave(&self, bytes: u64) {
        let left = |now: u64| Some(now.saturating_sub(bytes));
        let _ = self.waiting_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

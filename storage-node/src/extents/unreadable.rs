//! Bytes that the disk can't read.
//!
//! An I/O error may come from a loose cable, and one bad sector must not keep a whole device offline.
//!
//! * An opening reads the bytes again. If they stay unreadable, it puts what lies there aside, and
//!   goes on. A disk that can read almost nothing is no place for verdicts: after some such findings
//!   the opening fails.
//! * The audit sets an extent aside only once it was unreadable repeatedly, over minutes.

use martlet_protocol::{Error, ErrorKind, ExtentId, Result};
use parking_lot::Mutex;

use crate::device::moment::Moment;
use crate::device::repeated_failures::RepeatedFailures;

/// Number of unreadable files and runs after which an opening fails.
pub(super) const FINDINGS_MAX: u64 = 64;
/// Number of unreadable extents that the audit tracks.
const EXTENTS_MAX: usize = 1024;

/// Extents that an audit could not read.
#[derive(Debug)]
pub(super) struct UnreadableExtents(Mutex<RepeatedFailures<ExtentId>>);

impl Default for UnreadableExtents {
    fn default() -> Self {
        Self(Mutex::new(RepeatedFailures::new(EXTENTS_MAX)))
    }
}

impl UnreadableExtents {
    /// Records a failure. Returns true if the extent is lost.
    pub(super) fn record(&self, id: ExtentId, now: Moment) -> bool {
        self.0.lock().record(id, now)
    }

    pub(super) fn forget(&self, id: ExtentId) {
        self.0.lock().forget(&id);
    }

    /// Returns up to `limit` extents whose last failure counts as a different one by now.
    pub(super) fn due(&self, now: Moment, limit: usize) -> Vec<ExtentId> {
        self.0.lock().due(now, limit)
    }
}

/// Returns true if a read failed because the disk can't read the bytes.
pub(super) fn is_unreadable(error: &Error) -> bool {
    error.kind() == ErrorKind::Internal
}

/// Reads twice if the disk can't read the bytes at first; none if the second read fails too.
pub(super) fn tried_twice<T>(mut read: impl FnMut() -> Result<T>) -> Result<Option<T>> {
    match read() {
        Err(first) if is_unreadable(&first) => match read() {
            Err(second) if is_unreadable(&second) => {
                tracing::error!(error = %second, "the disk can't read some bytes");
                Ok(None)
            }
            outcome => outcome.map(Some),
        },
        outcome => outcome.map(Some),
    }
}

//! Bytes that the disk can't read.
//!
//! An I/O error may come from a loose cable, and one bad sector must not keep a whole device offline.
//!
//! * An opening reads the bytes again. If they stay unreadable, it puts what lies there aside, and
//!   goes on. A disk that can read almost nothing is no place for verdicts: after some such findings
//!   the opening fails.

use martlet_protocol::{Error, ErrorKind, Result};

/// Number of unreadable files and runs after which an opening fails.
pub(super) const FINDINGS_MAX: u64 = 64;
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

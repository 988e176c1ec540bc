//! Checks of a recorded history. Real clients of real processes record histories, and so do the
//! clients of a simulation. Pure: no clock, no I/O.
//!
//! * [`history`]: the operations of clients, with their times and outcomes.
//! * [`registers`]: every key is a linearizable register of plain writes, deletes and
//!   compare-and-set (rules R3 to R7), found by search.
//! * [`reads`]: lost writes, resurrected deletes, stale and invented reads, reads that go back.
//!   Weaker than the search, but linear, and its message names the broken promise.
//! * [`listings`]: keys that a listing must contain, keys that it must not contain, and their order
//!   (rules R5 and L1).
//! * [`sets`]: checkpoint sets and the view (rules S1 to S7), beside the history of the bucket.
//!
//! Not verified: bytes (a client that reads a body records the value that it found, or that the
//! body belongs to no value), real-time order between keys, and replies that were `degraded` or
//! `any` (rule A1). [`History::firm`] gives such writes an unknown outcome and omits such reads.

pub mod history;
pub mod listings;
pub mod reads;
pub mod registers;
mod search;
pub mod sets;
mod violation;

pub use history::{History, Invocation, ListedKey, Listing, Operation, Response, Value};
pub use violation::Violation;

#[cfg(test)]
mod generated;

/// Checks registers, reads and listings of a history. [`History::firm`] treats degraded operations
/// first, so that only `quorum` replies count.
pub fn check(history: &History) -> Result<(), Violation> {
    let firm = history.firm();
    reads::check(&firm)?;
    listings::check(&firm)?;
    registers::check(&firm)
}

//! What a recorded history must satisfy, whoever recorded it: real clients of real processes, or
//! the clients of a simulation. Pure: no clock, no I/O.
//!
//! * [`history`]: what clients did, when they asked and were answered, and what they were told.
//! * [`registers`]: every key is a linearizable register of plain writes, deletes and
//!   compare-and-set (rules R3 to R7), found by search.
//! * [`reads`]: lost writes, resurrected deletes, stale and invented reads, reads that go back.
//!   Weaker than the search, but linear, and it says what is wrong in words.
//! * [`listings`]: what a listing must show, must not show, and in which order (rules R5 and L1).
//!
//! What they do not verify: bytes (a client that reads a body names the value it found, or says
//! that it is none of them), real-time order between keys, and replies that were `degraded` or
//! `any` (rule A1): [`History::firm`] takes such writes as unknown and leaves such reads out.

pub mod history;
pub mod listings;
pub mod reads;
pub mod registers;
mod search;
mod violation;

pub use history::{Call, Found, History, Listing, Operation, Outcome, Value};
pub use violation::Violation;

#[cfg(test)]
mod generated;

/// Everything that holds of a history in which every reply is `quorum`: registers, reads and
/// listings. Degraded operations count as [`History::firm`] says.
pub fn check(history: &History) -> Result<(), Violation> {
    let firm = history.firm();
    reads::check(&firm)?;
    listings::check(&firm)?;
    registers::check(&firm)
}

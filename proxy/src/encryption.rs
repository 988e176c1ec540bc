//! Encryption at rest: what devices hold of an encrypted object is ciphertext, inline bytes too.
//!
//! ```text
//! customer's key ─┐
//!                 ├─ wraps ─▶ data key ──▶ key of a segment ──▶ AES-256-GCM, chunk by chunk
//! master key ─────┘           one for      an object put at
//!                             an object    once, or a part of
//!                                          this number
//! ```
//!
//! * [`layout`]: where the chunks of a segment lie, and which of them are under a range. Pure.
//! * [`cipher`]: chunks are sealed and opened. Pure.
//! * [`keys`]: data keys, what wraps them, and the document that an object keeps of its own.
//! * [`requests`]: what a request says of keys, and what becomes of it.
//! * [`rewrap`]: what another master key wraps is wrapped by the first.
//! * [`sealing`]: bodies on their way in. [`opening`]: bodies on their way out.
//!
//! Everything above the extents speaks of plain bytes: sizes, lengths of parts, tags and checksums are
//! those of what the client sent. Everything below speaks of what is stored: lengths of extents and their
//! hashes. So whoever moves, repairs or audits extents needs no key.
//!
//! Invariants:
//! * No nonce is used twice under a key: a data key is drawn for each object, each part draws a salt that
//!   its key is made with, and a chunk's nonce is its number.
//! * Of a chunk nobody sees a byte before its tag was checked. Its nonce says which one it is and whether
//!   it is the last, so that a segment can't be cut or its chunks be exchanged unnoticed; nor can parts of
//!   different numbers be exchanged, whose keys differ.
//! * Keys are never printed, and those of customers never kept: that one is right is seen by what it
//!   unwraps.

mod cipher;
mod keys;
mod layout;
mod opening;
mod requests;
mod rewrap;
mod sealing;

pub use keys::CustomerKey;
pub(crate) use keys::{Locked, Secret, choose_parts};
pub(crate) use layout::{Segment, stored_pieces};
pub use requests::{Encrypted, Keys};
pub(crate) use requests::{Told, Whose};
pub use rewrap::Rewrapped;
pub(crate) use sealing::Sealing;

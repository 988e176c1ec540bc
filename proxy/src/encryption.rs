//! Encryption at rest: devices store only ciphertext of an encrypted object, also of inline bytes.
//!
//! ```text
//! customer's key ─┐
//!                 ├─ wraps ─▶ data key ──▶ key of a segment ──▶ AES-256-GCM, chunk by chunk
//! master key ─────┘           one for      a segment is an
//!                             each object  object of one PUT,
//!                                          or a part
//! ```
//!
//! * [`layout`]: positions of chunks in a segment, and the chunks under a range. Pure.
//! * [`cipher`]: encryption and decryption of chunks. Pure.
//! * [`keys`]: data keys, their wrapping keys, and the document stored with an object.
//! * [`request_keys`]: keys of a request, and their use.
//! * [`sealing`]: encryption of request bodies. [`opening`]: decryption of response bodies.
//!
//! Layers above the extents handle plain bytes: sizes, part lengths, ETags and checksums are those
//! of the client's bytes. Layers below handle stored bytes: lengths and hashes of extents. So
//! moving, repairing and auditing extents needs no key.
//!
//! Invariants:
//! * No nonce is used twice under a key. A data key is drawn for each object, and a salt for each
//!   part's key; a chunk's nonce is its number.
//! * No byte of a chunk is returned before its tag was verified. The nonce contains the chunk's
//!   number and marks the last one. So truncated segments and exchanged chunks are detected; parts
//!   of different numbers can't be exchanged either, since their keys differ.
//! * Keys are never printed, and customers' keys never stored. A customer's key is verified by
//!   unwrapping the data key.

mod cipher;
pub(crate) mod keys;
mod layout;
mod opening;
mod request_keys;
mod sealing;
mod stored;

pub use keys::CustomerKey;
pub(crate) use keys::{Locked, ObjectAddress, Secret, choose_parts};
pub(crate) use layout::Segment;
pub use request_keys::{Encrypted, Keys};
pub(crate) use request_keys::{RequestKeys, Whose};
pub(crate) use sealing::Sealing;
pub(crate) use stored::stored_sizes;

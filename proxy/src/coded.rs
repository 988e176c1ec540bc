//! Extents that are kept as coded fragments: bytes out to k+m devices, and back from any that are enough.
//!
//! A fragment is an extent of its own to the node that holds it. What makes it one of several are its
//! id, [`ExtentId::fragment`](martlet_protocol::ExtentId::fragment), and its layout; so fragments
//! take the same way as copies, with the same pipes, stand-ins and grace, and only the two ends of the
//! way are different.
//!
//! ```text
//! ingest ──▶ write ──▶ pipes ──▶ delivery ──▶ nodes    write: cuts the bytes into fragments as they
//!              │                                       come, and adds up parity beside
//!              └── admission                           admission: what that may hold of memory
//! ```
//!
//! Invariants:
//! * An id that a manifest names has zeros where fragments have their number.
//! * The length of an extent is known before the first of its fragments is begun, so every fragment
//!   says in its record what it is a part of.
//! * Data bytes are never copied on their way: fragments are slices of what came in.

pub(crate) mod admission;
pub(crate) mod read;
pub(crate) mod write;

use std::collections::HashMap;

use martlet_erasure::{Code, Codec};
use parking_lot::Mutex;

/// Codes that are ready for use: making one inverts a matrix.
#[derive(Default)]
pub(crate) struct Codecs(Mutex<HashMap<Code, Codec>>);

impl Codecs {
    /// A code, made when it is asked for first.
    pub(crate) fn get(&self, code: Code) -> Codec {
        self.0.lock().entry(code).or_insert_with(|| Codec::new(code)).clone()
    }
}

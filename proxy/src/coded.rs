//! Erasure-coded extents: written as fragments on k+m devices, read from any k of them.
//!
//! To its node, a fragment is an ordinary extent. Its id,
//! [`ExtentId::fragment`](martlet_protocol::ExtentId::fragment), and its layout mark it as a
//! fragment. So fragments share the channels, stand-ins and grace times of copies; only encoding
//! and decoding differ.
//!
//! ```text
//! upload ──▶ write ──▶ channels ──▶ delivery ──▶ nodes    write: cuts bytes into fragments as they
//!              │                                          arrive, and computes parity alongside
//!              └── admission                              admission: bounds the memory of writes
//! ```
//!
//! Invariants:
//! * An extent id in a manifest has zeros in place of the fragment number.
//! * An extent's length is known before its first fragment begins, so every fragment's record
//!   contains that length.
//! * Data bytes are never copied: fragments are slices of the received chunks.

pub(crate) mod admission;
pub(crate) mod read;
pub(crate) mod write;

use std::collections::HashMap;

use martlet_erasure::{Code, Codec};
use parking_lot::Mutex;

/// Cache of codecs: creating one inverts a matrix.
#[derive(Default)]
pub(crate) struct Codecs(Mutex<HashMap<Code, Codec>>);

impl Codecs {
    /// The codec of a code, created at its first use.
    pub(crate) fn get(&self, code: Code) -> Codec {
        self.0.lock().entry(code).or_insert_with(|| Codec::new(code)).clone()
    }
}

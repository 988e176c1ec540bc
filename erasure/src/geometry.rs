//! Geometry of an extent: the length of its fragments, and the fragments in a range.
//!
//! ```text
//!            column 0                                 F
//! fragment 0        [ bytes 0 .. F                    ]   F: a multiple of 64 KiB
//! fragment 1        [ bytes F .. 2F                   ]
//! fragment d-1      [ bytes (d-1)F .. length   ]······    short; d data fragments have bytes
//! fragment k-1      ··································    empty: not stored
//! fragment k        [ parity, as long as fragment 0   ]
//! fragment k+m-1    [ parity                          ]
//! ```
//!
//! Column c of data fragment i is byte i·F + c of the extent. Column c of a parity fragment is
//! computed from column c of all data fragments. Missing bytes of data fragments count as zeros
//! (the dots), which are neither stored nor sent.
//!
//! Invariants: 1 ≤ length ≤ k·F; F is a multiple of [`BLOCK_BYTES`] and at most
//! [`FRAGMENT_BYTES_MAX`]; fragment 0 is the longest, and every parity fragment is as long.

use std::ops::Range;

use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{Error, Result};

use crate::code::{Code, FRAGMENT_BYTES_MAX, FragmentIndex, Fragments};

/// Geometry of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    code: Code,
    length: u64,
    fragment_bytes: u64,
}

/// Columns of one fragment: bytes `columns` of the stored fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FragmentColumns {
    /// Fragment of the piece.
    pub fragment: FragmentIndex,
    /// Byte range within the fragment.
    pub columns: Range<u64>,
}

impl FragmentColumns {
    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.columns.end - self.columns.start
    }
}

impl Geometry {
    /// Creates the geometry of an extent of `length` bytes, with the shortest fragments.
    pub fn new(code: Code, length: u64) -> Result<Self> {
        let share = length.div_ceil(u64::from(code.k()));
        // If rounding up overflows, the length is refused below.
        let fragment_bytes = share.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(0);
        Self::with_fragment_bytes(code, length, fragment_bytes.max(BLOCK_BYTES))
    }

    /// Creates the geometry of an extent of `length` bytes with fragments of `fragment_bytes`: as
    /// stored in a manifest, or of an extent encoded with unknown length.
    pub fn with_fragment_bytes(code: Code, length: u64, fragment_bytes: u64) -> Result<Self> {
        let length_max = code.extent_bytes_max();
        if length == 0 || length > length_max {
            return Err(Error::invalid(format!(
                "an extent of {length} bytes: the code {code} needs 1 to {length_max}"
            )));
        }
        check_fragment_bytes(fragment_bytes)?;
        if length > u64::from(code.k()) * fragment_bytes {
            return Err(Error::invalid(format!(
                "an extent of {length} bytes doesn't fit into {} fragments of {fragment_bytes}",
                code.k()
            )));
        }
        Ok(Self { code, length, fragment_bytes })
    }

    /// Code of the extent.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Length of the extent in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// F: the distance between the starts of data fragments, in bytes.
    pub fn fragment_bytes(&self) -> u64 {
        self.fragment_bytes
    }

    /// Number of columns: the length of fragment 0 and of every parity fragment.
    pub fn columns(&self) -> u64 {
        self.length.min(self.fragment_bytes)
    }

    /// Stored bytes of `fragment`. A fragment of zero bytes isn't stored.
    pub fn stored_bytes(&self, fragment: FragmentIndex) -> u64 {
        if self.code.is_data(fragment) {
            let from = u64::from(fragment.0) * self.fragment_bytes;
            return self.length.saturating_sub(from).min(self.fragment_bytes);
        }
        if fragment.0 < self.code.total() { self.columns() } else { 0 }
    }

    /// Fragments with bytes, which must be stored.
    pub fn stored(&self) -> Fragments {
        self.code.fragments().filter(|fragment| self.stored_bytes(*fragment) > 0).collect()
    }

    /// Number d of data fragments with bytes: any d of the stored fragments restore the extent.
    pub fn needed(&self) -> u8 {
        let full = self.length.div_ceil(self.fragment_bytes);
        u8::try_from(full).expect("a geometry has at most k data fragments")
    }

    /// Stored bytes of all fragments.
    pub fn stored_bytes_total(&self) -> u64 {
        self.length + u64::from(self.code.m()) * self.columns()
    }

    /// Returns the pieces of data fragments under `range` of the extent, in order. An empty range
    /// has none.
    pub fn fragment_ranges(&self, range: Range<u64>) -> Result<Vec<FragmentColumns>> {
        if range.start > range.end || range.end > self.length {
            return Err(Error::invalid(format!(
                "bytes {}..{} are outside of an extent of {} bytes",
                range.start, range.end, self.length
            )));
        }
        Ok(cut(range, self.fragment_bytes).collect())
    }

    /// Offset in the extent of a piece's first byte; none for parity, or beyond the fragment's end.
    pub fn offset(&self, piece: &FragmentColumns) -> Option<u64> {
        let inside = piece.columns.start <= self.stored_bytes(piece.fragment);
        (self.code.is_data(piece.fragment) && inside)
            .then(|| u64::from(piece.fragment.0) * self.fragment_bytes + piece.columns.start)
    }

    /// Intersection of `columns` with the bytes of `fragment`; empty, and within `columns`, if it
    /// has none.
    pub(crate) fn clip(&self, fragment: FragmentIndex, columns: &Range<u64>) -> Range<u64> {
        let end = self.stored_bytes(fragment).min(columns.end).max(columns.start);
        columns.start..end
    }

    pub(crate) fn check_columns(&self, columns: &Range<u64>) -> Result<()> {
        if columns.start > columns.end || columns.end > self.columns() {
            return Err(Error::invalid(format!(
                "columns {}..{} are outside of fragments of {} bytes",
                columns.start,
                columns.end,
                self.columns()
            )));
        }
        Ok(())
    }
}

pub(crate) fn check_fragment_bytes(fragment_bytes: u64) -> Result<()> {
    let whole = fragment_bytes.is_multiple_of(BLOCK_BYTES);
    if fragment_bytes == 0 || !whole || fragment_bytes > FRAGMENT_BYTES_MAX {
        return Err(Error::invalid(format!(
            "fragments of {fragment_bytes} bytes: the size must be a multiple of {BLOCK_BYTES} up \
             to {FRAGMENT_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// Cuts a range of an extent where fragments begin.
pub(crate) fn cut(range: Range<u64>, fragment_bytes: u64) -> impl Iterator<Item = FragmentColumns> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let (index, column) = (at / fragment_bytes, at % fragment_bytes);
        let bytes = (range.end - at).min(fragment_bytes - column);
        at += bytes;
        let fragment = FragmentIndex(u8::try_from(index).expect("a range lies within k fragments"));
        Some(FragmentColumns { fragment, columns: column..column + bytes })
    })
}

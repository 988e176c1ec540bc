//! Where the bytes of one extent lie: how long its fragments are, which of them a range touches.
//!
//! ```text
//!            column 0                                 F
//! fragment 0        [ bytes 0 .. F                    ]   F: a multiple of 64 KiB
//! fragment 1        [ bytes F .. 2F                   ]
//! fragment d-1      [ bytes (d-1)F .. length   ]······    short; d data fragments have bytes
//! fragment k-1      ··································    empty: exists nowhere
//! fragment k        [ parity, as long as fragment 0   ]
//! fragment k+m-1    [ parity                          ]
//! ```
//!
//! Column c of data fragment i is byte i·F + c of the extent; column c of a parity fragment is made
//! of column c of all data fragments. Where a data fragment has no byte it counts as zero (the dots):
//! known to everyone, neither stored nor sent.
//!
//! Invariants: 1 ≤ length ≤ k·F; F is a multiple of [`BLOCK_BYTES`] and at most
//! [`FRAGMENT_BYTES_MAX`]; fragment 0 is the longest, and every parity fragment is as long.

use std::ops::Range;

use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{Error, Result};

use crate::code::{Code, FRAGMENT_BYTES_MAX, FragmentIndex, Fragments};

/// The layout of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    code: Code,
    length: u64,
    fragment_bytes: u64,
}

/// Some columns of one fragment: bytes `columns` of what is stored as that fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The fragment.
    pub fragment: FragmentIndex,
    /// Which of its bytes.
    pub columns: Range<u64>,
}

impl Piece {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.columns.end - self.columns.start
    }
}

impl Geometry {
    /// The layout of an extent of `length` bytes, with fragments as short as can be.
    pub fn new(code: Code, length: u64) -> Result<Self> {
        let share = length.div_ceil(u64::from(code.k()));
        // Where rounding up would overflow, the length is refused anyway.
        let fragment_bytes = share.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(0);
        Self::with_fragment_bytes(code, length, fragment_bytes.max(BLOCK_BYTES))
    }

    /// The layout of an extent of `length` bytes whose fragments were cut every `fragment_bytes`:
    /// what a manifest says, and what an extent has whose length wasn't known when it began.
    pub fn with_fragment_bytes(code: Code, length: u64, fragment_bytes: u64) -> Result<Self> {
        let length_max = code.extent_bytes_max();
        if length == 0 || length > length_max {
            return Err(Error::invalid(format!(
                "an extent of {length} bytes: under {code} it takes 1 up to {length_max}"
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

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Bytes of the extent.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// F: every so many bytes the next data fragment begins.
    pub fn fragment_bytes(&self) -> u64 {
        self.fragment_bytes
    }

    /// How many columns there are: the length of fragment 0 and of every parity fragment.
    pub fn columns(&self) -> u64 {
        self.length.min(self.fragment_bytes)
    }

    /// Bytes that are stored as `fragment`. Zero: it exists nowhere, and nobody needs to hold it.
    pub fn stored_bytes(&self, fragment: FragmentIndex) -> u64 {
        if self.code.is_data(fragment) {
            let from = u64::from(fragment.0) * self.fragment_bytes;
            return self.length.saturating_sub(from).min(self.fragment_bytes);
        }
        if fragment.0 < self.code.total() { self.columns() } else { 0 }
    }

    /// The fragments that have bytes: these are to be stored.
    pub fn stored(&self) -> Fragments {
        self.code.fragments().filter(|fragment| self.stored_bytes(*fragment) > 0).collect()
    }

    /// How many data fragments have bytes, d: any d of the stored fragments give the extent back.
    pub fn needed(&self) -> u8 {
        let full = self.length.div_ceil(self.fragment_bytes);
        u8::try_from(full).expect("a geometry has at most k data fragments")
    }

    /// Bytes over all fragments.
    pub fn stored_bytes_total(&self) -> u64 {
        self.length + u64::from(self.code.m()) * self.columns()
    }

    /// The fragments under `range` (of the extent), in its order, and which bytes of each. An empty
    /// range touches none.
    pub fn pieces(&self, range: Range<u64>) -> Result<Vec<Piece>> {
        if range.start > range.end || range.end > self.length {
            return Err(Error::invalid(format!(
                "bytes {}..{} of an extent of {}",
                range.start, range.end, self.length
            )));
        }
        Ok(cut(range, self.fragment_bytes).collect())
    }

    /// Where the first byte of a piece of a data fragment stands in the extent.
    pub fn offset(&self, piece: &Piece) -> Option<u64> {
        let inside = piece.columns.start <= self.stored_bytes(piece.fragment);
        (self.code.is_data(piece.fragment) && inside)
            .then(|| u64::from(piece.fragment.0) * self.fragment_bytes + piece.columns.start)
    }

    /// The part of `columns` where `fragment` has bytes; empty, and within `columns`, where it has none.
    pub(crate) fn clip(&self, fragment: FragmentIndex, columns: &Range<u64>) -> Range<u64> {
        let end = self.stored_bytes(fragment).min(columns.end).max(columns.start);
        columns.start..end
    }

    pub(crate) fn check_columns(&self, columns: &Range<u64>) -> Result<()> {
        if columns.start > columns.end || columns.end > self.columns() {
            return Err(Error::invalid(format!(
                "columns {}..{} of fragments of {}",
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
            "fragments of {fragment_bytes} bytes: it takes a multiple of {BLOCK_BYTES} up to {FRAGMENT_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// Cuts a range of an extent where fragments begin.
pub(crate) fn cut(range: Range<u64>, fragment_bytes: u64) -> impl Iterator<Item = Piece> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let (index, column) = (at / fragment_bytes, at % fragment_bytes);
        let bytes = (range.end - at).min(fragment_bytes - column);
        at += bytes;
        let fragment = FragmentIndex(u8::try_from(index).expect("a range lies within k fragments"));
        Some(Piece { fragment, columns: column..column + bytes })
    })
}

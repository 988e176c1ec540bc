//! The streaming encoder: an extent's bytes go in as they come, blocks of fragments come out.
//!
//! Data goes through as it is, without a copy, cut where fragments begin. Parity is added up, column
//! by column, fragments in the order 0..k: fragment 0 writes, the others add. A column of parity is
//! ready once the last data fragment that has it went by, so parity leaves while that one does, and
//! memory is m fragments, from the first byte to the last fragment's.
//!
//! Invariants: `blocks` are the columns `released..` that fragment 0 has reached, every one of
//! [`PARITY_BLOCK_BYTES`] but the last; in each, m buffers of equal length.

use std::collections::VecDeque;

use bytes::Bytes;
use martlet_protocol::{Error, Result};

use crate::code::FragmentIndex;
use crate::codec::{Codec, STRIDE_BYTES, combine};
use crate::geometry::{Geometry, Piece, check_fragment_bytes, cut};

/// Bytes of a parity fragment that leave together.
pub const PARITY_BLOCK_BYTES: u64 = 256 * 1024;

#[expect(clippy::cast_possible_truncation, reason = "256 KiB fit anywhere")]
const BLOCK: usize = PARITY_BLOCK_BYTES as usize;
const _: () = assert!(BLOCK.is_multiple_of(STRIDE_BYTES));

/// Bytes of a fragment, to be sent to whoever stores it. Those of one fragment come in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The fragment.
    pub fragment: FragmentIndex,
    /// Where in it they belong.
    pub column: u64,
    /// The bytes.
    pub bytes: Bytes,
}

/// Takes the bytes of one extent in order.
#[derive(Debug)]
pub struct Encoder {
    codec: Codec,
    fragment_bytes: u64,
    /// The length, where it is known.
    length: Option<u64>,
    taken: u64,
    released: u64,
    blocks: VecDeque<Vec<Vec<u8>>>,
}

impl Encoder {
    /// An encoder for an extent of known length.
    pub fn new(codec: &Codec, geometry: &Geometry) -> Result<Self> {
        codec.check_geometry(geometry)?;
        Ok(Self::begin(codec, geometry.fragment_bytes(), Some(geometry.length())))
    }

    /// An encoder for an extent that may be anything up to k fragments of `fragment_bytes` long.
    ///
    /// What it costs if the extent turns out shorter: its data lies in fewer fragments, each full, and
    /// parity is as long as the first of them, so that space goes from (k+m)/k up to 1+m times the
    /// data; and parity waits for [`finish`](Self::finish) unless the last fragment is reached. The
    /// caller keeps `fragment_bytes` beside the length: it can't be told from it.
    pub fn of_unknown_length(codec: &Codec, fragment_bytes: u64) -> Result<Self> {
        check_fragment_bytes(fragment_bytes)?;
        Ok(Self::begin(codec, fragment_bytes, None))
    }

    fn begin(codec: &Codec, fragment_bytes: u64, length: Option<u64>) -> Self {
        let blocks = VecDeque::new();
        Self { codec: codec.clone(), fragment_bytes, length, taken: 0, released: 0, blocks }
    }

    /// Most bytes that it keeps: what admission reckons with.
    pub fn memory_bytes_max(&self) -> u64 {
        u64::from(self.codec.code().m()) * self.columns()
    }

    /// Bytes that it keeps now.
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(|sum| sum.capacity() as u64).sum()
    }

    /// Bytes taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Most bytes that it takes in all: the length, or as many as fit.
    pub fn room(&self) -> u64 {
        let code = self.codec.code();
        let most = (u64::from(code.k()) * self.fragment_bytes).min(code.extent_bytes_max());
        self.length.unwrap_or(most)
    }

    /// Takes the next bytes. Returns them as blocks of data fragments, and behind them what parity is
    /// ready. An error leaves the encoder as it was.
    pub fn push(&mut self, bytes: &Bytes) -> Result<Vec<Block>> {
        let end = self.taken + bytes.len() as u64;
        if end > self.room() {
            let room = self.room();
            return Err(Error::invalid(format!("{end} bytes for an extent of at most {room}")));
        }
        let mut out = Vec::new();
        let mut rest = bytes.clone();
        for piece in cut(self.taken..end, self.fragment_bytes) {
            let bytes = rest.split_to(size(piece.bytes()));
            self.add(&piece, &bytes);
            out.push(Block { fragment: piece.fragment, column: piece.columns.start, bytes });
        }
        self.taken = end;
        self.release(self.settled(), self.columns(), &mut out);
        Ok(out)
    }

    /// Ends the extent: the parity that is left, and the layout that it got.
    pub fn finish(mut self) -> Result<(Vec<Block>, Geometry)> {
        if let Some(length) = self.length
            && self.taken != length
        {
            return Err(Error::invalid(format!(
                "an extent of {length} bytes ended after {}",
                self.taken
            )));
        }
        let code = self.codec.code();
        let geometry = Geometry::with_fragment_bytes(code, self.taken, self.fragment_bytes)?;
        let mut out = Vec::new();
        self.release(geometry.columns(), geometry.columns(), &mut out);
        Ok((out, geometry))
    }

    /// Adds a piece of a data fragment to parity.
    fn add(&mut self, piece: &Piece, bytes: &[u8]) {
        let mut column = size(piece.columns.start - self.released);
        let mut rest = bytes;
        while !rest.is_empty() {
            let inside = column % BLOCK;
            let stride = STRIDE_BYTES - inside % STRIDE_BYTES;
            let (input, later) = rest.split_at(rest.len().min(stride));
            self.add_stride(piece.fragment, column / BLOCK, inside, input);
            column += input.len();
            rest = later;
        }
    }

    fn add_stride(&mut self, fragment: FragmentIndex, block: usize, inside: usize, input: &[u8]) {
        let first = fragment.0 == 0;
        if first && block == self.blocks.len() {
            let bytes = BLOCK.min(size(self.columns() - self.released) - block * BLOCK);
            let sums = self.codec.code().parity().map(|_| Vec::with_capacity(bytes));
            self.blocks.push_back(sums.collect());
        }
        for (number, sum) in self.blocks[block].iter_mut().enumerate() {
            if first {
                sum.resize(inside + input.len(), 0);
            }
            let sum = &mut sum[inside..inside + input.len()];
            combine(self.codec.coefficient(number, fragment), input, sum, first);
        }
    }

    /// Columns of parity, as far as is known.
    fn columns(&self) -> u64 {
        self.room().min(self.fragment_bytes)
    }

    /// How many columns of parity nothing will be added to any more.
    fn settled(&self) -> u64 {
        let room = self.room();
        if self.taken == room {
            return self.columns();
        }
        let last = room.div_ceil(self.fragment_bytes) - 1;
        self.taken.saturating_sub(last * self.fragment_bytes)
    }

    /// Hands out the whole blocks within the first `settled` of `columns`, the last one if it ends there.
    fn release(&mut self, settled: u64, columns: u64, out: &mut Vec<Block>) {
        while let Some(block) = self.blocks.front() {
            let bytes = block[0].len() as u64;
            let end = self.released + bytes;
            let whole = bytes == PARITY_BLOCK_BYTES || end == columns;
            if !whole || end > settled {
                return;
            }
            let sums = self.blocks.pop_front().expect("it is there");
            let column = self.released;
            let named = self.codec.code().parity().zip(sums);
            out.extend(named.map(|(fragment, sum)| Block { fragment, column, bytes: sum.into() }));
            self.released = end;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "lengths within an extent fit anywhere")]
pub(crate) fn size(bytes: u64) -> usize {
    bytes as usize
}

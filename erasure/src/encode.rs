//! Streaming encoder: bytes of an extent in, blocks of fragments out.
//!
//! Data passes through without a copy, cut where fragments begin. Parity is summed up column by
//! column over the fragments 0..k: fragment 0 overwrites, the others add. A column of parity is
//! complete after the last data fragment with this column. So parity is emitted while that fragment
//! passes, and memory is bounded by m fragments.
//!
//! Invariants: `blocks` are the columns from `released` that fragment 0 has reached, each of
//! [`PARITY_BLOCK_BYTES`] but the last; each has m buffers of equal length.

use std::collections::VecDeque;

use bytes::Bytes;
use martlet_protocol::{Error, Result};

use crate::code::FragmentIndex;
use crate::codec::{Codec, STRIDE_BYTES, combine};
use crate::geometry::{FragmentColumns, Geometry, check_fragment_bytes, cut};

/// Bytes of a parity fragment that are emitted together.
pub const PARITY_BLOCK_BYTES: u64 = 256 * 1024;

#[expect(clippy::cast_possible_truncation, reason = "256 KiB fit anywhere")]
const BLOCK: usize = PARITY_BLOCK_BYTES as usize;
const _: () = assert!(BLOCK.is_multiple_of(STRIDE_BYTES));

/// Bytes of a fragment, to be sent to its device. The blocks of one fragment come in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Fragment of the block.
    pub fragment: FragmentIndex,
    /// First column of the block within the fragment.
    pub column: u64,
    /// Bytes of the block.
    pub bytes: Bytes,
}

/// Encoder of one extent; accepts its bytes in order.
#[derive(Debug)]
pub struct Encoder {
    codec: Codec,
    fragment_bytes: u64,
    /// Length of the extent, if known.
    length: Option<u64>,
    taken: u64,
    released: u64,
    blocks: VecDeque<Vec<Vec<u8>>>,
}

impl Encoder {
    /// Creates an encoder for an extent of known length.
    pub fn new(codec: &Codec, geometry: &Geometry) -> Result<Self> {
        codec.check_geometry(geometry)?;
        Ok(Self::begin(codec, geometry.fragment_bytes(), Some(geometry.length())))
    }

    /// Creates an encoder for an extent of unknown length, up to k fragments of `fragment_bytes`.
    ///
    /// A shorter extent costs more: its data lies in fewer, full fragments, and parity is as long
    /// as the first of them. So the stored bytes are between (k+m)/k and 1+m times the data. Parity
    /// is only emitted by [`finish`](Self::finish) unless the last fragment is reached. The caller
    /// must store `fragment_bytes` beside the length, since it doesn't follow from the length.
    pub fn of_unknown_length(codec: &Codec, fragment_bytes: u64) -> Result<Self> {
        check_fragment_bytes(fragment_bytes)?;
        Ok(Self::begin(codec, fragment_bytes, None))
    }

    fn begin(codec: &Codec, fragment_bytes: u64, length: Option<u64>) -> Self {
        let blocks = VecDeque::new();
        Self { codec: codec.clone(), fragment_bytes, length, taken: 0, released: 0, blocks }
    }

    /// Most memory for parity in bytes, for admission control.
    pub fn memory_bytes_max(&self) -> u64 {
        u64::from(self.codec.code().m()) * self.columns()
    }

    /// Current memory for parity in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(|sum| sum.capacity() as u64).sum()
    }

    /// Bytes accepted so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Most bytes that the encoder accepts: the known length, or the longest extent that fits.
    pub fn room(&self) -> u64 {
        let code = self.codec.code();
        let most = (u64::from(code.k()) * self.fragment_bytes).min(code.extent_bytes_max());
        self.length.unwrap_or(most)
    }

    /// Accepts the next bytes. Returns them as blocks of data fragments, followed by completed
    /// parity. After an error the encoder is unchanged.
    pub fn push(&mut self, bytes: &Bytes) -> Result<Vec<Block>> {
        let end = self.taken + bytes.len() as u64;
        if end > self.room() {
            let room = self.room();
            return Err(Error::invalid(format!(
                "{end} bytes exceed the maximum of {room} for the extent"
            )));
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

    /// Ends the extent. Returns the remaining parity, and the extent's geometry.
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
    fn add(&mut self, piece: &FragmentColumns, bytes: &[u8]) {
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

    /// Number of parity columns, as far as known.
    fn columns(&self) -> u64 {
        self.room().min(self.fragment_bytes)
    }

    /// Number of complete parity columns.
    fn settled(&self) -> u64 {
        let room = self.room();
        if self.taken == room {
            return self.columns();
        }
        let last = room.div_ceil(self.fragment_bytes) - 1;
        self.taken.saturating_sub(last * self.fragment_bytes)
    }

    /// Emits the whole blocks within the first `settled` of `columns`; the last block may be
    /// shorter.
    fn release(&mut self, settled: u64, columns: u64, out: &mut Vec<Block>) {
        while let Some(block) = self.blocks.front() {
            let bytes = block[0].len() as u64;
            let end = self.released + bytes;
            let whole = bytes == PARITY_BLOCK_BYTES || end == columns;
            if !whole || end > settled {
                return;
            }
            let sums = self.blocks.pop_front().expect("the queue is not empty");
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

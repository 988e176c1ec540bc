//! Framing of extents on the wire: bytes that changed in transit are never used.
//!
//! ```text
//! │ bytes to the end of a block │ CRC32C │ a block │ CRC32C │ … │ the rest │ CRC32C │
//! ```
//! A frame ends at a block boundary of the extent (64 KiB). A node's reads end at block boundaries
//! too, so that a frame is part of one chunk and neither side copies bytes. Each frame is followed
//! by the CRC32C of its bytes, 4 bytes big-endian.
//!
//! The reader holds a frame until its checksum has come: 64 KiB beyond the connection's buffer.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use crc_fast::{CrcAlgorithm, Digest};
use futures::{Stream, StreamExt};

use crate::backend::ByteStream;
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;

const CHECKSUM_BYTES: usize = 4;

/// Bytes on the wire for a non-empty range.
pub(super) fn framed_length(range: &Range<u64>) -> u64 {
    let frames = range.end.div_ceil(BLOCK_BYTES) - range.start / BLOCK_BYTES;
    range.end - range.start + frames * CHECKSUM_BYTES as u64
}

/// Position in the frames of a range.
struct Frames {
    /// Offset of the next byte of the range.
    at: u64,
    /// End of the current frame; none after the last frame.
    frame_end: Option<u64>,
    end: u64,
    /// Checksum of the current frame so far.
    digest: Digest,
}

impl Frames {
    fn new(range: &Range<u64>) -> Self {
        let digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        let mut frames = Self { at: range.start, frame_end: None, end: range.end, digest };
        frames.begin();
        frames
    }

    fn begin(&mut self) {
        let block_end = (self.at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        self.frame_end = (self.at < self.end).then_some(block_end.min(self.end));
    }

    /// Splits off the bytes that belong to the current frame.
    fn take(&mut self, piece: &mut Bytes) -> Bytes {
        let owed = self.frame_end.map_or(0, |end| end - self.at);
        let length = usize::try_from(owed).unwrap_or(usize::MAX).min(piece.len());
        let bytes = piece.split_to(length);
        self.digest.update(&bytes);
        self.at += length as u64;
        bytes
    }

    /// Returns true if the current frame lacks only its checksum.
    fn is_full(&self) -> bool {
        self.frame_end == Some(self.at)
    }

    fn is_over(&self) -> bool {
        self.frame_end.is_none()
    }

    /// Ends the frames early.
    fn stop(&mut self) {
        self.frame_end = None;
    }

    /// Ends the current frame and returns its checksum.
    fn close(&mut self) -> [u8; CHECKSUM_BYTES] {
        let sum = u32::try_from(self.digest.finalize_reset()).expect("a CRC32C has 32 bits");
        self.begin();
        sum.to_be_bytes()
    }
}

/// Bytes of a range with their frames' checksums, on the sending side.
pub(super) struct FramedStream {
    source: ByteStream,
    piece: Bytes,
    frames: Frames,
}

impl FramedStream {
    /// Frames the bytes of `source`, which must yield the non-empty `range`.
    pub(super) fn new(source: ByteStream, range: &Range<u64>) -> Self {
        Self { source, piece: Bytes::new(), frames: Frames::new(range) }
    }
}

impl Stream for FramedStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.frames.is_over() {
            return Poll::Ready(None);
        }
        if this.frames.is_full() {
            let checksum = this.frames.close();
            return Poll::Ready(Some(Ok(Bytes::copy_from_slice(&checksum))));
        }
        while this.piece.is_empty() {
            let next = ready!(this.source.poll_next_unpin(context));
            match next.unwrap_or_else(|| Err(Error::unavailable("the extent ended early"))) {
                Ok(piece) => this.piece = piece,
                Err(error) => {
                    this.frames.stop();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(Some(Ok(this.frames.take(&mut this.piece))))
    }
}

/// Bytes of a range on the receiving side: released once their frame's checksum matches.
pub(super) struct UnframedStream {
    frames: Frames,
    /// Bytes of the current frame.
    held: Vec<Bytes>,
    /// Received bytes of the current frame's checksum.
    checksum: Vec<u8>,
    /// Bytes of verified frames.
    ready: VecDeque<Bytes>,
}

impl UnframedStream {
    /// Creates a receiver for the non-empty `range`.
    pub(super) fn new(range: &Range<u64>) -> Self {
        let checksum = Vec::with_capacity(CHECKSUM_BYTES);
        Self { frames: Frames::new(range), held: Vec::new(), checksum, ready: VecDeque::new() }
    }

    /// Adds a received chunk.
    ///
    /// # Errors
    /// Kind `Unavailable` if a frame's checksum differs, or more bytes arrive than requested.
    pub(super) fn push(&mut self, mut piece: Bytes) -> Result<()> {
        while !piece.is_empty() {
            if self.frames.is_over() {
                return Err(Error::unavailable("more bytes came than requested"));
            }
            if !self.frames.is_full() {
                let bytes = self.frames.take(&mut piece);
                self.held.push(bytes);
                continue;
            }
            let length = piece.len().min(CHECKSUM_BYTES - self.checksum.len());
            self.checksum.extend_from_slice(&piece[..length]);
            piece.advance(length);
            if self.checksum.len() == CHECKSUM_BYTES {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    fn end_frame(&mut self) -> Result<()> {
        if self.frames.close().as_slice() != self.checksum.as_slice() {
            return Err(Error::unavailable("a checksum differs"));
        }
        self.checksum.clear();
        self.ready.extend(self.held.drain(..));
        Ok(())
    }

    /// Takes the next verified bytes, if any.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Returns true after the last frame.
    pub(super) fn is_over(&self) -> bool {
        self.frames.is_over()
    }

    /// Drops all held bytes.
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.ready.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    /// Cuts `bytes` into chunks of the lengths in `cuts`, repeated.
    fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
        let (mut rest, mut found) = (bytes, Vec::new());
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, more) = rest.split_at(rest.len().min(*cut));
            found.push(Bytes::copy_from_slice(piece));
            rest = more;
        }
        found
    }

    fn framed(bytes: &[u8], range: &Range<u64>, cuts: &[usize]) -> Vec<u8> {
        let source = futures::stream::iter(pieces(bytes, cuts).into_iter().map(Ok)).boxed();
        let sent: Vec<_> = FramedStream::new(source, range).collect().now_or_never().unwrap();
        sent.into_iter().map(Result::unwrap).collect::<Vec<_>>().concat()
    }

    /// Returns the bytes before an error, and true if all frames came.
    fn unframed(sent: &[u8], range: &Range<u64>, cuts: &[usize]) -> (Vec<u8>, bool) {
        let (mut frames, mut bytes) = (UnframedStream::new(range), Vec::new());
        for piece in pieces(sent, cuts) {
            let pushed = frames.push(piece);
            while let Some(piece) = frames.pop() {
                bytes.extend_from_slice(&piece);
            }
            if pushed.is_err() {
                return (bytes, false);
            }
        }
        (bytes, frames.is_over())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bytes_come_out_as_they_went_in_and_no_flipped_bit_does(
            start in 0..3 * BLOCK_BYTES,
            length in 1..4 * BLOCK_BYTES,
            out in prop::collection::vec(1_usize..200_000, 1..4),
            back in prop::collection::vec(1_usize..200_000, 1..4),
            flip in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let range = start..start + length;
            let bytes: Vec<u8> = range.clone().map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut sent = framed(&bytes, &range, &out);
            prop_assert_eq!(sent.len() as u64, framed_length(&range));
            prop_assert_eq!(unframed(&sent, &range, &back), (bytes.clone(), true));
            prop_assert!(!unframed(&sent[..sent.len() - 1], &range, &back).1, "cut short");
            let surplus = [sent.as_slice(), b"x"].concat();
            prop_assert!(!unframed(&surplus, &range, &back).1, "a byte too many");

            let at = flip.index(sent.len());
            sent[at] ^= 1 << bit;
            let (came, whole) = unframed(&sent, &range, &back);
            prop_assert!(!whole && bytes.starts_with(&came), "bit {} of byte {}", bit, at);
        }
    }

    #[test]
    fn frames_end_where_blocks_end() {
        let block = BLOCK_BYTES;
        let lengths = [(0..1, 5), (0..block, block + 4), (block - 1..block + 1, 10)];
        for (range, length) in lengths {
            assert_eq!(framed_length(&range), length, "{range:?}");
        }
        let sent = framed(b"123456789", &(0..9), &[4]);
        assert_eq!(sent[9..], 0xe306_9283_u32.to_be_bytes(), "CRC32C");
    }

    #[test]
    fn a_source_that_ends_early_is_no_whole() {
        let source = futures::stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed();
        let sent: Vec<_> =
            FramedStream::new(source, &(0..4)).collect::<Vec<_>>().now_or_never().unwrap();
        assert!(sent.len() == 2 && sent[1].is_err(), "an error, and nothing after it");
    }
}

//! Queue of body chunks.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Chunks shorter than this are joined: their overhead would be many times their length.
const SHORT_BYTES: usize = 4096;

/// Chunks of a body in order. Their memory is bounded by their bytes, however short the chunks are.
#[derive(Debug, Default)]
pub struct Pieces {
    whole: VecDeque<Bytes>,
    /// Short chunks at the end, joined.
    short: BytesMut,
    bytes: usize,
}

impl Pieces {
    /// Number of bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a chunk.
    pub fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() < SHORT_BYTES {
            self.short.extend_from_slice(&piece);
        } else {
            self.join();
            self.whole.push_back(piece);
        }
    }

    /// Takes up to `bytes` bytes from the front.
    pub fn take(&mut self, bytes: usize) -> Vec<Bytes> {
        self.join();
        let mut left = bytes.min(self.bytes);
        self.bytes -= left;
        let mut taken = Vec::new();
        while left > 0
            && let Some(mut piece) = self.whole.pop_front()
        {
            if piece.len() > left {
                let rest = piece.split_off(left);
                self.whole.push_front(rest);
            }
            left -= piece.len();
            taken.push(piece);
        }
        taken
    }

    /// Takes all bytes.
    pub fn take_all(&mut self) -> Vec<Bytes> {
        self.take(self.bytes)
    }

    fn join(&mut self) {
        if !self.short.is_empty() {
            self.whole.push_back(self.short.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tiny_pieces_take_no_more_than_their_bytes() {
        let mut pieces = Pieces::default();
        for at in 0..1 << 20 {
            pieces.push(Bytes::copy_from_slice(&[u8::try_from(at % 251).unwrap()]));
            if at % 5000 == 0 {
                pieces.push(Bytes::from(vec![7; SHORT_BYTES]));
            }
        }
        let joined = pieces.take_all();
        assert!(joined.len() < 500, "{}", joined.len());
    }

    proptest! {
        #[test]
        fn they_come_out_as_they_went_in(
            lengths in proptest::collection::vec(0usize..9000, 0..20),
            cuts in proptest::collection::vec(0usize..20_000, 0..8),
        ) {
            let mut next = 0u8;
            let mut whole = Vec::new();
            let mut pieces = Pieces::default();
            for length in lengths {
                let piece: Vec<u8> = (0..length).map(|_| { next = next.wrapping_add(7); next }).collect();
                whole.extend_from_slice(&piece);
                pieces.push(piece.into());
            }
            prop_assert_eq!(pieces.bytes(), whole.len());
            let mut out = Vec::new();
            for cut in cuts {
                let taken = pieces.take(cut).concat();
                prop_assert_eq!(taken.len(), cut.min(whole.len() - out.len()));
                out.extend(taken);
            }
            out.extend(pieces.take_all().concat());
            prop_assert_eq!(out, whole);
            prop_assert_eq!(pieces.bytes(), 0);
        }
    }
}

//! Queue of body chunks.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Chunks shorter than this are joined: their overhead would be many times their length.
const SHORT_BYTES: usize = 4096;

/// Chunks of a body in order. Their memory is bounded by their bytes, however short the chunks are.
#[derive(Debug, Default)]
pub struct ChunkQueue {
    whole: VecDeque<Bytes>,
    /// Short chunks at the end, joined.
    short: BytesMut,
    bytes: usize,
}

impl ChunkQueue {
    /// Number of bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a chunk.
    pub fn push(&mut self, chunk: Bytes) {
        self.bytes += chunk.len();
        if chunk.len() < SHORT_BYTES {
            self.short.extend_from_slice(&chunk);
        } else {
            self.join();
            self.whole.push_back(chunk);
        }
    }

    /// Takes up to `bytes` bytes from the front.
    pub fn take(&mut self, bytes: usize) -> Vec<Bytes> {
        self.join();
        let mut left = bytes.min(self.bytes);
        self.bytes -= left;
        let mut taken = Vec::new();
        while left > 0
            && let Some(mut chunk) = self.whole.pop_front()
        {
            if chunk.len() > left {
                let rest = chunk.split_off(left);
                self.whole.push_front(rest);
            }
            left -= chunk.len();
            taken.push(chunk);
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
    fn tiny_chunks_take_no_more_than_their_bytes() {
        let mut chunks = ChunkQueue::default();
        for at in 0..1 << 20 {
            chunks.push(Bytes::copy_from_slice(&[u8::try_from(at % 251).unwrap()]));
            if at % 5000 == 0 {
                chunks.push(Bytes::from(vec![7; SHORT_BYTES]));
            }
        }
        let joined = chunks.take_all();
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
            let mut chunks = ChunkQueue::default();
            for length in lengths {
                let chunk: Vec<u8> = (0..length).map(|_| { next = next.wrapping_add(7); next }).collect();
                whole.extend_from_slice(&chunk);
                chunks.push(chunk.into());
            }
            prop_assert_eq!(chunks.bytes(), whole.len());
            let mut out = Vec::new();
            for cut in cuts {
                let taken = chunks.take(cut).concat();
                prop_assert_eq!(taken.len(), cut.min(whole.len() - out.len()));
                out.extend(taken);
            }
            out.extend(chunks.take_all().concat());
            prop_assert_eq!(out, whole);
            prop_assert_eq!(chunks.bytes(), 0);
        }
    }
}

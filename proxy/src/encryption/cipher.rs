//! Encryption of chunks under a segment's key: AES-256-GCM with the chunk's number and a last-chunk
//! flag as nonce.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use martlet_protocol::{Error, Result};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::layout::{CHUNK, Segment, TAG, TAG_BYTES};

/// The key of one segment, never used for another.
pub(crate) struct SegmentKey(LessSafeKey);

/// The AES key of these bytes.
pub(super) fn aes(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("the key has 32 bytes"))
}

fn nonce(index: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[0] = is_last.into();
    bytes[4..].copy_from_slice(&index.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl SegmentKey {
    pub(super) fn new(bytes: &[u8; 32]) -> Self {
        Self(aes(bytes))
    }

    /// Encrypts bytes that begin with chunk `first`, and appends them to `sealed`. All chunks are
    /// full, except the last of the segment.
    pub(super) fn seal(
        &self,
        first: u64,
        plain: &[Bytes],
        ends: bool,
        mut sealed: BytesMut,
    ) -> Bytes {
        let mut left: usize = plain.iter().map(Bytes::len).sum();
        sealed.reserve(left + left.div_ceil(CHUNK) * TAG);
        let mut plain = plain.iter().cloned();
        let mut buffer = Bytes::new();
        let mut index = first;
        while left > 0 {
            let length = left.min(CHUNK);
            let start = sealed.len();
            while sealed.len() < start + length {
                if buffer.is_empty() {
                    buffer = plain.next().expect("the plain bytes are as long as the body");
                }
                let missing = start + length - sealed.len();
                sealed.extend_from_slice(&buffer.split_to(missing.min(buffer.len())));
            }
            left -= length;
            let nonce = nonce(index, ends && left == 0);
            let text = &mut sealed[start..];
            let tag = self.0.seal_in_place_separate_tag(nonce, Aad::empty(), text);
            sealed.extend_from_slice(tag.expect("a chunk is short").as_ref());
            index += 1;
        }
        sealed.freeze()
    }

    /// Decrypts `chunks` of a segment from their stored bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](martlet_protocol::ErrorKind::Corrupt) for a wrong tag or length.
    pub(super) fn open(
        &self,
        segment: Segment,
        chunks: Range<u64>,
        mut stored: BytesMut,
    ) -> Result<Vec<Bytes>> {
        let last = segment.chunks() - 1;
        let mut opened = Vec::new();
        for index in chunks {
            let length = usize::try_from(segment.chunk_bytes(index) + TAG_BYTES);
            let length = length.expect("a chunk is short");
            if stored.len() < length {
                return Err(torn());
            }
            let mut chunk = stored.split_to(length);
            let text = self.0.open_in_place(nonce(index, index == last), Aad::empty(), &mut chunk);
            text.map_err(|_| Error::corrupt(format!("chunk {index} failed decryption")))?;
            chunk.truncate(length - TAG);
            opened.push(chunk.freeze());
        }
        if stored.is_empty() { Ok(opened) } else { Err(torn()) }
    }
}

fn torn() -> Error {
    Error::corrupt("the number of encrypted bytes is wrong")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Bytes {
        (0..length).map(|at| u8::try_from(at * 31 % 251).expect("below 251")).collect()
    }

    fn key(byte: u8) -> SegmentKey {
        SegmentKey::new(&[byte; 32])
    }

    fn sealed(plain: &Bytes) -> BytesMut {
        BytesMut::from(&key(1).seal(0, std::slice::from_ref(plain), true, BytesMut::new())[..])
    }

    fn opened(length: usize, stored: BytesMut) -> Result<Vec<u8>> {
        let segment = Segment { bytes: length as u64, salted: false };
        let chunks = key(1).open(segment, 0..segment.chunks(), stored)?;
        Ok(chunks.concat())
    }

    #[test]
    fn every_length_around_a_boundary_comes_back() {
        for length in [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 1, 3 * CHUNK + 5] {
            let plain = bytes(length);
            let stored = sealed(&plain);
            let segment = Segment { bytes: length as u64, salted: false };
            assert_eq!(stored.len() as u64, segment.stored());
            assert!(!stored.windows(32.min(length)).any(|it| length > 31 && it == &plain[..32]));
            assert_eq!(opened(length, stored).unwrap(), plain);
        }
    }

    #[test]
    fn chunks_of_any_size_encrypt_to_equal_bytes() {
        let plain = bytes(4 * CHUNK + 77);
        for size in [1000, CHUNK, CHUNK + 1, plain.len()] {
            let mut rest = plain.clone();
            let chunks: Vec<_> = std::iter::from_fn(|| {
                (!rest.is_empty()).then(|| rest.split_to(size.min(rest.len())))
            })
            .collect();
            let whole = key(1).seal(0, &chunks, true, BytesMut::new());
            assert_eq!(whole, sealed(&plain));
        }
        let first = key(1).seal(0, &[plain.slice(..2 * CHUNK)], false, BytesMut::new());
        let both = key(1).seal(2, &[plain.slice(2 * CHUNK..)], true, BytesMut::from(&first[..]));
        assert_eq!(both, sealed(&plain));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let length = CHUNK + 3;
        let stored = sealed(&bytes(length));
        for at in [0, CHUNK - 1, CHUNK, CHUNK + TAG - 1, CHUNK + TAG, stored.len() - 1] {
            let mut flipped = stored.clone();
            flipped[at] ^= 1;
            assert!(opened(length, flipped).is_err(), "{at}");
        }
        let segment = Segment { bytes: length as u64, salted: false };
        assert!(key(2).open(segment, 0..2, stored).is_err(), "another key");
    }

    #[test]
    fn chunks_can_not_be_exchanged_nor_the_end_be_cut_off() {
        let length = 3 * CHUNK;
        let stored = sealed(&bytes(length));
        let chunk = |at: usize| &stored[at * (CHUNK + TAG)..(at + 1) * (CHUNK + TAG)];
        let exchanged: Vec<u8> = [chunk(1), chunk(0), chunk(2)].concat();
        assert!(opened(length, BytesMut::from(&exchanged[..])).is_err());
        let repeated: Vec<u8> = [chunk(0), chunk(0), chunk(2)].concat();
        assert!(opened(length, BytesMut::from(&repeated[..])).is_err());
        // An entry with too small a size: its last chunk isn't marked as the last.
        let cut: Vec<u8> = [chunk(0), chunk(1)].concat();
        assert!(opened(2 * CHUNK, BytesMut::from(&cut[..])).is_err());
        assert!(opened(length, BytesMut::from(&cut[..])).is_err());
        let more: Vec<u8> = [&stored[..], &[0]].concat();
        assert!(opened(length, BytesMut::from(&more[..])).is_err());
    }

    #[test]
    fn chunks_in_the_middle_open_by_themselves() {
        let plain = bytes(4 * CHUNK + 9);
        let stored = sealed(&plain);
        let segment = Segment { bytes: plain.len() as u64, salted: false };
        let middle = BytesMut::from(&stored[CHUNK + TAG..3 * (CHUNK + TAG)]);
        let opened = key(1).open(segment, 1..3, middle).unwrap().concat();
        assert_eq!(opened, plain[CHUNK..3 * CHUNK]);
    }
}

//! Hashes of an extent that its sender computes once, for all of its copies.
//!
//! A node hashes what it stores, unless the sender of an extent brings the hashes: BLAKE3 of the
//! whole, and CRC32C of each block. They follow the bytes. The node computes the CRC32C of each
//! block in the buffer that it writes, and refuses an extent whose checksums differ.

use std::sync::{Arc, OnceLock};

use crc_fast::{CrcAlgorithm, Digest};

use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;

const CRC_BYTES: usize = 4;
const BLAKE3_BYTES: usize = 32;

/// Hashes of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentHashes {
    /// BLAKE3 of all bytes.
    pub blake3: [u8; 32],
    /// CRC32C of each 64 KiB block.
    pub crcs: Vec<u32>,
}

/// Hashes of an extent that is being written. The sender sets them before the stream of bytes ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentHashes(Arc<OnceLock<ExtentHashes>>);

/// Computes the hashes of an extent of known length.
#[derive(Debug)]
pub struct ExtentHasher {
    whole: blake3::Hasher,
    block: Digest,
    crcs: Vec<u32>,
    /// Bytes that the current block lacks.
    block_left: usize,
    bytes_left: u64,
    sent: SentHashes,
}

impl SentHashes {
    /// Sets the hashes, once.
    pub fn set(&self, hashes: ExtentHashes) {
        // A second sender of the same bytes has the same hashes.
        let _ = self.0.set(hashes);
    }

    /// Returns the hashes after the last byte.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) before they are set.
    pub fn get(&self) -> Result<&ExtentHashes> {
        self.0.get().ok_or_else(|| Error::internal("an extent ended before its hashes were set"))
    }

    /// Returns the BLAKE3 of an extent whose blocks have these checksums on arrival.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if they differ from those that the
    /// sender computed: bytes changed on the way.
    pub fn verify(&self, crcs: &[u32]) -> Result<[u8; 32]> {
        let hashes = self.get()?;
        if hashes.crcs != crcs {
            return Err(Error::unavailable("an extent's bytes changed on their way to the device"));
        }
        Ok(hashes.blake3)
    }
}

impl ExtentHashes {
    /// Length of the encoded hashes of an extent of `length` bytes.
    pub const fn encoded_bytes(length: u64) -> u64 {
        length.div_ceil(BLOCK_BYTES) * CRC_BYTES as u64 + BLAKE3_BYTES as u64
    }

    /// Encodes the hashes: CRC32C of each block, big-endian, then BLAKE3.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.crcs.len() * CRC_BYTES + BLAKE3_BYTES);
        for crc in &self.crcs {
            bytes.extend_from_slice(&crc.to_be_bytes());
        }
        bytes.extend_from_slice(&self.blake3);
        bytes
    }

    /// Decodes [`Self::encode`]'s bytes; none if their length is wrong.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (crcs, blake3) = bytes.split_last_chunk::<BLAKE3_BYTES>()?;
        let (crcs, rest) = crcs.as_chunks::<CRC_BYTES>();
        let crcs = crcs.iter().map(|crc| u32::from_be_bytes(*crc)).collect();
        rest.is_empty().then_some(Self { blake3: *blake3, crcs })
    }
}

impl ExtentHasher {
    /// Creates a hasher for an extent of `length` bytes.
    pub fn new(length: u64) -> Self {
        Self {
            whole: blake3::Hasher::new(),
            block: Digest::new(CrcAlgorithm::Crc32Iscsi),
            crcs: Vec::new(),
            block_left: BLOCK,
            bytes_left: length,
            sent: SentHashes::default(),
        }
    }

    /// Number of bytes to come.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// The hashes to come.
    pub fn sent(&self) -> &SentHashes {
        &self.sent
    }

    /// Adds bytes. The last ones set the hashes, so they are added before they are sent.
    pub fn update(&mut self, bytes: &[u8]) {
        self.whole.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (block, after) = rest.split_at(rest.len().min(self.block_left));
            self.block.update(block);
            self.block_left -= block.len();
            if self.block_left == 0 {
                self.end_block();
            }
            rest = after;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        if self.bytes_left == 0 && !bytes.is_empty() {
            self.finish();
        }
    }

    fn end_block(&mut self) {
        let crc = u32::try_from(self.block.finalize_reset()).expect("a CRC32C has 32 bits");
        self.crcs.push(crc);
        self.block_left = BLOCK;
    }

    fn finish(&mut self) {
        if self.block_left < BLOCK {
            self.end_block();
        }
        let blake3 = *self.whole.finalize().as_bytes();
        self.sent.set(ExtentHashes { blake3, crcs: std::mem::take(&mut self.crcs) });
    }
}

/// [`BLOCK_BYTES`] for slices.
#[expect(clippy::cast_possible_truncation, reason = "64 KiB fits anywhere")]
const BLOCK: usize = BLOCK_BYTES as usize;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at * 7 % 251).expect("below 251")).collect()
    }

    #[test]
    fn hashes_are_those_of_the_bytes_however_they_are_cut() {
        for length in [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 77] {
            let bytes = bytes(length);
            for size in [1000, BLOCK, BLOCK + 1, length] {
                let mut hasher = ExtentHasher::new(length as u64);
                let sent = hasher.sent().clone();
                for chunk in bytes.chunks(size) {
                    assert!(sent.get().is_err());
                    hasher.update(chunk);
                }
                let hashes = sent.get().unwrap();
                assert_eq!(hashes.blake3, *blake3::hash(&bytes).as_bytes());
                let crcs: Vec<u32> = bytes.chunks(BLOCK).map(crc_fast::crc32_iscsi).collect();
                assert_eq!(hashes.crcs, crcs, "{length} bytes by {size}");
                let encoded = hashes.encode();
                assert_eq!(encoded.len() as u64, ExtentHashes::encoded_bytes(length as u64));
                assert_eq!(ExtentHashes::decode(&encoded).as_ref(), Some(hashes));
            }
        }
    }

    #[test]
    fn other_blocks_are_refused() {
        let sent = SentHashes::default();
        assert!(sent.verify(&[1]).is_err(), "not set yet");
        sent.set(ExtentHashes { blake3: [9; 32], crcs: vec![1, 2] });
        assert_eq!(sent.verify(&[1, 2]).unwrap(), [9; 32]);
        for wrong in [&[1, 3][..], &[1], &[1, 2, 3], &[]] {
            assert!(sent.verify(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn other_lengths_are_no_hashes() {
        assert!(ExtentHashes::decode(&[0; 31]).is_none());
        assert!(ExtentHashes::decode(&[0; 35]).is_none());
        assert!(ExtentHashes::decode(&[0; 32]).unwrap().crcs.is_empty());
    }
}

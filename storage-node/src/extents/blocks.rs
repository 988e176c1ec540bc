//! Hashes of an extent: BLAKE3 of the whole, and CRC32C of each block, the unit of verification.

use martlet_protocol::limits::BLOCK_BYTES;

/// [`BLOCK_BYTES`] for slices.
#[expect(clippy::cast_possible_truncation, reason = "64 KiB fits anywhere")]
pub(super) const BLOCK: usize = BLOCK_BYTES as usize;

/// Hashes an extent's bytes, given in order. All chunks but the last are whole blocks.
#[derive(Debug, Default)]
pub(super) struct BlockHasher {
    whole: blake3::Hasher,
    crcs: Vec<u32>,
    length: u64,
}

impl BlockHasher {
    pub(super) fn update(&mut self, piece: &[u8]) {
        debug_assert!(self.length.is_multiple_of(BLOCK_BYTES), "only the last piece may be odd");
        self.whole.update(piece);
        self.crcs.extend(piece.chunks(BLOCK).map(crc_fast::crc32_iscsi));
        self.length += piece.len() as u64;
    }

    /// Number of bytes hashed.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns BLAKE3 of all bytes, and CRC32C of each block.
    pub(super) fn finish(&mut self) -> ([u8; 32], Vec<u32>) {
        (*self.whole.finalize().as_bytes(), std::mem::take(&mut self.crcs))
    }
}

/// Returns true if `bytes`, from the beginning of block `first` on, match the checksums.
pub(super) fn verify(bytes: &[u8], crcs: &[u32], first: usize) -> bool {
    let expected = crcs.get(first..).unwrap_or_default();
    bytes.len().div_ceil(BLOCK) <= expected.len()
        && bytes
            .chunks(BLOCK)
            .zip(expected)
            .all(|(block, crc)| crc_fast::crc32_iscsi(block) == *crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_own_checksum() {
        let bytes: Vec<u8> = (0..BLOCK * 2 + 5).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut hasher = BlockHasher::default();
        hasher.update(&bytes[..BLOCK]);
        hasher.update(&bytes[BLOCK..]);
        assert_eq!(hasher.length(), bytes.len() as u64);
        let (hash, crcs) = hasher.finish();
        assert_eq!(hash, *blake3::hash(&bytes).as_bytes());
        assert_eq!(crcs.len(), 3);
        assert!(verify(&bytes, &crcs, 0));
        assert!(verify(&bytes[BLOCK..], &crcs, 1));
        assert!(!verify(&bytes[BLOCK..], &crcs, 0));
        assert!(!verify(&bytes, &crcs, 1), "more blocks than checksums");
        let mut flipped = bytes.clone();
        flipped[BLOCK * 2] ^= 1;
        assert!(!verify(&flipped, &crcs, 0));
        assert!(verify(&flipped[..BLOCK * 2], &crcs, 0));
    }

    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
    }
}

//! Hashes of an extent: BLAKE3 of the whole, and CRC32C of each block, the unit of verification.
//!
//! The sender of an extent may bring its hashes. Then the checksums of the blocks are compared, and
//! the BLAKE3 is the sender's.

use martlet_protocol::Result;
use martlet_protocol::backend::SentHashes;
use martlet_protocol::limits::BLOCK_BYTES;

/// [`BLOCK_BYTES`] for slices.
#[expect(clippy::cast_possible_truncation, reason = "64 KiB fits anywhere")]
pub(super) const BLOCK: usize = BLOCK_BYTES as usize;

/// Hashes an extent's bytes, given in order. All chunks but the last are whole blocks.
#[derive(Debug, Default)]
pub(super) struct BlockHasher {
    whole: WholeHash,
    crcs: Vec<u32>,
    length: u64,
}

/// Source of the BLAKE3 of the whole.
#[derive(Debug)]
enum WholeHash {
    Own(Box<blake3::Hasher>),
    Sent(SentHashes),
}

impl Default for WholeHash {
    fn default() -> Self {
        Self::Own(Box::default())
    }
}

impl BlockHasher {
    /// A hasher that compares with the hashes of the sender, if there are any.
    pub(super) fn new(sent: Option<SentHashes>) -> Self {
        let whole = sent.map_or_else(WholeHash::default, WholeHash::Sent);
        Self { whole, ..Self::default() }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        debug_assert!(self.length.is_multiple_of(BLOCK_BYTES), "only the last piece may be odd");
        if let WholeHash::Own(whole) = &mut self.whole {
            whole.update(piece);
        }
        self.crcs.extend(piece.chunks(BLOCK).map(crc_fast::crc32_iscsi));
        self.length += piece.len() as u64;
    }

    /// Number of bytes hashed.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns BLAKE3 of all bytes, and CRC32C of each block.
    ///
    /// # Errors
    /// Checksums that differ from those of the sender.
    pub(super) fn finish(&mut self) -> Result<([u8; 32], Vec<u32>)> {
        let blake3 = match &self.whole {
            WholeHash::Own(whole) => *whole.finalize().as_bytes(),
            WholeHash::Sent(sent) => sent.verify(&self.crcs)?,
        };
        Ok((blake3, std::mem::take(&mut self.crcs)))
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
    use martlet_protocol::ErrorKind;
    use martlet_protocol::backend::ExtentHasher;

    use super::*;

    #[test]
    fn every_block_has_its_own_checksum() {
        let bytes: Vec<u8> = (0..BLOCK * 2 + 5).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut hasher = BlockHasher::default();
        hasher.update(&bytes[..BLOCK]);
        hasher.update(&bytes[BLOCK..]);
        assert_eq!(hasher.length(), bytes.len() as u64);
        let (hash, crcs) = hasher.finish().unwrap();
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
    fn hashes_of_the_sender_are_compared() {
        let bytes = vec![3; BLOCK + 9];
        let mut sender = ExtentHasher::new(bytes.len() as u64);
        let finish = |bytes: &[u8], sent: &SentHashes| {
            let mut hasher = BlockHasher::new(Some(sent.clone()));
            hasher.update(bytes);
            hasher.finish()
        };
        let sent = sender.sent().clone();
        assert!(finish(&bytes, &sent).is_err(), "the hashes have not come yet");
        sender.update(&bytes);
        assert_eq!(finish(&bytes, &sent).unwrap().0, *blake3::hash(&bytes).as_bytes());
        for at in [0, BLOCK - 1, BLOCK, BLOCK + 8] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let error = finish(&flipped, &sent).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        assert!(finish(&bytes[..BLOCK], &sent).is_err());
    }

    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
    }
}

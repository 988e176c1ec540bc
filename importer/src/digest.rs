//! Hashes of a stream: the CRC64NVME that the target verifies, and the hash that the source claims.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum_combine};
use md5::{Digest as _, Md5};

use crate::etag::Claim;

/// Hash that a claim needs besides CRC64NVME.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NeededHash {
    None,
    Crc(CrcAlgorithm),
    Md5,
}

impl NeededHash {
    /// Returns the hash that verifies a claim.
    pub(crate) fn of(claim: Claim) -> Self {
        match claim {
            Claim::Checksum(full) if full.algorithm == CrcAlgorithm::Crc64Nvme => Self::None,
            Claim::Checksum(full) => Self::Crc(full.algorithm),
            Claim::Md5(_) | Claim::Parts { .. } => Self::Md5,
            Claim::None => Self::None,
        }
    }
}

/// Hashes of a stream so far.
pub(crate) struct StreamDigest {
    crc64: crc_fast::Digest,
    other: Option<(CrcAlgorithm, crc_fast::Digest)>,
    md5: Option<Md5>,
    bytes: u64,
}

/// Hashes of a finished stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StreamHashes {
    pub(crate) bytes: u64,
    pub(crate) crc64: u64,
    /// Another CRC of the bytes, if it was needed.
    other: Option<u64>,
    /// MD5 of the bytes, if it was needed.
    pub(crate) md5: Option<[u8; 16]>,
}

impl StreamDigest {
    /// Begins a stream.
    pub(crate) fn new(needed: NeededHash) -> Self {
        let other = match needed {
            NeededHash::Crc(algorithm) => Some((algorithm, crc_fast::Digest::new(algorithm))),
            NeededHash::None | NeededHash::Md5 => None,
        };
        Self {
            crc64: crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme),
            other,
            md5: (needed == NeededHash::Md5).then(Md5::new),
            bytes: 0,
        }
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc64.update(bytes);
        if let Some((_, digest)) = &mut self.other {
            digest.update(bytes);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    /// Returns the hashes.
    pub(crate) fn hashes(&self) -> StreamHashes {
        StreamHashes {
            bytes: self.bytes,
            crc64: self.crc64.finalize(),
            other: self.other.as_ref().map(|(_, digest)| digest.finalize()),
            md5: self.md5.clone().map(|md5| md5.finalize().into()),
        }
    }
}

impl StreamHashes {
    /// Returns true if the bytes are those of the claim. A claim about parts is not decided here.
    pub(crate) fn fulfil(&self, claim: Claim) -> bool {
        match claim {
            Claim::Checksum(full) if full.algorithm == CrcAlgorithm::Crc64Nvme => {
                full.value == self.crc64
            }
            Claim::Checksum(full) => self.other == Some(full.value),
            Claim::Md5(md5) => self.md5 == Some(md5),
            Claim::Parts { .. } | Claim::None => true,
        }
    }
}

/// Combines the hashes of an object's parts, in their order.
pub(crate) fn combined(parts: &[StreamHashes], claim: Claim) -> StreamHashes {
    let algorithm = match NeededHash::of(claim) {
        NeededHash::Crc(algorithm) => algorithm,
        NeededHash::None | NeededHash::Md5 => CrcAlgorithm::Crc64Nvme,
    };
    let mut whole = StreamDigest::new(NeededHash::None).hashes();
    whole.other =
        parts.iter().all(|part| part.other.is_some()).then(|| crc_fast::checksum(algorithm, b""));
    for part in parts {
        let join = |algorithm, one, other| checksum_combine(algorithm, one, other, part.bytes);
        whole.crc64 = join(CrcAlgorithm::Crc64Nvme, whole.crc64, part.crc64);
        whole.other = whole.other.zip(part.other).map(|(one, other)| join(algorithm, one, other));
        whole.bytes += part.bytes;
    }
    if let [only] = parts {
        whole.md5 = only.md5;
    }
    whole
}

/// Returns the MD5 of the parts' MD5s; `None` if a part has none.
pub(crate) fn md5_of_parts(parts: &[StreamHashes]) -> Option<[u8; 16]> {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part.md5?);
    }
    Some(md5.finalize().into())
}

/// Returns a CRC64NVME as headers and trailers carry it.
pub(crate) fn crc64_text(value: u64) -> String {
    STANDARD.encode(value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etag::FullChecksum;

    fn hashes(bytes: &[u8], needed: NeededHash) -> StreamHashes {
        let mut digest = StreamDigest::new(needed);
        for piece in bytes.chunks(3) {
            digest.update(piece);
        }
        digest.hashes()
    }

    #[test]
    fn parts_have_the_checksums_of_the_whole() {
        let whole = b"a body that is sent in three parts";
        for algorithm in
            [CrcAlgorithm::Crc64Nvme, CrcAlgorithm::Crc32Iscsi, CrcAlgorithm::Crc32IsoHdlc]
        {
            let value = crc_fast::checksum(algorithm, whole);
            let claim = Claim::Checksum(FullChecksum { algorithm, value });
            let needed = NeededHash::of(claim);
            let parts: Vec<_> = whole.chunks(13).map(|part| hashes(part, needed)).collect();
            let all = combined(&parts, claim);
            assert!(all.fulfil(claim), "{algorithm:?}");
            assert_eq!(all.bytes, whole.len() as u64);
            let wrong = Claim::Checksum(FullChecksum { algorithm, value: value ^ 1 });
            assert!(!all.fulfil(wrong), "{algorithm:?}");
        }
    }

    #[test]
    fn md5s_are_compared() {
        let md5: [u8; 16] = Md5::digest(b"123456789").into();
        let all = hashes(b"123456789", NeededHash::Md5);
        assert!(all.fulfil(Claim::Md5(md5)) && !all.fulfil(Claim::Md5([0; 16])));
        assert_eq!(crc64_text(all.crc64), "rosUhgp5mIg=");
        assert!(!hashes(b"123456789", NeededHash::None).fulfil(Claim::Md5(md5)));
    }

    #[test]
    fn parts_have_the_etag_of_s3() {
        let parts = [b"one", b"two"].map(|part| hashes(part, NeededHash::Md5));
        let expected: [u8; 16] =
            Md5::digest([Md5::digest(b"one"), Md5::digest(b"two")].concat()).into();
        assert_eq!(md5_of_parts(&parts), Some(expected));
        assert_eq!(md5_of_parts(&[hashes(b"one", NeededHash::None)]), None);
    }
}

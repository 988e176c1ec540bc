//! MD5 and checksums of a body, computed as it passes by.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use martlet_protocol::entry::{Checksum, ChecksumAlgorithm, ChecksumKind};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::md5::Md5;

enum Hasher {
    Crc(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

fn crc(algorithm: ChecksumAlgorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256 => None,
    }
}

fn crc_value(algorithm: ChecksumAlgorithm, value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    match algorithm {
        ChecksumAlgorithm::Crc64Nvme => bytes.to_vec(),
        _ => bytes[4..].to_vec(),
    }
}

impl Hasher {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        match (algorithm, crc(algorithm)) {
            (_, Some(crc)) => Self::Crc(crc_fast::Digest::new(crc)),
            (ChecksumAlgorithm::Sha1, None) => Self::Sha1(Sha1::new()),
            (_, None) => Self::Sha256(Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
        }
    }

    fn finish(self, algorithm: ChecksumAlgorithm) -> Vec<u8> {
        match self {
            Self::Crc(digest) => crc_value(algorithm, digest.finalize()),
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
        }
    }
}

/// MD5 and any checksums asked for, over all bytes so far.
pub(crate) struct Digests {
    md5: Md5,
    checksums: Vec<(ChecksumAlgorithm, Hasher)>,
    bytes: u64,
}

/// What a body came to.
#[derive(Debug)]
pub(crate) struct Sums {
    pub(crate) md5: [u8; 16],
    pub(crate) checksums: Vec<Checksum>,
    pub(crate) bytes: u64,
}

impl Digests {
    pub(crate) fn new(algorithms: &[ChecksumAlgorithm]) -> Self {
        let mut checksums: Vec<(ChecksumAlgorithm, Hasher)> = Vec::with_capacity(algorithms.len());
        for algorithm in algorithms {
            if !checksums.iter().any(|(other, _)| other == algorithm) {
                checksums.push((*algorithm, Hasher::new(*algorithm)));
            }
        }
        Self { md5: Md5::default(), checksums, bytes: 0 }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        for (_, hasher) in &mut self.checksums {
            hasher.update(bytes);
        }
        self.bytes += bytes.len() as u64;
    }

    pub(crate) fn update_all(&mut self, pieces: &[Bytes]) {
        for bytes in pieces {
            self.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> Sums {
        let sum = |(algorithm, hasher): (ChecksumAlgorithm, Hasher)| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            value: hasher.finish(algorithm),
        };
        Sums {
            md5: self.md5.finish(),
            checksums: self.checksums.into_iter().map(sum).collect(),
            bytes: self.bytes,
        }
    }
}

impl Sums {
    /// Compares with what the client gave; each checksum given must have been computed.
    pub(crate) fn verify(
        &self,
        md5: Option<[u8; 16]>,
        expected: &[(ChecksumAlgorithm, Vec<u8>)],
    ) -> Result<()> {
        if md5.is_some_and(|md5| md5 != self.md5) {
            return Err(Error::BadDigest);
        }
        for (algorithm, value) in expected {
            let found = self.checksums.iter().find(|sum| sum.algorithm == *algorithm);
            if found.is_none_or(|sum| sum.value != *value) {
                return Err(Error::BadChecksum(*algorithm));
            }
        }
        Ok(())
    }
}

/// MD5 of the MD5s of parts.
pub(crate) fn md5_of_md5s<'a>(parts: impl Iterator<Item = &'a [u8; 16]>) -> [u8; 16] {
    let mut md5 = Md5::default();
    for part in parts {
        md5.update(part);
    }
    md5.finish()
}

/// The checksum of parts' checksums.
pub(crate) fn composite<'a>(
    algorithm: ChecksumAlgorithm,
    parts: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut hasher = Hasher::new(algorithm);
    for part in parts {
        hasher.update(part);
    }
    hasher.finish(algorithm)
}

/// The checksum of the whole from the checksums and lengths of its parts: CRCs can be joined
/// without their bytes, SHAs can't.
pub(crate) fn joined<'a>(
    algorithm: ChecksumAlgorithm,
    parts: impl Iterator<Item = (&'a [u8], u64)>,
) -> Option<Vec<u8>> {
    let crc = crc(algorithm)?;
    let number = |value: &[u8]| value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let whole = parts.map(|(value, length)| (number(value), length)).reduce(
        |(sum, before), (next, length)| {
            (crc_fast::checksum_combine(crc, sum, next, length), before + length)
        },
    );
    Some(crc_value(algorithm, whole.map_or(0, |(sum, _)| sum)))
}

/// CRC32C as inline bodies carry it.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [ChecksumAlgorithm; 5] = [
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32c,
        ChecksumAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
    ];

    fn sums(pieces: &[&[u8]]) -> Sums {
        let mut digests = Digests::new(&ALL);
        for piece in pieces {
            digests.update(piece);
        }
        digests.finish()
    }

    #[test]
    fn known_values() {
        let sums = sums(&[b"12345", b"6789"]);
        assert_eq!(sums.bytes, 9);
        assert_eq!(hex::encode(sums.md5), "25f9e794323b453885f5181f1b624d0b");
        let values: Vec<_> = sums.checksums.iter().map(|sum| hex::encode(&sum.value)).collect();
        assert_eq!(values[0], "cbf43926");
        assert_eq!(values[1], "e3069283");
        assert_eq!(values[2], "ae8b14860a799888");
        assert_eq!(values[3], "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert!(values[4].starts_with("15e2b0d3c33891ebb0f1ef609ec41942"));
    }

    #[test]
    fn what_differs_is_refused() {
        let sums = sums(&[b"abc"]);
        assert!(sums.verify(Some(sums.md5), &[]).is_ok());
        assert!(matches!(sums.verify(Some([0; 16]), &[]), Err(Error::BadDigest)));
        let wrong = [(ChecksumAlgorithm::Sha1, vec![0; 20])];
        assert!(matches!(sums.verify(None, &wrong), Err(Error::BadChecksum(_))));
    }

    proptest! {
        #[test]
        fn joined_crcs_are_those_of_the_whole(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..5)
        ) {
            let each: Vec<Sums> = parts.iter().map(|part| sums(&[part])).collect();
            let whole = sums(&[&parts.concat()]);
            for (at, algorithm) in ALL.into_iter().enumerate() {
                let values =
                    each.iter().map(|sums| (sums.checksums[at].value.as_slice(), sums.bytes));
                match joined(algorithm, values) {
                    Some(value) => prop_assert_eq!(&value, &whole.checksums[at].value),
                    None => prop_assert!(at >= 3),
                }
            }
        }
    }
}

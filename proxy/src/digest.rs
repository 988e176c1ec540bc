//! MD5 and checksums of a body, computed while it streams.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use martlet_protocol::entry::{Checksum, ChecksumAlgorithm, ChecksumKind};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};
use xxhash_rust::xxh3::Xxh3Default;
use xxhash_rust::xxh64::Xxh64;

use crate::error::{Error, Result};
use crate::md5::Md5;

enum Hasher {
    Crc(crc_fast::Digest),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    Xxhash64(Xxh64),
    /// XXH3 with 64 or 128 bits.
    Xxhash3(Box<Xxh3Default>),
}

fn crc(algorithm: ChecksumAlgorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        ChecksumAlgorithm::Md5
        | ChecksumAlgorithm::Sha1
        | ChecksumAlgorithm::Sha256
        | ChecksumAlgorithm::Sha512
        | ChecksumAlgorithm::Xxhash64
        | ChecksumAlgorithm::Xxhash3
        | ChecksumAlgorithm::Xxhash128 => None,
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
            (ChecksumAlgorithm::Md5, None) => Self::Md5(Md5::default()),
            (ChecksumAlgorithm::Sha1, None) => Self::Sha1(Sha1::new()),
            (ChecksumAlgorithm::Sha256, None) => Self::Sha256(Sha256::new()),
            (ChecksumAlgorithm::Sha512, None) => Self::Sha512(Sha512::new()),
            (ChecksumAlgorithm::Xxhash64, None) => Self::Xxhash64(Xxh64::new(0)),
            (_, None) => Self::Xxhash3(Box::new(Xxh3Default::new())),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(digest) => digest.update(bytes),
            Self::Md5(digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
            Self::Sha512(digest) => digest.update(bytes),
            Self::Xxhash64(digest) => digest.update(bytes),
            Self::Xxhash3(digest) => digest.update(bytes),
        }
    }

    fn finish(self, algorithm: ChecksumAlgorithm) -> Vec<u8> {
        match self {
            Self::Crc(digest) => crc_value(algorithm, digest.finalize()),
            Self::Md5(digest) => digest.finish().to_vec(),
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
            Self::Sha512(digest) => digest.finalize().to_vec(),
            Self::Xxhash64(digest) => digest.digest().to_be_bytes().to_vec(),
            Self::Xxhash3(digest) if algorithm == ChecksumAlgorithm::Xxhash128 => {
                digest.digest128().to_be_bytes().to_vec()
            }
            Self::Xxhash3(digest) => digest.digest().to_be_bytes().to_vec(),
        }
    }
}

/// MD5, if needed, and the requested checksums of all bytes so far.
pub(crate) struct Digests {
    pub(crate) md5: Option<Md5>,
    /// The requested checksums. MD5 needs no hasher of its own.
    checksums: Vec<(ChecksumAlgorithm, Option<Hasher>)>,
    bytes: u64,
}

/// Final sums and size of a body.
#[derive(Debug)]
pub(crate) struct Sums {
    /// None if not computed.
    pub(crate) md5: Option<[u8; 16]>,
    pub(crate) checksums: Vec<Checksum>,
    pub(crate) bytes: u64,
}

impl Digests {
    /// MD5 and the checksums of `algorithms`.
    pub(crate) fn new(algorithms: &[ChecksumAlgorithm]) -> Self {
        Self { md5: Some(Md5::default()), ..Self::without_md5(algorithms) }
    }

    /// The checksums of `algorithms` alone.
    pub(crate) fn without_md5(algorithms: &[ChecksumAlgorithm]) -> Self {
        let needs_md5 = algorithms.contains(&ChecksumAlgorithm::Md5);
        let mut checksums: Vec<(ChecksumAlgorithm, _)> = Vec::with_capacity(algorithms.len());
        for &algorithm in algorithms {
            if !checksums.iter().any(|(other, _)| *other == algorithm) {
                let is_other = algorithm != ChecksumAlgorithm::Md5;
                checksums.push((algorithm, is_other.then(|| Hasher::new(algorithm))));
            }
        }
        Self { md5: needs_md5.then(Md5::default), checksums, bytes: 0 }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.update_checksums(bytes);
    }

    /// Adds bytes to everything but the MD5.
    pub(crate) fn update_checksums(&mut self, bytes: &[u8]) {
        for hasher in self.checksums.iter_mut().filter_map(|(_, hasher)| hasher.as_mut()) {
            hasher.update(bytes);
        }
        self.bytes += bytes.len() as u64;
    }

    pub(crate) fn update_all(&mut self, chunks: &[Bytes]) {
        for bytes in chunks {
            self.update(bytes);
        }
    }

    /// Returns true if a checksum costs about as much as the MD5.
    pub(crate) fn has_slow_checksums(&self) -> bool {
        let is_slow = |hasher: &Hasher| {
            matches!(hasher, Hasher::Sha1(_) | Hasher::Sha256(_) | Hasher::Sha512(_))
        };
        self.checksums.iter().any(|(_, hasher)| hasher.as_ref().is_some_and(is_slow))
    }

    /// Returns true if a core adds bytes faster than a client sends them.
    pub(crate) fn is_cheap(&self) -> bool {
        self.md5.is_none() && !self.has_slow_checksums()
    }

    pub(crate) fn finish(self) -> Sums {
        let md5 = self.md5.map(Md5::finish);
        let sum = |(algorithm, hasher): (ChecksumAlgorithm, Option<Hasher>)| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            value: match hasher {
                Some(hasher) => hasher.finish(algorithm),
                None => md5.map(|md5| md5.to_vec()).unwrap_or_default(),
            },
        };
        Sums { md5, checksums: self.checksums.into_iter().map(sum).collect(), bytes: self.bytes }
    }
}

impl Sums {
    /// Compares with the client's MD5 and checksums. An expected checksum that was not computed is
    /// refused.
    pub(crate) fn verify(
        &self,
        md5: Option<[u8; 16]>,
        expected: &[(ChecksumAlgorithm, Vec<u8>)],
    ) -> Result<()> {
        if let Some(given) = md5
            && self.md5 != Some(given)
        {
            return Err(Error::BadDigest { given, computed: self.md5.unwrap_or_default() });
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

/// MD5 of the parts' MD5s.
pub(crate) fn md5_of_md5s<'a>(parts: impl Iterator<Item = &'a [u8; 16]>) -> [u8; 16] {
    let mut md5 = Md5::default();
    for part in parts {
        md5.update(part);
    }
    md5.finish()
}

/// Computes the checksum of a complete body, in S3's byte order.
pub fn checksum_of(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Vec<u8> {
    composite(algorithm, std::iter::once(bytes))
}

/// Checksum of the parts' checksums.
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

/// Checksum of a whole object from the checksums and lengths of its parts. Only CRCs can be
/// combined; none for hashes.
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

/// CRC32C of inline bodies.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(chunks: &[&[u8]]) -> Sums {
        let mut digests = Digests::new(&ChecksumAlgorithm::ALL);
        for chunk in chunks {
            digests.update(chunk);
        }
        digests.finish()
    }

    #[test]
    fn known_values() {
        let sums = sums(&[b"12345", b"6789"]);
        assert_eq!(sums.bytes, 9);
        assert_eq!(hex::encode(sums.md5.unwrap()), "25f9e794323b453885f5181f1b624d0b");
        let values: Vec<_> = sums.checksums.iter().map(|sum| hex::encode(&sum.value)).collect();
        assert_eq!(values[0], "cbf43926");
        assert_eq!(values[1], "e3069283");
        assert_eq!(values[2], "ae8b14860a799888");
        assert_eq!(values[3], "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert!(values[4].starts_with("15e2b0d3c33891ebb0f1ef609ec41942"));
        assert!(values[5].starts_with("d9e6762dd1c8eaf6d61b3c6192fc408d"));
        assert_eq!(values[6], hex::encode(sums.md5.unwrap()));
        assert_eq!(values[7], "8cb841db40e6ae83");
        assert_eq!(values[8], "72dcb18b67a17dff");
        assert_eq!(values[9], "33119477ede5dcd5e9716427681d5860");
        for (sum, value) in sums.checksums.iter().zip(values) {
            assert_eq!(sum.value.len(), sum.algorithm.value_bytes());
            assert_eq!(hex::encode(checksum_of(sum.algorithm, b"123456789")), value);
        }
    }

    /// Values of AWS's own clients, for lengths beyond XXH3's special cases.
    #[test]
    fn known_values_of_longer_bodies() {
        let body = (0..=u8::MAX).collect::<Vec<_>>().repeat(5);
        for (algorithm, expected) in [
            (ChecksumAlgorithm::Xxhash64, "afc184ad7938a354"),
            (ChecksumAlgorithm::Xxhash3, "4844b009e164352e"),
            (ChecksumAlgorithm::Xxhash128, "d92ab3a1cb0542a74844b009e164352e"),
        ] {
            assert_eq!(hex::encode(checksum_of(algorithm, &body)), expected);
            let chunks: Vec<&[u8]> = body.chunks(77).collect();
            let sums = sums(&chunks);
            let sum = sums.checksums.iter().find(|sum| sum.algorithm == algorithm).unwrap();
            assert_eq!(hex::encode(&sum.value), expected, "{algorithm:?}");
        }
        for (algorithm, expected) in [
            (ChecksumAlgorithm::Xxhash64, "ef46db3751d8e999"),
            (ChecksumAlgorithm::Xxhash3, "2d06800538d394c2"),
            (ChecksumAlgorithm::Xxhash128, "99aa06d3014798d86001c324468d497f"),
        ] {
            assert_eq!(hex::encode(checksum_of(algorithm, b"")), expected);
        }
    }

    #[test]
    fn without_md5_only_the_checksums_are_computed() {
        let algorithms = [ChecksumAlgorithm::Crc64Nvme];
        let mut digests = Digests::without_md5(&algorithms);
        assert!(digests.is_cheap() && !Digests::new(&algorithms).is_cheap());
        assert!(!Digests::without_md5(&[ChecksumAlgorithm::Sha256]).is_cheap());
        digests.update(b"123456789");
        let sums = digests.finish();
        assert_eq!((sums.md5, sums.bytes), (None, 9));
        assert_eq!(hex::encode(&sums.checksums[0].value), "ae8b14860a799888");
        assert!(matches!(sums.verify(Some([0; 16]), &[]), Err(Error::BadDigest { .. })));
        let mut requested = Digests::without_md5(&[ChecksumAlgorithm::Md5]);
        requested.update(b"123456789");
        let sums = requested.finish();
        assert_eq!(sums.checksums[0].value, sums.md5.unwrap());
    }

    #[test]
    fn wrong_digests_are_refused() {
        let sums = sums(&[b"abc"]);
        assert!(sums.verify(sums.md5, &[]).is_ok());
        assert!(matches!(sums.verify(Some([0; 16]), &[]), Err(Error::BadDigest { .. })));
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
            for (at, algorithm) in ChecksumAlgorithm::ALL.into_iter().enumerate() {
                let values =
                    each.iter().map(|sums| (sums.checksums[at].value.as_slice(), sums.bytes));
                match joined(algorithm, values) {
                    Some(value) => prop_assert_eq!(&value, &whole.checksums[at].value),
                    None => prop_assert!(!algorithm.is_joinable()),
                }
            }
        }
    }
}

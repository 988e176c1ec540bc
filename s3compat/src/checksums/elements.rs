//! Checksums in documents: one element for each algorithm. s3s has fields for five of the ten.

use std::io::Write;

use martlet_protocol::entry::{Checksum, ChecksumAlgorithm, ETag, Object};
use s3s::xml::{SerResult, SerializeContent, Serializer};

use super::{encode, name};

const PREFIX: &str = "Checksum";

/// Checksums of an object, or of a part of it, as elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksumElements<'a> {
    pub(crate) checksums: &'a [Checksum],
    /// Entity tag of the object, which has the number of parts of a composite checksum.
    pub(crate) etag: ETag,
}

impl<'a> ChecksumElements<'a> {
    /// Checksums of an object.
    pub(crate) fn of(object: &'a Object) -> Self {
        Self { checksums: &object.checksums, etag: object.etag }
    }
}

impl SerializeContent for ChecksumElements<'_> {
    fn serialize_content<W: Write>(&self, s: &mut Serializer<W>) -> SerResult {
        // Readers of documents may rely on the order of the elements.
        for algorithm in ChecksumAlgorithm::ALL {
            for checksum in self.checksums.iter().filter(|it| it.algorithm == algorithm) {
                let element = format!("{PREFIX}{}", name(algorithm));
                s.content(&element, &encode(checksum, self.etag))?;
            }
        }
        Ok(())
    }
}

/// Algorithm of an element; `None` for any other element.
pub(crate) fn of_element(element: &[u8]) -> Option<ChecksumAlgorithm> {
    let named = element.strip_prefix(PREFIX.as_bytes())?;
    ChecksumAlgorithm::ALL.into_iter().find(|known| name(*known).as_bytes() == named)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::ChecksumKind;

    use super::*;

    #[test]
    fn each_algorithm_has_an_element() {
        for algorithm in ChecksumAlgorithm::ALL {
            let element = format!("{PREFIX}{}", name(algorithm));
            assert_eq!(of_element(element.as_bytes()), Some(algorithm), "{element}");
        }
        for other in ["Checksum", "ChecksumType", "CRC32", "checksumCRC32"] {
            assert_eq!(of_element(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn elements_have_values_as_in_headers() {
        let checksum = |algorithm, kind| Checksum { algorithm, kind, value: vec![0; 4] };
        let checksums = [
            checksum(ChecksumAlgorithm::Md5, ChecksumKind::FullObject),
            checksum(ChecksumAlgorithm::Crc32, ChecksumKind::Composite),
        ];
        let etag = ETag::Multipart { md5: [0; 16], parts: 2 };
        let mut text = Vec::new();
        let elements = ChecksumElements { checksums: &checksums, etag };
        elements.serialize_content(&mut Serializer::new(&mut text)).unwrap();
        let expected =
            "<ChecksumCRC32>AAAAAA==-2</ChecksumCRC32><ChecksumMD5>AAAAAA==</ChecksumMD5>";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}

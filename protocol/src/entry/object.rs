//! Objects and delete markers: attributes, ETags and checksums.

use serde::{Deserialize, Serialize};

use super::{Body, Marks};
use crate::id::UploadId;
use crate::version::Version;

/// An object: its attributes and the location of its bytes.
///
/// The order of the fields, here and in what they contain, is that of the index's format. The
/// [summary](super::Entry::decode_summary) of an entry reads them in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Length in bytes.
    pub size: u64,
    /// ETag of the bytes.
    pub etag: ETag,
    /// Last-Modified, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Headers, metadata and tags.
    pub attributes: Attributes,
    /// Checksums that the client sent or requested.
    pub checksums: Vec<Checksum>,
    /// The multipart upload that the object was completed from.
    pub upload: Option<UploadId>,
    /// Location of the bytes.
    pub body: Body,
    /// Version of the key; none if written before the bucket had versioning.
    #[serde(skip)]
    pub version: Option<Version>,
}

/// A version that marks its key as deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteMarker {
    /// Last-Modified, in milliseconds since 1970.
    pub modified_ms: u64,
    /// As in [`Object::version`].
    #[serde(skip)]
    pub version: Option<Version>,
}

/// Attributes that a client sends with an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Content-Type.
    pub content_type: Option<String>,
    /// Content-Encoding, without aws-chunked.
    pub content_encoding: Option<String>,
    /// Content-Disposition.
    pub content_disposition: Option<String>,
    /// Content-Language.
    pub content_language: Option<String>,
    /// Cache-Control.
    pub cache_control: Option<String>,
    /// Expires, as sent by the client.
    pub expires: Option<String>,
    /// `x-amz-website-redirect-location`.
    pub website_redirect: Option<String>,
    /// `x-amz-storage-class`, as sent by the client.
    pub storage_class: Option<String>,
    /// `x-amz-meta-*`: names in lower case without the prefix, in the order of the request.
    pub user_metadata: Vec<(String, String)>,
    /// Object tags.
    pub tags: Vec<(String, String)>,
    /// Marks of the object or upload.
    #[serde(skip)]
    pub marks: Marks,
}

/// An entity tag: as S3 computes it, or opaque.
///
/// Entries store the index of a variant: new variants are added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ETag {
    /// MD5 of the bytes.
    Md5([u8; 16]),
    /// MD5 of the parts' MD5s, and the number of parts.
    Multipart {
        /// MD5 of the concatenated MD5s of the parts.
        md5: [u8; 16],
        /// Number of parts.
        parts: u16,
    },
    /// A value without meaning, other for each write.
    Opaque {
        /// Id of the write; for a multipart object the MD5 of its parts' values.
        value: [u8; 16],
        /// Number of parts of a multipart object.
        parts: Option<u16>,
    },
}

/// Kind of the ETags of new objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ETagKind {
    /// MD5s, as S3 computes them.
    #[default]
    Md5,
    /// Opaque values, which need no MD5 of the bytes.
    Opaque,
}

impl ETagKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Md5, Self::Opaque];

    /// Name in settings and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Opaque => "opaque",
        }
    }

    /// Returns the ETag of a body with this tag.
    pub const fn whole(self, tag: [u8; 16]) -> ETag {
        match self {
            Self::Md5 => ETag::Md5(tag),
            Self::Opaque => ETag::Opaque { value: tag, parts: None },
        }
    }

    /// Returns the ETag of a multipart object. `tag` is the MD5 of its parts' tags.
    pub const fn multipart(self, tag: [u8; 16], parts: u16) -> ETag {
        match self {
            Self::Md5 => ETag::Multipart { md5: tag, parts },
            Self::Opaque => ETag::Opaque { value: tag, parts: Some(parts) },
        }
    }
}

impl std::str::FromStr for ETagKind {
    type Err = crate::error::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            crate::error::Error::invalid(format!("{name:?} is no kind of ETags: md5 or opaque"))
        })
    }
}

impl std::fmt::Display for ETagKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Start of the text of an opaque ETag. With the hyphen no client takes the ETag for an MD5.
const OPAQUE: &str = "opaque-";

impl ETag {
    /// Returns the kind of the ETag.
    pub const fn kind(self) -> ETagKind {
        match self {
            Self::Md5(_) | Self::Multipart { .. } => ETagKind::Md5,
            Self::Opaque { .. } => ETagKind::Opaque,
        }
    }

    /// Returns the number of parts of a multipart object.
    pub const fn parts(self) -> Option<u16> {
        match self {
            Self::Md5(_) => None,
            Self::Multipart { parts, .. } => Some(parts),
            Self::Opaque { parts, .. } => parts,
        }
    }

    /// Parses the ETag of a body or part: its kind and its tag. Returns none for other texts.
    pub fn parse_whole(text: &str) -> Option<(ETagKind, [u8; 16])> {
        let (kind, digits) = match text.split_at_checked(OPAQUE.len()) {
            Some((start, digits)) if start.eq_ignore_ascii_case(OPAQUE) => {
                (ETagKind::Opaque, digits)
            }
            _ => (ETagKind::Md5, text),
        };
        let mut tag = [0; 16];
        hex::decode_to_slice(digits, &mut tag).ok()?;
        Some((kind, tag))
    }
}

/// A checksum of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// Algorithm of the checksum.
    pub algorithm: ChecksumAlgorithm,
    /// Coverage of the checksum.
    pub kind: ChecksumKind,
    /// The raw value: 4 to 64 bytes, by the algorithm.
    pub value: Vec<u8>,
}

/// The algorithms of `x-amz-checksum-*`.
///
/// Entries store the index of an algorithm in this list: new algorithms are added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumAlgorithm {
    /// CRC-32 (ISO HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// MD5.
    Md5,
    /// XXH64 with seed 0.
    Xxhash64,
    /// XXH3 of 64 bits with seed 0.
    Xxhash3,
    /// XXH3 of 128 bits with seed 0.
    Xxhash128,
}

impl ChecksumAlgorithm {
    /// All algorithms, in the order of their codes in entries.
    pub const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::Xxhash64,
        Self::Xxhash3,
        Self::Xxhash128,
    ];

    /// Returns true if the checksums of parts can be combined into the whole's checksum without the
    /// bytes: true for CRCs, false for hashes.
    pub const fn is_joinable(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }

    /// Returns the length of a value in bytes.
    pub const fn value_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::Xxhash64 | Self::Xxhash3 => 8,
            Self::Md5 | Self::Xxhash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// Coverage of a multipart object's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumKind {
    /// The bytes of the object.
    FullObject,
    /// The checksums of its parts.
    Composite,
}

impl std::fmt::Display for ETag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Md5(md5) => f.write_str(&hex::encode(md5)),
            Self::Multipart { md5, parts } => write!(f, "{}-{parts}", hex::encode(md5)),
            Self::Opaque { value, parts: None } => write!(f, "{OPAQUE}{}", hex::encode(value)),
            Self::Opaque { value, parts: Some(parts) } => {
                write!(f, "{OPAQUE}{}-{parts}", hex::encode(value))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_keep_their_codes() {
        for (code, algorithm) in (0_u8..).zip(ChecksumAlgorithm::ALL) {
            assert_eq!(postcard::to_stdvec(&algorithm).unwrap(), [code], "{algorithm:?}");
        }
        let named: [(u8, ChecksumAlgorithm); 3] = [
            (2, ChecksumAlgorithm::Crc64Nvme),
            (4, ChecksumAlgorithm::Sha256),
            (9, ChecksumAlgorithm::Xxhash128),
        ];
        for (code, algorithm) in named {
            assert_eq!(postcard::from_bytes::<ChecksumAlgorithm>(&[code]).unwrap(), algorithm);
        }
        assert!(postcard::from_bytes::<ChecksumAlgorithm>(&[10]).is_err());
    }

    #[test]
    fn etags_print_as_s3_prints_them() {
        assert_eq!(ETag::Md5([0xab; 16]).to_string(), "ab".repeat(16));
        let multipart = ETag::Multipart { md5: [0; 16], parts: 12 };
        assert_eq!(multipart.to_string(), format!("{}-12", "0".repeat(32)));
    }

    #[test]
    fn opaque_etags_resemble_no_md5() {
        let whole = ETagKind::Opaque.whole([0xab; 16]);
        assert_eq!(whole.to_string(), format!("opaque-{}", "ab".repeat(16)));
        let multipart = ETagKind::Opaque.multipart([0; 16], 12);
        assert_eq!(multipart.to_string(), format!("opaque-{}-12", "0".repeat(32)));
        for kind in ETagKind::ALL {
            let (whole, multipart) = (kind.whole([7; 16]), kind.multipart([7; 16], 2));
            for text in [whole.to_string(), whole.to_string().to_uppercase()] {
                assert_eq!(ETag::parse_whole(&text), Some((kind, [7; 16])));
            }
            assert_eq!(ETag::parse_whole(&multipart.to_string()), None);
            assert_eq!((whole.kind(), multipart.kind()), (kind, kind));
            assert_eq!((whole.parts(), multipart.parts()), (None, Some(2)));
            assert_eq!(kind.name().parse::<ETagKind>().unwrap(), kind);
        }
        assert!("sha256".parse::<ETagKind>().is_err());
        for wrong in ["", "opaque-", "opaque-00", "opaque", &"g".repeat(32), &"0".repeat(33)] {
            assert_eq!(ETag::parse_whole(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn variants_of_etags_keep_their_codes() {
        let code = |etag: ETag| postcard::to_stdvec(&etag).unwrap()[0];
        assert_eq!(code(ETag::Md5([0; 16])), 0);
        assert_eq!(code(ETag::Multipart { md5: [0; 16], parts: 1 }), 1);
        assert_eq!(code(ETag::Opaque { value: [0; 16], parts: None }), 2);
    }
}

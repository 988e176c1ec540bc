//! Objects and delete markers: what they say of themselves, and by what clients check them.

use serde::{Deserialize, Serialize};

use super::{Body, Marks};
use crate::id::UploadId;
use crate::version::Version;

/// An object: what it says of itself, and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Bytes.
    pub size: u64,
    /// As S3 computes it.
    pub etag: ETag,
    /// Last-Modified, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Headers, metadata and tags.
    pub attributes: Attributes,
    /// Checksums that the client gave or asked for.
    pub checksums: Vec<Checksum>,
    /// The upload that it was completed from.
    pub upload: Option<UploadId>,
    /// Where its bytes are.
    pub body: Body,
    /// Which version of its key it is; none of what was written before its bucket kept versions.
    #[serde(skip)]
    pub version: Option<Version>,
}

/// A version of a key that says that there is no object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteMarker {
    /// Last-Modified, in milliseconds since 1970.
    pub modified_ms: u64,
    /// As in [`Object::version`].
    #[serde(skip)]
    pub version: Option<Version>,
}

/// What a client says about an object beside its bytes.
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
    /// Expires, as it was sent.
    pub expires: Option<String>,
    /// `x-amz-website-redirect-location`.
    pub website_redirect: Option<String>,
    /// `x-amz-storage-class`, as it was sent.
    pub storage_class: Option<String>,
    /// `x-amz-meta-*`: names in lower case without the prefix, in the order they came.
    pub user_metadata: Vec<(String, String)>,
    /// Object tags.
    pub tags: Vec<(String, String)>,
    /// What is set about it beside.
    #[serde(skip)]
    pub marks: Marks,
}

/// An entity tag as S3 computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ETag {
    /// MD5 of the bytes.
    Md5([u8; 16]),
    /// MD5 of the parts' MD5s, and how many parts.
    Multipart {
        /// MD5 of the concatenated MD5s of the parts.
        md5: [u8; 16],
        /// How many parts.
        parts: u16,
    },
}

/// A checksum of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// Which.
    pub algorithm: ChecksumAlgorithm,
    /// Over what.
    pub kind: ChecksumKind,
    /// The raw value: 4, 8, 20 or 32 bytes.
    pub value: Vec<u8>,
}

/// The five algorithms of `x-amz-checksum-*`.
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
}

/// What a checksum of a multipart object covers.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_print_as_s3_prints_them() {
        assert_eq!(ETag::Md5([0xab; 16]).to_string(), "ab".repeat(16));
        let multipart = ETag::Multipart { md5: [0; 16], parts: 12 };
        assert_eq!(multipart.to_string(), format!("{}-12", "0".repeat(32)));
    }
}

//! Errors of the object layer.

use thiserror::Error;

/// Result of a call of the object layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for a failed request. The HTTP layer maps each to an S3 error.
#[derive(Debug, Error)]
pub enum Error {
    /// The bucket doesn't exist.
    #[error("the bucket does not exist")]
    NoSuchBucket,
    /// The bucket exists already.
    #[error("the bucket exists already")]
    BucketExists {
        /// Canonical id of its owner.
        owner: String,
    },
    /// The bucket was deleted and created again during the request: retry.
    #[error("the bucket was deleted and created again")]
    BucketReplaced,
    /// The bucket still holds objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The object doesn't exist.
    #[error("the key does not exist")]
    NoSuchKey,
    /// The version doesn't exist.
    #[error("the version does not exist")]
    NoSuchVersion,
    /// The named or current version is a delete marker.
    #[error("the version is a delete marker")]
    DeleteMarker {
        /// Its version id.
        version: martlet_protocol::VersionId,
        /// Time of its write, in milliseconds since 1970.
        modified_ms: u64,
        /// True if the request named this version.
        was_named: bool,
    },
    /// The upload doesn't exist, or was aborted.
    #[error("the upload does not exist")]
    NoSuchUpload,
    /// A condition of the request does not hold.
    #[error("the condition {0} does not hold")]
    PreconditionFailed(&'static str),
    /// The client already has this version of the object.
    #[error("not modified")]
    NotModified(Box<martlet_protocol::entry::Object>),
    /// A concurrent conditional request conflicts: retry.
    #[error("a conflicting conditional request is in progress")]
    ConditionalConflict,
    /// The range lies outside the object.
    #[error("the range lies outside the object of {size} bytes")]
    InvalidRange {
        /// Size of the object in bytes.
        size: u64,
    },
    /// A part number that the object or upload doesn't have.
    #[error("there is no part {number}")]
    InvalidPartNumber {
        /// The requested number.
        number: u32,
        /// Number of parts.
        parts: usize,
    },
    /// A part named by CompleteMultipartUpload is missing, or its ETag or checksum differs.
    #[error("part {0} is missing or differs")]
    InvalidPart(u32),
    /// Part numbers of CompleteMultipartUpload don't ascend.
    #[error("the parts are not in ascending order")]
    InvalidPartOrder,
    /// A part other than the last is too small.
    #[error("part {number} has {size} bytes, fewer than {minimum}")]
    EntityTooSmall {
        /// Its part number.
        number: u32,
        /// Its size in bytes.
        size: u64,
        /// Minimum size of a part in bytes.
        minimum: u64,
    },
    /// An object, part or setting exceeds the size limit.
    #[error("{size} bytes are more than the {maximum} allowed")]
    EntityTooLarge {
        /// Size of the request's data in bytes.
        size: u64,
        /// Maximum size in bytes.
        maximum: u64,
    },
    /// The body's MD5 differs from the request's.
    #[error("the Content-MD5 does not match the body")]
    BadDigest {
        /// MD5 in the request.
        given: [u8; 16],
        /// MD5 of the body.
        computed: [u8; 16],
    },
    /// A checksum of the body differs from the request's.
    #[error("the checksum {0:?} does not match")]
    BadChecksum(martlet_protocol::entry::ChecksumAlgorithm),
    /// A part's checksum differs from the one in CompleteMultipartUpload.
    #[error("the checksum {algorithm:?} of part {number} does not match")]
    BadPartChecksum {
        /// Its part number.
        number: u32,
        /// The algorithm of the checksum.
        algorithm: martlet_protocol::entry::ChecksumAlgorithm,
    },
    /// The request contradicts itself or its object.
    #[error("{0}")]
    InvalidRequest(String),
    /// An argument of the request is invalid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The session's guard refused access.
    #[error("access denied")]
    AccessDenied,
    /// The tenant, user, role or access key doesn't exist.
    #[error("{0}")]
    NoSuchAccount(String),
    /// The operation conflicts with an existing tenant, user, role or access key.
    #[error("{0}")]
    AccountConflict(String),
    /// Object Lock forbids the removal of the version, or a weaker lock.
    #[error(transparent)]
    Locked(#[from] martlet_protocol::lock::LockViolation),
    /// The operation is not allowed in the bucket's current state.
    #[error("{0}")]
    InvalidBucketState(String),
    /// Objects named for a checkpoint are missing or differ.
    #[error("{0}")]
    CheckpointConflict(String),
    /// Encryption by a master key is needed, but this process has none.
    #[error("encryption with server keys needs a master key, and this server has none")]
    NoMasterKey,
    /// The operation would exceed a quota.
    #[error(transparent)]
    QuotaExceeded(#[from] crate::quota::exceeded::Exceeded),
    /// The storage class names no storage policy.
    #[error("{0}")]
    InvalidStorageClass(String),
    /// The client's body failed; the source has the reason.
    #[error("the request body failed: {0}")]
    Body(martlet_protocol::Error),
    /// A node failed, or too few nodes replied.
    #[error(transparent)]
    Backend(#[from] martlet_protocol::Error),
}

impl Error {
    /// The error for callers that know only those of nodes, such as workers.
    pub(crate) fn into_backend(self) -> martlet_protocol::Error {
        match self {
            Self::Backend(error) => error,
            error => martlet_protocol::Error::unavailable(error.to_string()),
        }
    }
}

//! What can go wrong with a request, in the words of the object layer.

use thiserror::Error;

/// What a call of the object layer returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request was not carried out. The door turns each into its own protocol's error.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no such bucket.
    #[error("the bucket does not exist")]
    NoSuchBucket,
    /// The bucket exists already; `owner` made it.
    #[error("the bucket exists already")]
    BucketExists {
        /// Who made it.
        owner: String,
    },
    /// The bucket was deleted and made again while the request was under way: try again.
    #[error("the bucket was deleted and made again")]
    BucketReplaced,
    /// The bucket still holds objects or uploads.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// There is no such object.
    #[error("the key does not exist")]
    NoSuchKey,
    /// There is no such version of the object.
    #[error("the version does not exist")]
    NoSuchVersion,
    /// The version, or the current one, says that there is no object.
    #[error("the version is a delete marker")]
    DeleteMarker {
        /// Its id.
        version: martlet_protocol::VersionId,
        /// When it was written, in milliseconds since 1970.
        modified_ms: u64,
        /// Whether the request named it.
        was_asked_for: bool,
    },
    /// There is no such upload, or it was aborted.
    #[error("the upload does not exist")]
    NoSuchUpload,
    /// A condition of the request does not hold.
    #[error("the condition {0} does not hold")]
    PreconditionFailed(&'static str),
    /// The object is what the reader has already.
    #[error("not modified")]
    NotModified(Box<martlet_protocol::entry::Object>),
    /// A concurrent conditional request stands in the way: try again.
    #[error("a conflicting conditional request is in progress")]
    ConditionalConflict,
    /// The range lies outside the object.
    #[error("the range lies outside the object of {size} bytes")]
    InvalidRange {
        /// Bytes of the object.
        size: u64,
    },
    /// A part number outside the object or upload.
    #[error("there is no part {number}")]
    InvalidPartNumber {
        /// The number asked for.
        number: u32,
        /// How many parts there are.
        parts: usize,
    },
    /// A part that Complete names is missing, or its ETag or checksum is another.
    #[error("part {0} is missing or differs")]
    InvalidPart(u32),
    /// The parts that Complete names don't rise.
    #[error("the parts are not in ascending order")]
    InvalidPartOrder,
    /// A part but the last is too small.
    #[error("part {number} has {size} bytes, fewer than {minimum}")]
    EntityTooSmall {
        /// Its number.
        number: u32,
        /// Its bytes.
        size: u64,
        /// The least a part must have.
        minimum: u64,
    },
    /// More bytes than an object or part may have.
    #[error("{size} bytes are more than the {maximum} allowed")]
    EntityTooLarge {
        /// Bytes proposed.
        size: u64,
        /// Bytes allowed.
        maximum: u64,
    },
    /// The body's MD5 is not the one that was given.
    #[error("the Content-MD5 does not match the body")]
    BadDigest {
        /// The one that was given.
        given: [u8; 16],
        /// The one that the body has.
        computed: [u8; 16],
    },
    /// A checksum of the body is not the one that was given.
    #[error("the checksum {0:?} does not match")]
    BadChecksum(martlet_protocol::entry::ChecksumAlgorithm),
    /// A part that Complete names has not the checksum that it names with it.
    #[error("the checksum {algorithm:?} of part {number} does not match")]
    BadPartChecksum {
        /// Its number.
        number: u32,
        /// The algorithm of the checksum.
        algorithm: martlet_protocol::entry::ChecksumAlgorithm,
    },
    /// The request contradicts itself or the object that it speaks of.
    #[error("{0}")]
    InvalidRequest(String),
    /// An argument of the request makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
    /// The session's guard doesn't admit it.
    #[error("access denied")]
    AccessDenied,
    /// There is no such tenant, user or access key.
    #[error("{0}")]
    NoSuchAccount(String),
    /// A tenant, user or access key stands in the way.
    #[error("{0}")]
    AccountConflict(String),
    /// A lock keeps the version from being removed, or its lock from being loosened.
    #[error(transparent)]
    Locked(#[from] martlet_protocol::lock::Locked),
    /// The bucket is in no state for this.
    #[error("{0}")]
    InvalidBucketState(String),
    /// Bytes are to be encrypted by a master key, and this process was given none.
    #[error("encryption by a key of the server's needs a master key, and this server has none")]
    NoMasterKey,
    /// More than a quota allows would be held.
    #[error(transparent)]
    QuotaExceeded(#[from] crate::quota::Exceeded),
    /// A storage class that names no storage policy.
    #[error("{0}")]
    InvalidStorageClass(String),
    /// The client's body ended in an error of its own; the source says which.
    #[error("the request body failed: {0}")]
    Body(martlet_protocol::Error),
    /// A node could not do its part.
    #[error(transparent)]
    Backend(#[from] martlet_protocol::Error),
}

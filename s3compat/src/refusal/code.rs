//! S3's error codes, with their names and statuses.

use http::StatusCode;

/// S3's error codes that are raised before the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is S3's own name for the error")]
pub enum Code {
    AccessDenied,
    AccessForbidden,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    BadDigest,
    BadRequest,
    BucketAlreadyExists,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    ConditionalRequestConflict,
    EntityTooLarge,
    EntityTooSmall,
    ExpiredToken,
    IllegalLocationConstraint,
    IllegalVersioningConfiguration,
    IncompleteBody,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidBucketName,
    InvalidChunkSize,
    InvalidDigest,
    InvalidPart,
    InvalidPartNumber,
    InvalidPartOrder,
    InvalidPolicyDocument,
    InvalidRange,
    InvalidRequest,
    InvalidTag,
    InvalidToken,
    InvalidUri,
    KeyTooLong,
    MalformedPostRequest,
    MalformedTrailer,
    MalformedXml,
    MaxMessageLengthExceeded,
    MaxPostPreDataLengthExceeded,
    MetadataTooLarge,
    MethodNotAllowed,
    MissingContentLength,
    MissingRequestBody,
    NoSuchBucket,
    NoSuchCorsConfiguration,
    NoSuchKey,
    NoSuchLifecycleConfiguration,
    NoSuchTagSet,
    NoSuchUpload,
    NoSuchVersion,
    NotImplemented,
    PreconditionFailed,
    RequestHeaderSectionTooLarge,
    RequestTimeTooSkewed,
    RequestTimeout,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    SlowDown,
    UserKeyMustBeSpecified,
    XAmzContentSha256Mismatch,
}

impl Code {
    /// S3's name of the code.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDenied",
            Self::AccessForbidden => "AccessForbidden",
            Self::AuthorizationHeaderMalformed => "AuthorizationHeaderMalformed",
            Self::AuthorizationQueryParametersError => "AuthorizationQueryParametersError",
            Self::BadDigest => "BadDigest",
            Self::BadRequest => "BadRequest",
            Self::BucketAlreadyExists => "BucketAlreadyExists",
            Self::BucketAlreadyOwnedByYou => "BucketAlreadyOwnedByYou",
            Self::BucketNotEmpty => "BucketNotEmpty",
            Self::ConditionalRequestConflict => "ConditionalRequestConflict",
            Self::EntityTooLarge => "EntityTooLarge",
            Self::EntityTooSmall => "EntityTooSmall",
            Self::ExpiredToken => "ExpiredToken",
            Self::IllegalLocationConstraint => "IllegalLocationConstraintException",
            Self::IllegalVersioningConfiguration => "IllegalVersioningConfigurationException",
            Self::IncompleteBody => "IncompleteBody",
            Self::InternalError => "InternalError",
            Self::InvalidAccessKeyId => "InvalidAccessKeyId",
            Self::InvalidArgument => "InvalidArgument",
            Self::InvalidBucketName => "InvalidBucketName",
            Self::InvalidChunkSize => "InvalidChunkSizeError",
            Self::InvalidDigest => "InvalidDigest",
            Self::InvalidPart => "InvalidPart",
            Self::InvalidPartNumber => "InvalidPartNumber",
            Self::InvalidPartOrder => "InvalidPartOrder",
            Self::InvalidPolicyDocument => "InvalidPolicyDocument",
            Self::InvalidRange => "InvalidRange",
            Self::InvalidRequest => "InvalidRequest",
            Self::InvalidTag => "InvalidTag",
            Self::InvalidToken => "InvalidToken",
            Self::InvalidUri => "InvalidURI",
            Self::KeyTooLong => "KeyTooLongError",
            Self::MalformedPostRequest => "MalformedPOSTRequest",
            Self::MalformedTrailer => "MalformedTrailerError",
            Self::MalformedXml => "MalformedXML",
            Self::MaxMessageLengthExceeded => "MaxMessageLengthExceeded",
            Self::MaxPostPreDataLengthExceeded => "MaxPostPreDataLengthExceededError",
            Self::MetadataTooLarge => "MetadataTooLarge",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::MissingContentLength => "MissingContentLength",
            Self::MissingRequestBody => "MissingRequestBodyError",
            Self::NoSuchBucket => "NoSuchBucket",
            Self::NoSuchCorsConfiguration => "NoSuchCORSConfiguration",
            Self::NoSuchKey => "NoSuchKey",
            Self::NoSuchLifecycleConfiguration => "NoSuchLifecycleConfiguration",
            Self::NoSuchTagSet => "NoSuchTagSet",
            Self::NoSuchUpload => "NoSuchUpload",
            Self::NoSuchVersion => "NoSuchVersion",
            Self::NotImplemented => "NotImplemented",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::RequestHeaderSectionTooLarge => "RequestHeaderSectionTooLarge",
            Self::RequestTimeTooSkewed => "RequestTimeTooSkewed",
            Self::RequestTimeout => "RequestTimeout",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::SignatureDoesNotMatch => "SignatureDoesNotMatch",
            Self::SlowDown => "SlowDown",
            Self::UserKeyMustBeSpecified => "UserKeyMustBeSpecified",
            Self::XAmzContentSha256Mismatch => "XAmzContentSHA256Mismatch",
        }
    }

    /// HTTP status of the code.
    pub fn status(self) -> StatusCode {
        match self {
            Self::AccessDenied
            | Self::AccessForbidden
            | Self::InvalidAccessKeyId
            | Self::RequestTimeTooSkewed
            | Self::SignatureDoesNotMatch => StatusCode::FORBIDDEN,
            Self::NoSuchBucket
            | Self::NoSuchCorsConfiguration
            | Self::NoSuchKey
            | Self::NoSuchLifecycleConfiguration
            | Self::NoSuchTagSet
            | Self::NoSuchUpload
            | Self::NoSuchVersion => StatusCode::NOT_FOUND,
            Self::BucketAlreadyExists
            | Self::BucketAlreadyOwnedByYou
            | Self::BucketNotEmpty
            | Self::ConditionalRequestConflict => StatusCode::CONFLICT,
            Self::InvalidPartNumber | Self::InvalidRange => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::MissingContentLength => StatusCode::LENGTH_REQUIRED,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::ServiceUnavailable | Self::SlowDown => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

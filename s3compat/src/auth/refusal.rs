//! Refused requests, with S3's errors.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};

use crate::http::{DETAIL, detail};
use crate::messages;

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

/// A refused request: a code for the client's program, a message for its author, and further
/// elements of the error document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Refusal {
    /// S3's error code.
    pub code: Code,
    /// Message, in a sentence.
    pub message: Cow<'static, str>,
    /// Further elements of the error document: name and text.
    pub details: Vec<(&'static str, String)>,
    /// A header of the reply.
    pub header: Option<(&'static str, &'static str)>,
}

impl Refusal {
    /// Creates a refusal with `code` and `message`.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), header: None }
    }

    /// Adds an element to the error document.
    #[must_use]
    pub fn with_detail(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.details.push((name, text.into()));
        self
    }

    /// Adds a header to the reply.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }

    /// An invalid session token, or another session's.
    pub(crate) fn invalid_token() -> Self {
        messages::INVALID_TOKEN.refusal()
    }

    /// A signature of a version that is unknown or disabled.
    pub(crate) fn unsupported_mechanism() -> Self {
        messages::MECHANISM.refusal()
    }

    /// 503, with a retry after one second.
    pub(crate) fn try_again() -> Self {
        messages::UNAVAILABLE.refusal().with_header("retry-after", "1")
    }

    /// A feature of S3 that isn't supported. `what` names the header.
    pub fn not_implemented(what: &str) -> Self {
        messages::NOT_IMPLEMENTED.refusal().with_detail("Header", what)
    }
}

impl From<Refusal> for s3s::S3Error {
    fn from(refusal: Refusal) -> Self {
        let name = refusal.code.as_str();
        let code = s3s::S3ErrorCode::from_bytes(name.as_bytes())
            .unwrap_or_else(|| s3s::S3ErrorCode::Custom(name.into()));
        let mut error = Self::with_message(code, refusal.message);
        error.set_status_code(refusal.code.status());
        if !refusal.details.is_empty() {
            let mut headers = HeaderMap::new();
            for (name, text) in refusal.details {
                headers.append(DETAIL, detail(name, text));
            }
            error.set_headers(headers);
        }
        error
    }
}

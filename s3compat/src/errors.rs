//! Mapping of the object layer's errors to S3's codes and statuses.
//!
//! Client errors carry full details. Server errors are logged once, and the reply shows only if a
//! retry may succeed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ALLOW, CONTENT_RANGE, LAST_MODIFIED, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use martlet_protocol::{ErrorKind, VersionId};
use martlet_proxy::{Error, Exceeded};
use s3s::{S3Error, S3ErrorCode};

use crate::decode::BodyError;
use crate::header_values::{VERSION_ID, http_date, version_header};
use crate::messages;
use crate::refusal::{DETAIL, QUOTA_DETAIL, Refusal, detail};

const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
/// `Retry-After` of replies to requests that failed for the moment, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");
/// The same in milliseconds, for the clients that read no other header.
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("x-amz-retry-after");

/// S3 error for an error of the object layer.
pub(crate) fn s3_error(error: Error) -> S3Error {
    match error {
        Error::Body(error) => body_error(&error),
        Error::Backend(error) => backend_error(&error),
        other => request_error(&other),
    }
}

/// Errors caused by the request itself.
fn request_error(error: &Error) -> S3Error {
    if let Some(refusal) = refusal_of(error) {
        return refusal.into();
    }
    let message = error.to_string();
    match error {
        Error::BucketReplaced => unavailable(),
        Error::DeleteMarker { version, modified_ms, was_named } => {
            delete_marker(*version, *modified_ms, *was_named)
        }
        Error::PreconditionFailed(condition) => precondition_failed(condition),
        Error::NotModified(_) => precondition_failed("If-None-Match"),
        Error::InvalidRange { size } => invalid_range(*size),
        Error::InvalidBucketState(_) => {
            S3Error::with_message(S3ErrorCode::InvalidBucketState, message)
        }
        Error::CheckpointConflict(_) => {
            let mut error =
                S3Error::with_message(S3ErrorCode::Custom("CheckpointConflict".into()), message);
            error.set_status_code(StatusCode::CONFLICT);
            error
        }
        Error::QuotaExceeded(exceeded) => quota_exceeded(exceeded),
        Error::NoMasterKey => S3Error::with_message(S3ErrorCode::NotImplemented, message),
        Error::InvalidArgument(_) => S3Error::with_message(S3ErrorCode::InvalidArgument, message),
        Error::InvalidStorageClass(_) => {
            S3Error::with_message(S3ErrorCode::InvalidStorageClass, message)
        }
        _ => S3Error::with_message(S3ErrorCode::InvalidRequest, message),
    }
}

/// Refusal for errors that have an S3 message; `None` for all others.
fn refusal_of(error: &Error) -> Option<Refusal> {
    Some(match error {
        Error::NoSuchBucket => messages::NO_SUCH_BUCKET.refusal(),
        Error::BucketExists { .. } => messages::BUCKET_EXISTS.refusal(),
        Error::BucketNotEmpty => messages::BUCKET_NOT_EMPTY.refusal(),
        Error::NoSuchKey => messages::NO_SUCH_KEY.refusal(),
        Error::NoSuchVersion => messages::NO_SUCH_VERSION.refusal(),
        Error::AccessDenied => messages::ACCESS_DENIED.refusal(),
        Error::NoSuchUpload => messages::NO_SUCH_UPLOAD.refusal(),
        Error::ConditionalConflict => messages::CONFLICT.refusal(),
        Error::InvalidPartNumber { number, parts } => messages::PART_NUMBER_RANGE
            .refusal()
            .with_detail("ActualPartCount", parts.to_string())
            .with_detail("PartNumberRequested", number.to_string()),
        Error::InvalidPart(number) => {
            messages::INVALID_PART.refusal().with_detail("PartNumber", number.to_string())
        }
        Error::InvalidPartOrder => messages::INVALID_PART_ORDER.refusal(),
        Error::EntityTooSmall { number, size, minimum } => messages::ENTITY_TOO_SMALL
            .refusal()
            .with_detail("ProposedSize", size.to_string())
            .with_detail("MinSizeAllowed", minimum.to_string())
            .with_detail("PartNumber", number.to_string()),
        Error::EntityTooLarge { size, maximum } => messages::ENTITY_TOO_LARGE
            .refusal()
            .with_detail("ProposedSize", size.to_string())
            .with_detail("MaxSizeAllowed", maximum.to_string()),
        Error::BadDigest { given, computed } => bad_md5(given, computed),
        Error::BadChecksum(algorithm) => {
            messages::BAD_CHECKSUM.with_subject(crate::checksums::name(*algorithm))
        }
        Error::BadPartChecksum { number, algorithm } => {
            let name = crate::checksums::name(*algorithm).to_ascii_lowercase();
            messages::BAD_PART_CHECKSUM.with_subjects(name, number)
        }
        Error::Locked(_) => messages::LOCKED.refusal(),
        _ => return None,
    })
}

/// A body whose MD5 differs from the request's. As in S3, the request's digest is in hexadecimal
/// and the computed one in base64.
pub(crate) fn bad_md5(given: &[u8; 16], computed: &[u8; 16]) -> Refusal {
    messages::BAD_MD5
        .refusal()
        .with_detail("ExpectedDigest", hex::encode(given))
        .with_detail("CalculatedDigest", STANDARD.encode(computed))
}

/// 403, with the owner of the quota that would be exceeded.
fn quota_exceeded(exceeded: &Exceeded) -> S3Error {
    let mut error = S3Error::with_message(
        S3ErrorCode::Custom("QuotaExceeded".into()),
        format!("The request exceeds a quota: {exceeded}"),
    );
    error.set_status_code(StatusCode::FORBIDDEN);
    let detail = format!("{QUOTA_DETAIL}{}", exceeded.whose.name());
    let detail = HeaderValue::try_from(detail).expect("names of quotas are header values");
    error.set_headers(headers([(DETAIL, detail)]));
    error
}

/// 404 if a delete marker is the current version. 405 if a request named the delete marker by its
/// version: it can only be deleted.
fn delete_marker(version: VersionId, modified_ms: u64, was_named: bool) -> S3Error {
    let mut error = if was_named {
        messages::METHOD_NOT_ALLOWED.error()
    } else {
        messages::NO_SUCH_KEY.error()
    };
    let mut headers = headers([
        (DELETE_MARKER, HeaderValue::from_static("true")),
        (VERSION_ID, version_header(version)),
    ]);
    if was_named {
        headers.insert(ALLOW, HeaderValue::from_static("DELETE"));
        headers.insert(LAST_MODIFIED, http_date(modified_ms));
    }
    error.set_headers(headers);
    error
}

/// 412, with the header whose condition failed.
pub(crate) fn precondition_failed(condition: &'static str) -> S3Error {
    messages::PRECONDITION_FAILED.refusal().with_detail("Condition", condition).into()
}

/// 416, with the object's size: clients that fetch ranges recognize an empty object by it.
fn invalid_range(size: u64) -> S3Error {
    let mut error = messages::INVALID_RANGE.error();
    let range =
        HeaderValue::try_from(format!("bytes */{size}")).expect("digits are a header value");
    let actual = detail("ActualObjectSize", size);
    error.set_headers(headers([(CONTENT_RANGE, range), (DETAIL, actual)]));
    error
}

/// Maps an error of the request body: to the decoder's error, if the chain of sources has one, or
/// to `IncompleteBody`, for a broken connection.
fn body_error(error: &martlet_protocol::Error) -> S3Error {
    if let Some(error) = BodyError::find(error) {
        return Refusal::from(error.clone()).into();
    }
    messages::CONTENT_LENGTH.error()
}

/// Errors of a node.
fn backend_error(error: &martlet_protocol::Error) -> S3Error {
    match error.kind() {
        ErrorKind::Full => {
            tracing::warn!(%error, "no space left for a write");
            custom(
                "InsufficientStorage",
                "There is not enough space left to store the data",
                StatusCode::INSUFFICIENT_STORAGE,
            )
        }
        ErrorKind::Unavailable | ErrorKind::Conflict => {
            tracing::warn!(%error, "too few nodes answered a request");
            unavailable()
        }
        kind => {
            tracing::error!(%error, ?kind, "a request failed");
            internal()
        }
    }
}

/// 500, without details.
pub(crate) fn internal() -> S3Error {
    messages::INTERNAL.error()
}

/// 403 AccessDenied.
pub(crate) fn denied() -> S3Error {
    messages::ACCESS_DENIED.error()
}

/// 503, with `Retry-After`.
fn unavailable() -> S3Error {
    let mut error = messages::UNAVAILABLE.error();
    let milliseconds = HeaderValue::from_static("1000");
    let retry = [(RETRY_AFTER, RETRY_AFTER_SECONDS), (RETRY_AFTER_MS, milliseconds)];
    error.set_headers(headers(retry));
    error
}

/// An error whose code is unknown to s3s.
pub(crate) fn custom(code: &'static str, message: &'static str, status: StatusCode) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

fn headers<const N: usize>(pairs: [(HeaderName, HeaderValue); N]) -> HeaderMap {
    HeaderMap::from_iter(pairs)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::ChecksumAlgorithm;
    use martlet_protocol::lock::LockViolation;

    use super::*;

    fn marker(was_named: bool) -> Error {
        Error::DeleteMarker { version: VersionId::Null, modified_ms: 0, was_named }
    }

    #[test]
    fn a_delete_marker_sets_its_headers() {
        for was_named in [true, false] {
            let error = s3_error(marker(was_named));
            let headers = error.headers().unwrap();
            assert_eq!(headers[DELETE_MARKER], "true");
            assert_eq!(headers[VERSION_ID], "null");
            assert_eq!(headers.contains_key(ALLOW), was_named);
            assert_eq!(headers.contains_key(LAST_MODIFIED), was_named);
        }
    }

    fn over_quota() -> Error {
        let excess = martlet_protocol::usage::Excess::Bytes(7);
        Exceeded { whose: martlet_proxy::Whose::Bucket, excess }.into()
    }

    #[test]
    fn an_exceeded_quota_is_an_error_with_its_bound() {
        let error = s3_error(over_quota());
        assert_eq!(error.headers().unwrap()[DETAIL], "ExceededQuota=bucket");
        assert!(error.message().unwrap().contains("the bucket would be exceeded: 7 bytes"));
    }

    fn status_and_code(error: Error) -> (u16, String) {
        let error = s3_error(error);
        (error.status_code().unwrap().as_u16(), error.code().as_str().to_owned())
    }

    #[test]
    fn every_error_of_a_request_has_its_code_and_status() {
        let cases = [
            (Error::NoSuchBucket, 404, "NoSuchBucket"),
            (Error::NoSuchKey, 404, "NoSuchKey"),
            (Error::NoSuchVersion, 404, "NoSuchVersion"),
            (marker(false), 404, "NoSuchKey"),
            (marker(true), 405, "MethodNotAllowed"),
            (Error::NoSuchUpload, 404, "NoSuchUpload"),
            (Error::AccessDenied, 403, "AccessDenied"),
            (Error::BucketExists { owner: "x".into() }, 409, "BucketAlreadyExists"),
            (Error::BucketReplaced, 503, "ServiceUnavailable"),
            (Error::BucketNotEmpty, 409, "BucketNotEmpty"),
            (Error::PreconditionFailed("If-Match"), 412, "PreconditionFailed"),
            (Error::ConditionalConflict, 409, "ConditionalRequestConflict"),
            (Error::InvalidRange { size: 3 }, 416, "InvalidRange"),
            (Error::InvalidPartNumber { number: 9, parts: 2 }, 416, "InvalidPartNumber"),
            (Error::InvalidPart(2), 400, "InvalidPart"),
            (Error::InvalidPartOrder, 400, "InvalidPartOrder"),
            (Error::EntityTooSmall { number: 1, size: 2, minimum: 3 }, 400, "EntityTooSmall"),
            (Error::EntityTooLarge { size: 9, maximum: 3 }, 400, "EntityTooLarge"),
            (Error::BadDigest { given: [1; 16], computed: [2; 16] }, 400, "BadDigest"),
            (Error::BadChecksum(ChecksumAlgorithm::Crc32), 400, "BadDigest"),
            (Error::InvalidRequest("no".into()), 400, "InvalidRequest"),
            (Error::InvalidArgument("no".into()), 400, "InvalidArgument"),
            (Error::Locked(LockViolation::LegalHold), 403, "AccessDenied"),
            (Error::InvalidBucketState("no".into()), 409, "InvalidBucketState"),
            (Error::InvalidStorageClass("no".into()), 400, "InvalidStorageClass"),
            (Error::CheckpointConflict("a differs".into()), 409, "CheckpointConflict"),
            (Error::NoMasterKey, 501, "NotImplemented"),
            (over_quota(), 403, "QuotaExceeded"),
        ];
        for (error, status, code) in cases {
            assert_eq!(status_and_code(error), (status, code.to_owned()));
        }
    }

    #[test]
    fn errors_of_nodes_reveal_only_if_a_retry_helps() {
        let secret = "/srv/disk7 refused";
        for (kind, status, code) in [
            (ErrorKind::Full, 507, "InsufficientStorage"),
            (ErrorKind::Unavailable, 503, "ServiceUnavailable"),
            (ErrorKind::Conflict, 503, "ServiceUnavailable"),
            (ErrorKind::Corrupt, 500, "InternalError"),
            (ErrorKind::NotFound, 500, "InternalError"),
            (ErrorKind::Invalid, 500, "InternalError"),
            (ErrorKind::Internal, 500, "InternalError"),
        ] {
            let error = s3_error(martlet_protocol::Error::new(kind, secret).into());
            assert_eq!(error.status_code().unwrap().as_u16(), status);
            assert_eq!(error.code().as_str(), code);
            assert!(!error.message().unwrap().contains("disk7"));
            let retry = error.headers().is_some_and(|headers| headers.contains_key(RETRY_AFTER));
            assert_eq!(retry, status == 503);
        }
    }

    #[test]
    fn an_unsatisfiable_range_returns_the_size() {
        let error = s3_error(Error::InvalidRange { size: 42 });
        assert_eq!(error.headers().unwrap()[CONTENT_RANGE], "bytes */42");
        let reply = crate::reply::Reply::from(error);
        assert_eq!(reply.headers[http::header::CONTENT_TYPE], "application/xml");
    }

    fn sha256() -> BodyError {
        BodyError::ContentSha256 { given: [1; 32], computed: [2; 32] }
    }

    fn converted(error: Error) -> (String, Vec<(String, String)>) {
        let error = s3_error(error);
        let details = error.headers().map(|headers| headers.get_all(DETAIL).iter());
        let details =
            details.into_iter().flatten().filter_map(crate::refusal::read_detail).collect();
        (error.message().unwrap().to_owned(), details)
    }

    #[test]
    fn errors_have_s3s_codes_and_their_resource() {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let (message, details) = converted(Error::BadDigest { given: [1; 16], computed: [2; 16] });
        assert_eq!(message, "The Content-MD5 you specified did not match what we received.");
        let (given, computed) = ("01".repeat(16), "AgICAgICAgICAgICAgICAg==");
        let expected: Vec<_> = pairs(&[("ExpectedDigest", &given), ("CalculatedDigest", computed)]);
        assert_eq!(details, expected);
        let (message, _) = converted(Error::BadChecksum(ChecksumAlgorithm::Crc32));
        assert_eq!(message, "The CRC32 you specified did not match the calculated checksum.");
        let algorithm = ChecksumAlgorithm::Sha256;
        let (message, _) = converted(Error::BadPartChecksum { number: 1, algorithm });
        assert_eq!(message, "The sha256 you specified for part 1 did not match what we received.");
        let body = martlet_protocol::Error::invalid("outer").with_source(sha256());
        let (message, details) = converted(Error::Body(body));
        let said = "The provided 'x-amz-content-sha256' header does not match what was computed.";
        assert_eq!(message, said);
        let (given, computed) = ("01".repeat(32), "02".repeat(32));
        let expected: Vec<_> = pairs(&[
            ("ClientComputedContentSHA256", &given),
            ("S3ComputedContentSHA256", &computed),
        ]);
        assert_eq!(details, expected);
        let (_, details) = converted(Error::InvalidPartNumber { number: 9, parts: 2 });
        let expected: Vec<_> = pairs(&[("ActualPartCount", "2"), ("PartNumberRequested", "9")]);
        assert_eq!(details, expected);
        let (_, details) = converted(Error::PreconditionFailed("If-Match"));
        let expected: Vec<_> = pairs(&[("Condition", "If-Match")]);
        assert_eq!(details, expected);
    }

    #[test]
    fn the_decoders_word_is_found_however_deep_it_lies() {
        let inner = martlet_protocol::Error::invalid("inner").with_source(sha256());
        let outer = martlet_protocol::Error::invalid("outer").with_source(inner);
        let code = "XAmzContentSHA256Mismatch".to_owned();
        assert_eq!(status_and_code(Error::Body(outer)), (400, code));
    }

    #[test]
    fn a_broken_connection_is_an_incomplete_body() {
        let error = martlet_protocol::Error::invalid("reset by peer");
        assert_eq!(status_and_code(Error::Body(error)), (400, "IncompleteBody".to_owned()));
    }
}

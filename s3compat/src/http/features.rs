//! Refusal of headers that request unsupported features.
//!
//! Such headers are never ignored: a client that requested encryption must not believe that its
//! object is encrypted. Headers that concern no feature of S3 are ignored, as in S3.

mod subjects;

use http::header::RANGE;
use http::{HeaderMap, HeaderName};

use self::subjects::may_matter;
use crate::auth::single_header;
use crate::messages;
use crate::operation::Operation;
use crate::rdma;
use crate::refusal::Refusal;
use crate::target::percent_decode;

/// `x-amz-*` headers that are supported with any value.
const KNOWN: &[&str] = &[
    "x-amz-acl",
    "x-amz-bucket-object-lock-enabled",
    "x-amz-bypass-governance-retention",
    "x-amz-cf-id",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-md5",
    "x-amz-checksum-mode",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-sha512",
    "x-amz-checksum-type",
    "x-amz-checksum-xxhash128",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash64",
    "x-amz-confirm-remove-self-bucket-access",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key-md5",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-expected-bucket-owner",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-max-parts",
    "x-amz-metadata-directive",
    "x-amz-mp-object-size",
    "x-amz-object-attributes",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-object-ownership",
    "x-amz-part-number-marker",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-context",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
    "x-amz-skip-destination-validation",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-trailer",
    "x-amz-transition-default-minimum-object-size",
    "x-amz-user-agent",
    "x-amz-website-redirect-location",
];

/// Headers that are supported only with a value that requests the default behavior.
const KNOWN_VALUES: &[(&str, &str)] = &[
    ("x-amz-api-version", "2006-03-01"),
    ("x-amz-server-side-encryption-bucket-key-enabled", "false"),
    // No object is ever being restored.
    ("x-amz-optional-object-attributes", "RestoreStatus"),
];

const COPY_SOURCE: &str = "x-amz-copy-source";
const COPY_SOURCE_HEADER: HeaderName = HeaderName::from_static(COPY_SOURCE);

/// Headers with whole numbers. s3s reads a number from its leading digits, and an empty header as
/// none: a condition on a size would change or vanish.
const NUMBERS: [&str; 4] =
    ["x-amz-if-match-size", "x-amz-max-parts", "x-amz-mp-object-size", "x-amz-part-number-marker"];
/// Headers whose value must not be empty: s3s treats an empty one as absent.
const CONDITIONS: [&str; 1] = ["x-amz-if-match-last-modified-time"];
/// Maximum number of digits of a size.
const NUMBER_DIGITS_MAX: usize = 19;

/// Header that may have several lines.
const LISTED: &str = "x-amz-object-attributes";

/// Headers of CreateBucket alone: the new bucket's storage policy, the kind of its ETags, the
/// ownership of its objects, and object lock.
const OF_NEW_BUCKETS: [&str; 4] = [
    "x-martlet-storage-policy",
    "x-martlet-etags",
    "x-amz-object-ownership",
    "x-amz-bucket-object-lock-enabled",
];

/// Header of HeadBucket alone: the bucket's last count is needed.
const OF_HEAD_BUCKET: [&str; 1] = ["x-martlet-usage"];

/// Header with the expected owner of a bucket. Operations without an existing bucket refuse it.
const OF_OWNERS: [&str; 1] = ["x-amz-expected-bucket-owner"];
const OWNERLESS: [Operation; 2] = [Operation::CreateBucket, Operation::ListBuckets];
/// Header with the expected owner of a copy's source bucket.
const OF_SOURCES: [&str; 1] = ["x-amz-source-expected-bucket-owner"];
const WITH_SOURCE: [Operation; 2] = [Operation::CopyObject, Operation::UploadPartCopy];

/// Headers that lock a written object.
const OF_LOCKS: [&str; 3] = [
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
];
/// Operations that write such an object, or begin to.
const LOCKING: [Operation; 4] = [
    Operation::CopyObject,
    Operation::CreateMultipartUpload,
    Operation::PostObject,
    Operation::PutObject,
];

/// Headers with conditions on a deleted object.
const OF_DELETES: [&str; 2] = ["x-amz-if-match-last-modified-time", "x-amz-if-match-size"];

/// Operations that accept headers of encryption.
const WITH_KEYS: [Operation; 12] = [
    Operation::CompleteMultipartUpload,
    Operation::CopyObject,
    Operation::CreateMultipartUpload,
    Operation::GetObject,
    Operation::GetObjectAttributes,
    Operation::HeadObject,
    Operation::ListParts,
    Operation::LocateObject,
    Operation::PostObject,
    Operation::PutObject,
    Operation::UploadPart,
    Operation::UploadPartCopy,
];
const OF_KEYS: [&str; 2] =
    ["x-amz-server-side-encryption", "x-amz-copy-source-server-side-encryption"];

/// Refuses headers that belong to other operations.
pub(super) fn check_operation(operation: Operation, headers: &HeaderMap) -> Result<(), Refusal> {
    if WITH_SOURCE.contains(&operation) && headers.contains_key(RANGE) {
        return Err(Refusal::not_implemented("Range"));
    }
    let names = headers.keys().map(HeaderName::as_str);
    match names.filter(|name| name.starts_with("x-")).find(|name| is_stray(operation, name)) {
        Some(name) => Err(Refusal::not_implemented(name)),
        None => Ok(()),
    }
}

/// Returns true if a header belongs to operations other than this one.
fn is_stray(operation: Operation, name: &str) -> bool {
    let is_of_operation = if OF_NEW_BUCKETS.contains(&name) {
        operation == Operation::CreateBucket
    } else if OF_LOCKS.contains(&name) {
        LOCKING.contains(&operation)
    } else if OF_DELETES.contains(&name) {
        operation == Operation::DeleteObject
    } else if OF_HEAD_BUCKET.contains(&name) {
        operation == Operation::HeadBucket
    } else if OF_OWNERS.contains(&name) {
        !OWNERLESS.contains(&operation)
    } else if OF_SOURCES.contains(&name) {
        WITH_SOURCE.contains(&operation)
    } else if OF_KEYS.iter().any(|start| name.starts_with(start)) {
        WITH_KEYS.contains(&operation)
    } else {
        true
    };
    !is_of_operation
}

/// Refuses a copy source that cannot be percent-decoded: undecoded it would name another key.
pub(super) fn check_source(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(source) = single_header(headers, &COPY_SOURCE_HEADER)? else { return Ok(()) };
    percent_decode(source, false)
        .map(drop)
        .map_err(|_| messages::COPY_SOURCE_ENCODING.argument(COPY_SOURCE, source))
}

/// Refuses headers that request unsupported features.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    for header in headers.keys() {
        let name = header.as_str();
        if !name.starts_with("x-amz-") || name.starts_with("x-amz-meta-") {
            continue;
        }
        if rdma::is_header(name) {
            continue;
        }
        let known = KNOWN.binary_search(&name).ok().map(|at| KNOWN[at]);
        if let Some(name) = known {
            // A header that is read once must occur once.
            if name != LISTED
                && let Some(value) = single_header(headers, header)?
            {
                check_value(name, value)?;
            }
            continue;
        }
        let is_known = |given: &[u8]| {
            KNOWN_VALUES.iter().any(|(known, value)| *known == name && value.as_bytes() == given)
        };
        let is_meant = || headers.get_all(header).iter().all(|given| is_known(given.as_bytes()));
        if name.starts_with("x-amz-checksum-") {
            return Err(messages::CHECKSUM_NAME.refusal());
        }
        if may_matter(name) && !is_meant() {
            return Err(Refusal::not_implemented(name));
        }
    }
    Ok(())
}

/// Refuses a value that could be misread as another value, or as none.
fn check_value(name: &'static str, value: &str) -> Result<(), Refusal> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = (1..=NUMBER_DIGITS_MAX).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_wrong =
        NUMBERS.contains(&name) && !is_number || CONDITIONS.contains(&name) && value.is_empty();
    if !is_wrong {
        return Ok(());
    }
    if name == "x-amz-mp-object-size" {
        return Err(messages::OBJECT_SIZE.with_subject(value));
    }
    Err(messages::HEADER_VALUE.named(name).with_detail("ArgumentValue", value))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::refusal::Code;

    fn check_one(name: &'static str, value: &'static str) -> Result<(), Code> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        check(&headers).map_err(|refusal| refusal.code)
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn unsupported_headers_are_refused() {
        for (name, value) in [
            ("x-amz-server-side-encryption-bucket-key-enabled", "true"),
            ("x-amz-server-side-encryption-something-new", "1"),
            ("x-amz-bucket-object-lock-token", "t"),
            ("x-amz-mfa", "1 2"),
            ("x-amz-api-version", "1970-01-01"),
            ("x-amz-expected-object-owner", "123"),
            ("x-amz-write-offset-bytes", "1"),
            ("x-amz-object-something-new", "1"),
        ] {
            assert_eq!(check_one(name, value), Err(Code::NotImplemented), "{name}");
        }
    }

    #[test]
    fn numbers_are_numbers_to_their_end() {
        for name in NUMBERS {
            for wrong in ["", "5x", "x", "1,000", "1e3", "1.9", "+5", "0x5", "5 5", "-"] {
                assert!(check_one(name, wrong).is_err(), "{name}: {wrong:?}");
            }
            for right in ["0", "5", " 5 ", "-1", "9223372036854775807"] {
                assert_eq!(check_one(name, right), Ok(()), "{name}: {right:?}");
            }
        }
        assert!(check_one(CONDITIONS[0], "").is_err());
    }

    #[test]
    fn supported_headers_are_accepted() {
        for (name, value) in [
            ("x-amz-acl", "public-read"),
            ("x-amz-grant-read", "id=1"),
            ("x-amz-api-version", "2006-03-01"),
            ("x-amz-optional-object-attributes", "RestoreStatus"),
            ("x-amz-meta-anything", "1"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-storage-class", "STANDARD"),
            ("x-amz-foo", "bar"),
            ("x-amz-foo-acl", "bar"),
            ("authorization", "AWS4"),
            ("x-custom", "1"),
        ] {
            assert_eq!(check_one(name, value), Ok(()), "{name}");
        }
    }

    #[test]
    fn policy_and_ownership_are_for_buckets_to_be_made() {
        assert!(check_operation(Operation::PutObject, &HeaderMap::new()).is_ok());
        for name in OF_NEW_BUCKETS {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("ec"));
            assert!(check_operation(Operation::CreateBucket, &headers).is_ok());
            let refusal = check_operation(Operation::PutObject, &headers).unwrap_err();
            assert_eq!(refusal.code, Code::NotImplemented, "{name}");
        }
    }

    #[test]
    fn locks_are_for_objects_to_be_written() {
        for name in OF_LOCKS {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static("ON"),
            )]);
            assert!(LOCKING.iter().all(|operation| check_operation(*operation, &headers).is_ok()));
            for operation in [
                Operation::UploadPart,
                Operation::CompleteMultipartUpload,
                Operation::PutObjectRetention,
            ] {
                let refusal = check_operation(operation, &headers).unwrap_err();
                assert_eq!(refusal.code, Code::NotImplemented, "{operation:?}");
            }
        }
    }

    #[test]
    fn owners_are_expected_of_buckets_that_there_are() {
        let check = |operation: Operation, name: &'static str| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static("1"),
            )]);
            check_operation(operation, &headers).map_err(|refusal| refusal.code)
        };
        assert_eq!(check(Operation::HeadBucket, OF_OWNERS[0]), Ok(()));
        assert_eq!(check(Operation::CopyObject, OF_SOURCES[0]), Ok(()));
        for operation in OWNERLESS {
            assert_eq!(check(operation, OF_OWNERS[0]), Err(Code::NotImplemented), "{operation:?}");
        }
        assert_eq!(check(Operation::PutObject, OF_SOURCES[0]), Err(Code::NotImplemented));
    }

    #[test]
    fn counts_are_of_buckets() {
        let name = HeaderName::from_static(OF_HEAD_BUCKET[0]);
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("true"))]);
        assert!(check_operation(Operation::HeadBucket, &headers).is_ok());
        for operation in [Operation::ListBuckets, Operation::HeadObject] {
            assert!(check_operation(operation, &headers).is_err(), "{operation:?}");
        }
    }

    #[test]
    fn sizes_and_dates_are_for_deletes() {
        for name in OF_DELETES {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("1"));
            assert!(check_operation(Operation::DeleteObject, &headers).is_ok());
            for operation in [Operation::PutObject, Operation::GetObject, Operation::DeleteObjects]
            {
                let refusal = check_operation(operation, &headers).unwrap_err();
                assert_eq!(refusal.code, Code::NotImplemented, "{operation:?}");
            }
        }
    }

    #[test]
    fn keys_are_for_operations_that_need_some() {
        for name in OF_KEYS {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("AES256"));
            assert!(
                WITH_KEYS.iter().all(|operation| check_operation(*operation, &headers).is_ok())
            );
            for operation in [
                Operation::DeleteObject,
                Operation::PutObjectTagging,
                Operation::CreateBucket,
                Operation::ListObjectsV2,
            ] {
                let refusal = check_operation(operation, &headers).unwrap_err();
                assert_eq!(refusal.code, Code::NotImplemented, "{operation:?}");
            }
        }
    }

    #[test]
    fn checksums_are_those_that_s3_has() {
        for algorithm in martlet_protocol::entry::ChecksumAlgorithm::ALL {
            assert_eq!(check_one(crate::checksums::header(algorithm), "x"), Ok(()));
        }
        assert_eq!(check_one("x-amz-checksum-crc16", "x"), Err(Code::InvalidRequest));
    }

    #[test]
    fn sources_of_copies_are_percent_encoded() {
        let check = |source| {
            check_source(&HeaderMap::from_iter([(
                HeaderName::from_static(COPY_SOURCE),
                HeaderValue::from_static(source),
            )]))
        };
        assert!(check("/b/a%20b/%C3%BC+?versionId=null").is_ok());
        for wrong in ["b/%ZZ", "100%/a/b", "b/%A/c", "%", "b/%1", "b/%C3%", "b/%ff"] {
            assert_eq!(check(wrong).unwrap_err().code, Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn doubled_headers_are_refused() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-copy-source", HeaderValue::from_static("/b/one"));
        headers.append("x-amz-copy-source", HeaderValue::from_static("/b/two"));
        assert_eq!(check(&headers).unwrap_err().code, Code::InvalidArgument);
    }
}

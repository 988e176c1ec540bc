//! `x-amz-checksum-*`: ten algorithms, in headers, trailers, XML and listings.
//!
//! * `elements`: checksums in documents.

pub(crate) mod elements;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use martlet_protocol::entry::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag};
use s3s::S3Result;
use s3s::dto::{ChecksumAlgorithm as WireAlgorithm, ChecksumType};

use crate::messages;

/// Checksum of objects written without one, as in S3.
pub(crate) const DEFAULT: (ChecksumAlgorithm, ChecksumKind) =
    (ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject);

const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";
const ALGORITHM: &str = "x-amz-checksum-algorithm";
const TYPE: &str = "x-amz-checksum-type";
const HEADER_PREFIX: &str = "x-amz-checksum-";

/// Name of an algorithm in headers and XML.
pub(crate) fn name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "CRC32",
        ChecksumAlgorithm::Crc32c => "CRC32C",
        ChecksumAlgorithm::Crc64Nvme => "CRC64NVME",
        ChecksumAlgorithm::Sha1 => "SHA1",
        ChecksumAlgorithm::Sha256 => "SHA256",
        ChecksumAlgorithm::Sha512 => "SHA512",
        ChecksumAlgorithm::Md5 => "MD5",
        ChecksumAlgorithm::Xxhash64 => "XXHASH64",
        ChecksumAlgorithm::Xxhash3 => "XXHASH3",
        ChecksumAlgorithm::Xxhash128 => "XXHASH128",
    }
}

/// Header that carries the algorithm's value.
pub(crate) fn header(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "x-amz-checksum-crc32",
        ChecksumAlgorithm::Crc32c => "x-amz-checksum-crc32c",
        ChecksumAlgorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
        ChecksumAlgorithm::Sha1 => "x-amz-checksum-sha1",
        ChecksumAlgorithm::Sha256 => "x-amz-checksum-sha256",
        ChecksumAlgorithm::Sha512 => "x-amz-checksum-sha512",
        ChecksumAlgorithm::Md5 => "x-amz-checksum-md5",
        ChecksumAlgorithm::Xxhash64 => "x-amz-checksum-xxhash64",
        ChecksumAlgorithm::Xxhash3 => "x-amz-checksum-xxhash3",
        ChecksumAlgorithm::Xxhash128 => "x-amz-checksum-xxhash128",
    }
}

/// Algorithm of a checksum header; `None` for any other header.
pub(crate) fn of_header(name: &str) -> Option<ChecksumAlgorithm> {
    if !name.starts_with(HEADER_PREFIX) {
        return None;
    }
    ChecksumAlgorithm::ALL.into_iter().find(|known| header(*known) == name)
}

/// Decodes a base64 value; `None` if its length is wrong.
pub(crate) fn decode(algorithm: ChecksumAlgorithm, text: &str) -> Option<Vec<u8>> {
    let value = STANDARD.decode(text.trim()).ok()?;
    (value.len() == algorithm.value_bytes()).then_some(value)
}

/// As [`decode`], and accepts the suffix of a composite checksum: `-` and the number of parts.
pub(crate) fn decode_whole(algorithm: ChecksumAlgorithm, text: &str) -> Option<Vec<u8>> {
    let value = match text.split_once('-') {
        Some((value, parts)) if parts.parse::<u16>().is_ok() => value,
        _ => text,
    };
    decode(algorithm, value)
}

/// True if a text is base64 digits without their padding: a truncated checksum, which is a
/// `BadDigest`. Any other unreadable text is an `InvalidRequest`.
fn is_cut_off(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    text.len() % 4 > 1 && text.bytes().all(is_digit)
}

/// Returns the checksum in a request's headers, if any. More than one is an error.
pub(crate) fn in_headers(
    headers: &HeaderMap,
    decode: fn(ChecksumAlgorithm, &str) -> Option<Vec<u8>>,
) -> S3Result<Option<(ChecksumAlgorithm, Vec<u8>)>> {
    let mut found = None;
    for (name, value) in headers {
        let Some(algorithm) = of_header(name.as_str()) else { continue };
        if found.is_some() {
            return Err(messages::MANY_CHECKSUMS.error());
        }
        let text = value.to_str().unwrap_or_default();
        let name = header(algorithm);
        match decode(algorithm, text) {
            Some(value) => found = Some((algorithm, value)),
            None if is_cut_off(text) => {
                return Err(messages::CHECKSUM_CUT_OFF.with_subject(name).into());
            }
            None => return Err(messages::CHECKSUM_HEADER.with_subject(name).into()),
        }
    }
    Ok(found)
}

/// Algorithm that the header `name_of_header` names, if the header is present.
fn named(headers: &HeaderMap, name_of_header: &str) -> S3Result<Option<ChecksumAlgorithm>> {
    let Some(value) = headers.get(name_of_header) else { return Ok(None) };
    let is_named =
        |known: &ChecksumAlgorithm| value.as_bytes().eq_ignore_ascii_case(name(*known).as_bytes());
    match ChecksumAlgorithm::ALL.into_iter().find(is_named) {
        Some(algorithm) => Ok(Some(algorithm)),
        None => Err(messages::CHECKSUM_ALGORITHM.error()),
    }
}

/// Algorithm that `x-amz-checksum-algorithm` requests.
pub(crate) fn requested_algorithm(headers: &HeaderMap) -> S3Result<Option<ChecksumAlgorithm>> {
    named(headers, ALGORITHM)
}

/// Refuses an `x-amz-sdk-checksum-algorithm` that is not among the algorithms in `given`.
pub(crate) fn check_announced(headers: &HeaderMap, given: &[ChecksumAlgorithm]) -> S3Result<()> {
    match named(headers, SDK_ALGORITHM)? {
        Some(_) if given.is_empty() => Err(messages::SDK_ALGORITHM.error()),
        Some(announced) if !given.contains(&announced) => {
            Err(messages::CHECKSUM_HEADER.with_subject(SDK_ALGORITHM).into())
        }
        _ => Ok(()),
    }
}

/// Kind that `x-amz-checksum-type` names.
pub(crate) fn kind(headers: &HeaderMap) -> S3Result<Option<ChecksumKind>> {
    let Some(value) = headers.get(TYPE) else { return Ok(None) };
    let named =
        |kind: &ChecksumKind| value.as_bytes().eq_ignore_ascii_case(kind_name(*kind).as_bytes());
    let known = [ChecksumKind::FullObject, ChecksumKind::Composite].into_iter().find(named);
    match known {
        Some(kind) => Ok(Some(kind)),
        None => Err(messages::CHECKSUM_HEADER.with_subject(TYPE).into()),
    }
}

/// Algorithm and kind of checksum that a new upload requests: of the whole object, or of the
/// checksums of its parts.
pub(crate) fn of_upload(
    headers: &HeaderMap,
) -> S3Result<Option<(ChecksumAlgorithm, ChecksumKind)>> {
    let kind = kind(headers)?;
    let Some(algorithm) = requested_algorithm(headers)? else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(messages::CHECKSUM_KIND_ALONE.error()),
        };
    };
    // CRCs of parts can be joined to the CRC of the whole; hashes can't.
    let is_hash = !algorithm.is_joinable();
    match (algorithm, kind) {
        (ChecksumAlgorithm::Crc64Nvme, Some(ChecksumKind::Composite)) => {
            Err(wrong_kind("COMPOSITE", algorithm))
        }
        (_, Some(ChecksumKind::FullObject)) if is_hash => Err(wrong_kind("FULL_OBJECT", algorithm)),
        (ChecksumAlgorithm::Crc64Nvme, None) => Ok(Some((algorithm, ChecksumKind::FullObject))),
        (_, kind) => Ok(Some((algorithm, kind.unwrap_or(ChecksumKind::Composite)))),
    }
}

fn wrong_kind(kind: &str, algorithm: ChecksumAlgorithm) -> s3s::S3Error {
    messages::CHECKSUM_KIND.with_subjects(kind, name(algorithm).to_ascii_lowercase()).into()
}

/// Algorithm as s3s's type for listings.
pub(crate) fn wire_algorithm(algorithm: ChecksumAlgorithm) -> WireAlgorithm {
    WireAlgorithm::from_static(name(algorithm))
}

/// Kind as s3s's type for listings.
pub(crate) fn wire_kind(kind: ChecksumKind) -> ChecksumType {
    ChecksumType::from_static(kind_name(kind))
}

/// Name of a kind in headers and listings.
pub(crate) fn kind_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::FullObject => ChecksumType::FULL_OBJECT,
        ChecksumKind::Composite => ChecksumType::COMPOSITE,
    }
}

/// Formats a checksum value as S3 does. A composite value ends with the number of parts, taken from
/// the ETag.
pub(crate) fn encode(checksum: &Checksum, etag: ETag) -> String {
    let value = STANDARD.encode(&checksum.value);
    match (checksum.kind, etag.parts()) {
        (ChecksumKind::Composite, Some(parts)) => format!("{value}-{parts}"),
        _ => value,
    }
}

/// Adds checksums to headers.
pub(crate) fn set_headers<'a>(
    headers: &mut HeaderMap,
    checksums: impl IntoIterator<Item = &'a Checksum>,
    etag: ETag,
) {
    for checksum in checksums {
        let value = HeaderValue::try_from(encode(checksum, etag));
        headers.insert(
            header(checksum.algorithm),
            value.expect("base64 and digits are a header value"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn values_have_the_length_of_their_algorithm() {
        assert_eq!(decode(ChecksumAlgorithm::Crc32, "AAAAAA=="), Some(vec![0; 4]));
        assert_eq!(decode(ChecksumAlgorithm::Crc32, "AAAA"), None);
        assert_eq!(decode(ChecksumAlgorithm::Sha1, "AAAAAA=="), None);
        assert_eq!(decode(ChecksumAlgorithm::Crc32, "?"), None);
        for algorithm in ChecksumAlgorithm::ALL {
            let value = vec![7; algorithm.value_bytes()];
            assert_eq!(decode(algorithm, &STANDARD.encode(&value)), Some(value));
        }
    }

    #[test]
    fn one_value_at_most_and_it_must_be_one() {
        let crc = ("x-amz-checksum-crc32", "AAAAAA==");
        let found = in_headers(&headers(&[crc]), decode).unwrap();
        assert_eq!(found, Some((ChecksumAlgorithm::Crc32, vec![0; 4])));
        assert_eq!(in_headers(&headers(&[]), decode).unwrap(), None);
        assert!(
            in_headers(&headers(&[crc, ("x-amz-checksum-crc32c", "AAAAAA==")]), decode).is_err()
        );
        assert!(in_headers(&headers(&[("x-amz-checksum-sha256", "nonsense")]), decode).is_err());
    }

    #[test]
    fn full_object_checksums_may_have_a_part_count() {
        assert_eq!(decode_whole(ChecksumAlgorithm::Crc32, "AAAAAA==-3"), Some(vec![0; 4]));
        assert_eq!(decode_whole(ChecksumAlgorithm::Crc32, "AAAAAA=="), Some(vec![0; 4]));
        assert_eq!(decode_whole(ChecksumAlgorithm::Crc32, "AAAAAA==-x"), None);
    }

    #[test]
    fn an_announced_algorithm_is_that_of_the_value() {
        let map = headers(&[(SDK_ALGORITHM, "sha256")]);
        assert!(check_announced(&map, &[]).is_err());
        assert!(check_announced(&map, &[ChecksumAlgorithm::Sha256]).is_ok());
        assert!(check_announced(&map, &[ChecksumAlgorithm::Crc32]).is_err());
        assert!(check_announced(&headers(&[(SDK_ALGORITHM, "md4")]), &[]).is_err());
        assert!(check_announced(&headers(&[]), &[]).is_ok());
    }

    #[test]
    fn uploads_know_what_their_checksum_will_cover() {
        use ChecksumKind::{Composite, FullObject};
        let of = |pairs: &[(&'static str, &str)]| of_upload(&headers(pairs)).ok().flatten();
        let crc32 = ChecksumAlgorithm::Crc32;
        assert_eq!(of(&[(ALGORITHM, "CRC32")]), Some((crc32, Composite)));
        assert_eq!(of(&[(ALGORITHM, "CRC32"), (TYPE, "FULL_OBJECT")]), Some((crc32, FullObject)));
        assert_eq!(of(&[(ALGORITHM, "crc32"), (TYPE, "full_Object")]), Some((crc32, FullObject)));
        let nvme = ChecksumAlgorithm::Crc64Nvme;
        assert_eq!(of(&[(ALGORITHM, "CRC64NVME")]), Some((nvme, FullObject)));
        for wrong in [
            &[(ALGORITHM, "CRC64NVME"), (TYPE, "COMPOSITE")][..],
            &[(ALGORITHM, "SHA1"), (TYPE, "FULL_OBJECT")],
            &[(ALGORITHM, "SHA512"), (TYPE, "FULL_OBJECT")],
            &[(ALGORITHM, "MD5"), (TYPE, "FULL_OBJECT")],
            &[(ALGORITHM, "XXHASH64"), (TYPE, "FULL_OBJECT")],
            &[(ALGORITHM, "XXHASH3"), (TYPE, "FULL_OBJECT")],
            &[(ALGORITHM, "XXHASH128"), (TYPE, "FULL_OBJECT")],
            &[(TYPE, "COMPOSITE")],
            &[(ALGORITHM, "CRC32"), (TYPE, "half")],
        ] {
            assert!(of_upload(&headers(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_algorithm_has_a_header_and_a_name() {
        for algorithm in ChecksumAlgorithm::ALL {
            assert_eq!(of_header(header(algorithm)), Some(algorithm));
            let lower = name(algorithm).to_ascii_lowercase();
            assert_eq!(header(algorithm).strip_prefix(HEADER_PREFIX), Some(&*lower));
            assert_eq!(
                requested_algorithm(&headers(&[(ALGORITHM, &lower)])).unwrap(),
                Some(algorithm)
            );
        }
        for other in ["x-amz-checksum-type", "x-amz-checksum-mode", "x-amz-meta-md5", "etag"] {
            assert_eq!(of_header(other), None);
        }
    }

    #[test]
    fn a_composite_checksum_has_its_part_count() {
        let mut checksum = Checksum {
            algorithm: ChecksumAlgorithm::Crc32,
            kind: ChecksumKind::Composite,
            value: vec![0; 4],
        };
        let etag = ETag::Multipart { md5: [0; 16], parts: 3 };
        assert_eq!(encode(&checksum, etag), "AAAAAA==-3");
        checksum.kind = ChecksumKind::FullObject;
        assert_eq!(encode(&checksum, etag), "AAAAAA==");
    }
}

//! `x-amz-checksum-*`: five algorithms, in headers, trailers, XML and listings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use martlet_protocol::entry::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag};
use s3s::dto::{ChecksumAlgorithm as WireAlgorithm, ChecksumType};
use s3s::{S3Result, s3_error};

/// All of them.
pub(crate) const ALL: [ChecksumAlgorithm; 5] = [
    ChecksumAlgorithm::Crc32,
    ChecksumAlgorithm::Crc32c,
    ChecksumAlgorithm::Crc64Nvme,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Sha256,
];

/// What is computed where nobody asked for anything, as S3 does.
pub(crate) const DEFAULT: (ChecksumAlgorithm, ChecksumKind) =
    (ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject);

const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";
const ALGORITHM: &str = "x-amz-checksum-algorithm";
const TYPE: &str = "x-amz-checksum-type";

/// The algorithm as headers and XML call it.
pub(crate) fn name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "CRC32",
        ChecksumAlgorithm::Crc32c => "CRC32C",
        ChecksumAlgorithm::Crc64Nvme => "CRC64NVME",
        ChecksumAlgorithm::Sha1 => "SHA1",
        ChecksumAlgorithm::Sha256 => "SHA256",
    }
}

/// The header that carries its value.
pub(crate) fn header(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "x-amz-checksum-crc32",
        ChecksumAlgorithm::Crc32c => "x-amz-checksum-crc32c",
        ChecksumAlgorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
        ChecksumAlgorithm::Sha1 => "x-amz-checksum-sha1",
        ChecksumAlgorithm::Sha256 => "x-amz-checksum-sha256",
    }
}

/// Bytes of its value.
fn length(algorithm: ChecksumAlgorithm) -> usize {
    match algorithm {
        ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c => 4,
        ChecksumAlgorithm::Crc64Nvme => 8,
        ChecksumAlgorithm::Sha1 => 20,
        ChecksumAlgorithm::Sha256 => 32,
    }
}

/// A value in base64, if it has the right length.
pub(crate) fn decode(algorithm: ChecksumAlgorithm, text: &str) -> Option<Vec<u8>> {
    let value = STANDARD.decode(text.trim()).ok()?;
    (value.len() == length(algorithm)).then_some(value)
}

/// As [`decode`], also for the checksum of checksums of so many parts, which says how many.
pub(crate) fn decode_whole(algorithm: ChecksumAlgorithm, text: &str) -> Option<Vec<u8>> {
    let value = match text.split_once('-') {
        Some((value, parts)) if parts.parse::<u16>().is_ok() => value,
        _ => text,
    };
    decode(algorithm, value)
}

/// Whether a text is base64 but for its padding: a checksum of which a piece is missing, which is a wrong
/// one. What can't be read otherwise is none.
fn is_cut_off(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    text.len() % 4 > 1 && text.bytes().all(is_digit)
}

/// The checksum in a request's headers, if there is one. Two are a mistake.
pub(crate) fn in_headers(
    headers: &HeaderMap,
    decode: fn(ChecksumAlgorithm, &str) -> Option<Vec<u8>>,
) -> S3Result<Option<(ChecksumAlgorithm, Vec<u8>)>> {
    let mut found = None;
    for algorithm in ALL {
        let Some(value) = headers.get(header(algorithm)) else { continue };
        if found.is_some() {
            return Err(s3_error!(
                InvalidRequest,
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
            ));
        }
        let text = value.to_str().unwrap_or_default();
        let name = header(algorithm);
        match decode(algorithm, text) {
            Some(value) => found = Some((algorithm, value)),
            None if is_cut_off(text) => {
                return Err(s3_error!(BadDigest, "Value for {name} header is invalid."));
            }
            None => return Err(s3_error!(InvalidRequest, "Value for {name} header is invalid.")),
        }
    }
    Ok(found)
}

/// The algorithm that a header names, if there is one.
fn named(headers: &HeaderMap, name_of_header: &str) -> S3Result<Option<ChecksumAlgorithm>> {
    let Some(value) = headers.get(name_of_header) else { return Ok(None) };
    let known = ALL
        .into_iter()
        .find(|&known| value.as_bytes().eq_ignore_ascii_case(name(known).as_bytes()));
    match known {
        Some(algorithm) => Ok(Some(algorithm)),
        None => Err(s3_error!(
            InvalidRequest,
            "Checksum algorithm provided is unsupported. Please try again with any of the valid \
             types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"
        )),
    }
}

/// The algorithm that `x-amz-checksum-algorithm` asks for.
pub(crate) fn asked(headers: &HeaderMap) -> S3Result<Option<ChecksumAlgorithm>> {
    named(headers, ALGORITHM)
}

/// The algorithm that `x-amz-sdk-checksum-algorithm` announces; `given` are those of values.
pub(crate) fn announced(
    headers: &HeaderMap,
    given: &[ChecksumAlgorithm],
) -> S3Result<Option<ChecksumAlgorithm>> {
    let announced = named(headers, SDK_ALGORITHM)?;
    if announced.is_some_and(|announced| !given.is_empty() && !given.contains(&announced)) {
        return Err(s3_error!(
            InvalidRequest,
            "Value for x-amz-sdk-checksum-algorithm header is invalid."
        ));
    }
    Ok(announced)
}

/// What `x-amz-checksum-type` says.
pub(crate) fn kind(headers: &HeaderMap) -> S3Result<Option<ChecksumKind>> {
    let Some(value) = headers.get(TYPE) else { return Ok(None) };
    let named =
        |kind: &ChecksumKind| value.as_bytes().eq_ignore_ascii_case(kind_name(*kind).as_bytes());
    let known = [ChecksumKind::FullObject, ChecksumKind::Composite].into_iter().find(named);
    match known {
        Some(kind) => Ok(Some(kind)),
        None => Err(s3_error!(InvalidRequest, "Value for {TYPE} header is invalid.")),
    }
}

/// What a new upload announces: the algorithm, and whether the object's checksum will cover its
/// bytes or the checksums of its parts.
pub(crate) fn of_upload(
    headers: &HeaderMap,
) -> S3Result<Option<(ChecksumAlgorithm, ChecksumKind)>> {
    let kind = kind(headers)?;
    let Some(algorithm) = asked(headers)? else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(s3_error!(
                InvalidRequest,
                "The {TYPE} header can only be used with the {ALGORITHM} header."
            )),
        };
    };
    // The sums of a CRC over parts give that of the whole; a hash of parts gives nothing of it.
    let hash = matches!(algorithm, ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256);
    match (algorithm, kind) {
        (ChecksumAlgorithm::Crc64Nvme, Some(ChecksumKind::Composite)) => {
            Err(wrong_kind("COMPOSITE", algorithm))
        }
        (_, Some(ChecksumKind::FullObject)) if hash => Err(wrong_kind("FULL_OBJECT", algorithm)),
        (ChecksumAlgorithm::Crc64Nvme, None) => Ok(Some((algorithm, ChecksumKind::FullObject))),
        (_, kind) => Ok(Some((algorithm, kind.unwrap_or(ChecksumKind::Composite)))),
    }
}

fn wrong_kind(kind: &str, algorithm: ChecksumAlgorithm) -> s3s::S3Error {
    s3_error!(
        InvalidRequest,
        "The {kind} checksum type cannot be used with the {} checksum algorithm.",
        name(algorithm).to_ascii_lowercase()
    )
}

/// The algorithm as a listing names it.
pub(crate) fn wire_algorithm(algorithm: ChecksumAlgorithm) -> WireAlgorithm {
    WireAlgorithm::from_static(name(algorithm))
}

/// The kind as headers and listings name it.
pub(crate) fn wire_kind(kind: ChecksumKind) -> ChecksumType {
    ChecksumType::from_static(kind_name(kind))
}

/// The kind as headers and listings name it.
pub(crate) fn kind_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::FullObject => ChecksumType::FULL_OBJECT,
        ChecksumKind::Composite => ChecksumType::COMPOSITE,
    }
}

/// A value as S3 writes it. That of a composite says of how many parts, which its ETag knows.
pub(crate) fn encode(checksum: &Checksum, etag: ETag) -> String {
    let value = STANDARD.encode(&checksum.value);
    match (checksum.kind, etag) {
        (ChecksumKind::Composite, ETag::Multipart { parts, .. }) => format!("{value}-{parts}"),
        _ => value,
    }
}

/// Puts checksums into the five fields that s3s has for them in a reply.
macro_rules! set_checksums {
    ($reply:expr, $checksums:expr, $etag:expr) => {
        for checksum in $checksums {
            let value = Some($crate::checksums::encode(checksum, $etag));
            match checksum.algorithm {
                ChecksumAlgorithm::Crc32 => $reply.checksum_crc32 = value,
                ChecksumAlgorithm::Crc32c => $reply.checksum_crc32c = value,
                ChecksumAlgorithm::Crc64Nvme => $reply.checksum_crc64nvme = value,
                ChecksumAlgorithm::Sha1 => $reply.checksum_sha1 = value,
                ChecksumAlgorithm::Sha256 => $reply.checksum_sha256 = value,
            }
        }
    };
}
pub(crate) use set_checksums;

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
        for algorithm in ALL {
            let value = vec![7; length(algorithm)];
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
    fn the_checksum_of_a_whole_may_say_how_many_parts() {
        assert_eq!(decode_whole(ChecksumAlgorithm::Crc32, "AAAAAA==-3"), Some(vec![0; 4]));
        assert_eq!(decode_whole(ChecksumAlgorithm::Crc32, "AAAAAA=="), Some(vec![0; 4]));
        assert_eq!(decode_whole(ChecksumAlgorithm::Crc32, "AAAAAA==-x"), None);
    }

    #[test]
    fn an_announced_algorithm_is_that_of_the_value() {
        let map = headers(&[(SDK_ALGORITHM, "sha256")]);
        assert_eq!(announced(&map, &[]).unwrap(), Some(ChecksumAlgorithm::Sha256));
        assert!(announced(&map, &[ChecksumAlgorithm::Sha256]).is_ok());
        assert!(announced(&map, &[ChecksumAlgorithm::Crc32]).is_err());
        assert!(announced(&headers(&[(SDK_ALGORITHM, "md4")]), &[]).is_err());
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
            &[(TYPE, "COMPOSITE")],
            &[(ALGORITHM, "CRC32"), (TYPE, "half")],
        ] {
            assert!(of_upload(&headers(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_composite_tells_its_parts() {
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

//! Comparison of documents with their Content-MD5 and `x-amz-checksum-*`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_proxy::checksum_of;
use md5::{Digest, Md5};

use crate::auth::single_header;
use crate::checksums;
use crate::errors::bad_md5;
use crate::messages;
use crate::refusal::Refusal;

/// Content-MD5 of a request, if any.
pub(super) fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, Refusal> {
    let Some(text) = single_header(headers, &CONTENT_MD5)? else { return Ok(None) };
    let digest = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    digest.map(Some).ok_or_else(|| messages::INVALID_MD5.refusal().with_detail("Content-MD5", text))
}

/// Compares a document with its Content-MD5.
pub(super) fn check_md5(document: &[u8], given: Option<[u8; 16]>) -> Result<(), Refusal> {
    let Some(given) = given else { return Ok(()) };
    let computed = <[u8; 16]>::from(Md5::digest(document));
    if given == computed { Ok(()) } else { Err(bad_md5(&given, &computed)) }
}

const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Compares a document with the checksum in its headers or trailers. Refuses several checksums, and
/// an announced one that is missing.
pub(super) fn check_checksums(
    document: &[u8],
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
) -> Result<(), Refusal> {
    let mut found = None;
    for (fields, wrong) in
        [(Some(headers), messages::CHECKSUM_HEADER), (trailers, messages::CHECKSUM_TRAILER)]
    {
        let Some(fields) = fields else { continue };
        for algorithm in fields.keys().filter_map(|name| checksums::of_header(name.as_str())) {
            let name = checksums::header(algorithm);
            let Some(text) = single_header(fields, name)? else { continue };
            if found.replace((algorithm, text, wrong)).is_some() {
                return Err(messages::MANY_CHECKSUMS.refusal());
            }
        }
    }
    check_announced(headers, found.map(|(algorithm, ..)| algorithm))?;
    let Some((algorithm, text, wrong)) = found else { return Ok(()) };
    let expected = checksums::decode(algorithm, text)
        .ok_or_else(|| wrong.with_subject(checksums::header(algorithm)))?;
    if expected == checksum_of(algorithm, document) {
        return Ok(());
    }
    Err(messages::BAD_CHECKSUM.with_subject(checksums::name(algorithm)))
}

/// Refuses an announced algorithm that differs from that of the checksum.
fn check_announced(headers: &HeaderMap, found: Option<ChecksumAlgorithm>) -> Result<(), Refusal> {
    let Some(announced) = single_header(headers, SDK_ALGORITHM)? else { return Ok(()) };
    let is_meant = |it: ChecksumAlgorithm| checksums::name(it).eq_ignore_ascii_case(announced);
    if !ChecksumAlgorithm::ALL.into_iter().any(is_meant) {
        return Err(messages::CHECKSUM_ALGORITHM.refusal());
    }
    let Some(found) = found else { return Err(messages::SDK_ALGORITHM.refusal()) };
    if is_meant(found) {
        return Ok(());
    }
    Err(messages::CHECKSUM_HEADER.with_subject(SDK_ALGORITHM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    #[test]
    fn the_check_values_of_the_algorithms() {
        let expected = [
            "cbf43926",
            "e3069283",
            "ae8b14860a799888",
            "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274a\
             d27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
            "25f9e794323b453885f5181f1b624d0b",
            "8cb841db40e6ae83",
            "72dcb18b67a17dff",
            "33119477ede5dcd5e9716427681d5860",
        ];
        for (algorithm, expected) in ChecksumAlgorithm::ALL.into_iter().zip(expected) {
            let name = checksums::header(algorithm);
            let digest = hex::decode(expected).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(name, STANDARD.encode(&digest).parse().unwrap());
            assert_eq!(check_checksums(b"123456789", &headers, None), Ok(()));
            let refusal = check_checksums(b"12345678", &headers, None).unwrap_err();
            assert_eq!(refusal.code, Code::BadDigest, "{name}");
        }
    }

    #[test]
    fn there_is_one_checksum_and_the_one_that_was_announced() {
        let crc = |value: &str| {
            HeaderMap::from_iter([(
                HeaderName::from_static("x-amz-checksum-crc32"),
                value.parse().unwrap(),
            )])
        };
        let right = crc("y/Q5Jg==");
        let said = |headers: &HeaderMap, trailers: Option<&HeaderMap>| {
            check_checksums(b"123456789", headers, trailers).map_err(|refusal| refusal.message)
        };
        let none = HeaderMap::new();
        assert_eq!(said(&none, None), Ok(()));
        assert_eq!(said(&none, Some(&right)), Ok(()));
        assert_eq!(said(&right, Some(&right)).unwrap_err(), messages::MANY_CHECKSUMS.text);
        let wrong = said(&crc("AAAAAA=="), None).unwrap_err();
        assert_eq!(wrong, "The CRC32 you specified did not match the calculated checksum.");
        let announcing = |mut headers: HeaderMap, name: &'static str| {
            headers.insert(SDK_ALGORITHM, http::HeaderValue::from_static(name));
            headers
        };
        assert_eq!(said(&announcing(right.clone(), "CRC32"), None), Ok(()));
        let missing = said(&announcing(none, "CRC32"), None).unwrap_err();
        assert_eq!(missing, messages::SDK_ALGORITHM.text);
        assert!(said(&announcing(right, "SHA1"), None).is_err());
    }

    #[test]
    fn digests_have_sixteen_bytes() {
        let mut headers = HeaderMap::new();
        assert_eq!(content_md5(&headers), Ok(None));
        headers.insert("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==".parse().unwrap());
        let empty = content_md5(&headers).unwrap();
        assert_eq!(check_md5(b"", empty), Ok(()));
        assert_eq!(check_md5(b"x", empty).unwrap_err().code, Code::BadDigest);
        for wrong in ["", "x", "1B2M2Y8AsgTpgAmY7PhC", "not base64 at all"] {
            headers.insert("content-md5", wrong.parse().unwrap());
            assert_eq!(content_md5(&headers).unwrap_err().code, Code::InvalidDigest, "{wrong:?}");
        }
    }
}

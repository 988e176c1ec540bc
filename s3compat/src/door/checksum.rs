//! What clients say of XML bodies: Content-MD5 and `x-amz-checksum-*`, compared with the bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum};
use http::HeaderMap;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

use crate::auth::{Code, Refusal, single_header};

/// The Content-MD5 that a request gives.
pub(super) fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, Refusal> {
    let Some(text) = single_header(headers, "content-md5")? else { return Ok(None) };
    let digest = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    digest.map(Some).ok_or_else(|| {
        Refusal::new(Code::InvalidDigest, "The Content-MD5 you specified is not valid.")
            .with_detail("Content-MD5", text)
    })
}

/// Compares a document with its Content-MD5.
pub(super) fn check_md5(document: &[u8], expected: Option<[u8; 16]>) -> Result<(), Refusal> {
    if expected.is_none_or(|expected| expected == <[u8; 16]>::from(Md5::digest(document))) {
        return Ok(());
    }
    let message = "The Content-MD5 you specified did not match what we received.";
    Err(Refusal::new(Code::BadDigest, message))
}

type Compute = fn(&[u8]) -> Vec<u8>;

const ALGORITHMS: [(&str, Compute); 5] = [
    ("x-amz-checksum-crc32", |bytes| crc32(CrcAlgorithm::Crc32IsoHdlc, bytes)),
    ("x-amz-checksum-crc32c", |bytes| crc32(CrcAlgorithm::Crc32Iscsi, bytes)),
    ("x-amz-checksum-crc64nvme", |bytes| {
        checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes().to_vec()
    }),
    ("x-amz-checksum-sha1", |bytes| Sha1::digest(bytes).to_vec()),
    ("x-amz-checksum-sha256", |bytes| Sha256::digest(bytes).to_vec()),
];

fn crc32(algorithm: CrcAlgorithm, bytes: &[u8]) -> Vec<u8> {
    checksum(algorithm, bytes).to_be_bytes()[4..].to_vec()
}

/// Compares a document with the checksums in headers or trailers.
pub(super) fn check_checksums(document: &[u8], headers: &HeaderMap) -> Result<(), Refusal> {
    for (name, compute) in ALGORITHMS {
        let Some(text) = single_header(headers, name)? else { continue };
        let expected = STANDARD.decode(text).map_err(|_| {
            let message = format!("Value for {name} header is invalid.");
            Refusal::new(Code::InvalidRequest, message)
        })?;
        if expected != compute(document) {
            let message = format!("The {name} you specified did not match what we received.");
            return Err(Refusal::new(Code::BadDigest, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_algorithms() {
        let expected = [
            "cbf43926",
            "e3069283",
            "ae8b14860a799888",
            "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        ];
        for ((name, compute), expected) in ALGORITHMS.into_iter().zip(expected) {
            let digest = compute(b"123456789");
            assert_eq!(hex::encode(&digest), expected, "{name}");
            let mut headers = HeaderMap::new();
            headers.insert(name, STANDARD.encode(&digest).parse().unwrap());
            assert_eq!(check_checksums(b"123456789", &headers), Ok(()));
            let refusal = check_checksums(b"12345678", &headers).unwrap_err();
            assert_eq!(refusal.code, Code::BadDigest, "{name}");
        }
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

//! Bodies in the encoding of SDKs: aws-chunked, unsigned, with a checksum in the trailer.
//!
//! ```text
//! 100000 CR LF  1 MiB of the body CR LF   …   0 CR LF
//! x-amz-checksum-crc64nvme:BASE64 CR LF   CR LF
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_proxy::checksum_of;

/// Payload hash that announces the encoding.
pub(super) const PAYLOAD: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
/// Bytes of the body in a chunk, as botocore sends them.
const CHUNK_BYTES: usize = 1 << 20;

/// Encoded body and its headers.
#[derive(Clone, Debug)]
pub(super) struct ChunkedBody {
    pub(super) bytes: Bytes,
    /// Headers to sign, sorted.
    pub(super) headers: [(&'static str, String); 2],
}

impl ChunkedBody {
    /// Encodes a body.
    pub(super) fn new(body: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(body.len() + 256);
        for chunk in body.chunks(CHUNK_BYTES) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        let checksum = STANDARD.encode(checksum_of(ChecksumAlgorithm::Crc64Nvme, body));
        bytes.extend_from_slice(format!("0\r\n{CHECKSUM}:{checksum}\r\n\r\n").as_bytes());
        let headers = [
            ("x-amz-decoded-content-length", body.len().to_string()),
            ("x-amz-trailer", CHECKSUM.to_owned()),
        ];
        Self { bytes: bytes.into(), headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_in_its_checksum() {
        let body = ChunkedBody::new(b"123456789");
        let expected: &[u8] =
            b"9\r\n123456789\r\n0\r\nx-amz-checksum-crc64nvme:rosUhgp5mIg=\r\n\r\n";
        assert_eq!(body.bytes, expected);
        assert_eq!(body.headers[0].1, "9");
    }

    #[test]
    fn a_long_body_has_several_chunks() {
        let body = ChunkedBody::new(&vec![7; CHUNK_BYTES + 1]);
        assert!(body.bytes.starts_with(b"100000\r\n"));
        let rest = &body.bytes[b"100000\r\n".len() + CHUNK_BYTES..];
        assert!(rest.starts_with(b"\r\n1\r\n\x07\r\n0\r\n"));
    }
}

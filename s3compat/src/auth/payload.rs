//! Body descriptions in `x-amz-content-sha256`.

use http::Method;

use crate::decode::ChunkSigner;
use crate::messages;
use crate::refusal::Refusal;

/// Integrity check of a body.
#[derive(Debug)]
pub enum Payload {
    /// No check.
    Unsigned,
    /// The SHA-256 of the body.
    Sha256([u8; 32]),
    /// aws-chunked framing.
    Chunked {
        /// Checks the signatures of chunks, if they are signed.
        signer: Option<Box<ChunkSigner>>,
        /// True if a trailer follows.
        has_trailer: bool,
    },
}

/// Parsed value of `x-amz-content-sha256`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeclaredPayload {
    Unsigned,
    Sha256([u8; 32]),
    Chunked { is_signed: bool, has_trailer: bool },
}

pub(super) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

impl DeclaredPayload {
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let chunked = |is_signed, has_trailer| Ok(Self::Chunked { is_signed, has_trailer });
        match text {
            UNSIGNED_PAYLOAD => Ok(Self::Unsigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chunked(true, false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chunked(true, true),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunked(false, true),
            _ if text.starts_with("STREAMING-AWS4-ECDSA") => {
                Err(Refusal::not_implemented("x-amz-content-sha256"))
            }
            _ => {
                let mut digest = [0; 32];
                hex::decode_to_slice(text, &mut digest).map_err(|_| unknown(text))?;
                Ok(Self::Sha256(digest))
            }
        }
    }

    /// Parses the value for a request of this method. GET and HEAD have no body, so any value is
    /// accepted.
    pub(super) fn of(method: &Method, text: &str) -> Result<Self, Refusal> {
        match Self::parse(text) {
            Err(_) if *method == Method::GET || *method == Method::HEAD => Ok(Self::Unsigned),
            announced => announced,
        }
    }

    /// Payload of a signed request; `signer` checks signed chunks.
    pub(super) fn with_signer(self, signer: impl FnOnce() -> ChunkSigner) -> Payload {
        match self {
            Self::Unsigned => Payload::Unsigned,
            Self::Sha256(digest) => Payload::Sha256(digest),
            Self::Chunked { is_signed, has_trailer } => {
                Payload::Chunked { signer: is_signed.then(|| Box::new(signer())), has_trailer }
            }
        }
    }

    /// Payload of a request without a signature that chunks could continue.
    pub(super) fn without_signer(self) -> Result<Payload, Refusal> {
        match self {
            Self::Unsigned => Ok(Payload::Unsigned),
            Self::Sha256(digest) => Ok(Payload::Sha256(digest)),
            Self::Chunked { is_signed: false, has_trailer } => {
                Ok(Payload::Chunked { signer: None, has_trailer })
            }
            Self::Chunked { is_signed: true, .. } => Err(messages::CHUNKS_UNSIGNED.refusal()),
        }
    }
}

fn unknown(text: &str) -> Refusal {
    messages::CONTENT_SHA256_VALUE.argument("x-amz-content-sha256", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    #[test]
    fn only_its_own_words_are_understood() {
        assert_eq!(DeclaredPayload::parse("UNSIGNED-PAYLOAD"), Ok(DeclaredPayload::Unsigned));
        assert_eq!(DeclaredPayload::parse(&"0a".repeat(32)), Ok(DeclaredPayload::Sha256([10; 32])));
        for wrong in ["", "unsigned-payload", "STREAMING-", "required", &"0a".repeat(31)] {
            assert_eq!(
                DeclaredPayload::parse(wrong).unwrap_err().code,
                Code::InvalidArgument,
                "{wrong}"
            );
        }
        let ecdsa = DeclaredPayload::parse("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD");
        assert_eq!(ecdsa.unwrap_err().code, Code::NotImplemented);
    }

    #[test]
    fn reads_accept_any_payload_hash() {
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(DeclaredPayload::of(&method, "nonsense"), Ok(DeclaredPayload::Unsigned));
        }
        assert!(DeclaredPayload::of(&Method::PUT, "nonsense").is_err());
        assert!(DeclaredPayload::of(&Method::DELETE, "nonsense").is_err());
    }

    #[test]
    fn signed_chunks_need_a_signed_request() {
        let signed = DeclaredPayload::Chunked { is_signed: true, has_trailer: false };
        assert_eq!(signed.without_signer().unwrap_err().code, Code::InvalidRequest);
    }
}

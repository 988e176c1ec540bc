//! Chain of signatures over the chunks of a body.
//!
//! Each signature covers the previous one, beginning with that of the request. So chunks cannot be
//! changed, omitted, repeated or reordered.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::BodyError;
use super::signing_key::SigningKey;

/// SHA-256 of the empty string, in hexadecimal.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Checks the signatures of chunks and trailer, each against the previous one.
#[derive(Debug)]
pub struct ChunkSigner {
    key: SigningKey,
    scope: String,
    previous: String,
}

impl ChunkSigner {
    /// Begins a chain with the request's own signature, `seed`. `date` and `scope` are those of the
    /// request: `20130524T000000Z` and `20130524/us-east-1/s3/aws4_request`.
    pub fn new(key: SigningKey, date: &str, scope: &str, seed: &str) -> Self {
        Self { key, scope: format!("{date}\n{scope}\n"), previous: seed.to_owned() }
    }

    /// Checks the signature of the next chunk, whose bytes have the SHA-256 `digest`.
    pub fn check_chunk(&mut self, digest: &[u8; 32], signature: &[u8]) -> Result<(), BodyError> {
        let content = format!("{EMPTY_SHA256}\n{}", hex::encode(digest));
        let expected = self.sign("AWS4-HMAC-SHA256-PAYLOAD", &content);
        self.advance(expected, signature).ok_or(BodyError::ChunkSignature)
    }

    /// Checks the signature of the trailer, given as `name:value\n` for each header.
    pub fn check_trailer(&mut self, canonical: &[u8], signature: &[u8]) -> Result<(), BodyError> {
        let content = hex::encode(Sha256::digest(canonical));
        let expected = self.sign("AWS4-HMAC-SHA256-TRAILER", &content);
        self.advance(expected, signature).ok_or(BodyError::TrailerSignature)
    }

    fn sign(&self, algorithm: &str, content: &str) -> String {
        let text = format!("{algorithm}\n{}{}\n{content}", self.scope, self.previous);
        self.key.sign(text.as_bytes())
    }

    fn advance(&mut self, expected: String, signature: &[u8]) -> Option<()> {
        let is_right = bool::from(expected.as_bytes().ct_eq(signature));
        self.previous = expected;
        is_right.then_some(())
    }
}

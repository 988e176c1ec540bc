//! Key of a signature of Version 4.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// A key for one day, region and service, as SigV4 derives it, with the key's blocks already hashed.
/// It is never printed.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// A derived key.
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key of HMAC has any length"))
    }

    /// Signature of `string_to_sign`, in hexadecimal.
    pub fn sign(&self, string_to_sign: &[u8]) -> String {
        hex::encode(self.0.clone().chain_update(string_to_sign).finalize().into_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_sdks_signer() {
        for length in [0, 1, 55, 56, 63, 64, 65, 200, 5000] {
            let text: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let expected = aws_sigv4::sign::v4::calculate_signature([7; 32], &text);
            assert_eq!(SigningKey::new(&[7; 32]).sign(&text), expected, "{length} bytes");
        }
    }
}

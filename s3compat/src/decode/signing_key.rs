//! Key of a signature of Version 4.

use std::fmt;

/// A key for one day, region and service, as SigV4 derives it. It is never printed.
#[derive(Clone, Copy)]
pub struct SigningKey([u8; 32]);

impl SigningKey {
    /// A derived key.
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Signature of `string_to_sign`, in hexadecimal.
    pub fn sign(&self, string_to_sign: &[u8]) -> String {
        aws_sigv4::sign::v4::calculate_signature(self.0, string_to_sign)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

//! Token that authorizes requests to the admin API, derived from a secret.

/// Proof of a secret that does not reveal it. Comparison takes constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AdminToken(blake3::Hash);

impl AdminToken {
    /// Derives the token of a secret: the root secret of the S3 port, or a cluster's key.
    pub fn of(secret: &[u8]) -> Self {
        Self(blake3::derive_key("martlet admin token v1", secret).into())
    }

    /// Formats the token for a header.
    pub fn to_text(self) -> String {
        self.0.to_hex().to_string()
    }

    /// Returns true if `text` is this token.
    pub fn is(self, text: &str) -> bool {
        blake3::Hash::from_hex(text).is_ok_and(|other| other == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_makes_the_token() {
        let token = AdminToken::of(b"one secret");
        assert!(token.is(&token.to_text()));
        assert!(!token.is(&AdminToken::of(b"another secret").to_text()));
        assert!(!token.is("") && !token.is("one secret"));
    }
}

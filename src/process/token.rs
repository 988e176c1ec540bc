//! Who may ask more than health at an admin address: the holders of a secret.

/// Proves that its holder knows a secret, without being it. Comparing takes constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdminToken(blake3::Hash);

impl AdminToken {
    /// The token of a secret: the root secret of the S3 door, or the key of a cluster.
    pub(crate) fn of(secret: &[u8]) -> Self {
        Self(blake3::derive_key("martlet admin token v1", secret).into())
    }

    /// The token as a header carries it.
    pub(crate) fn to_text(self) -> String {
        self.0.to_hex().to_string()
    }

    /// Whether `text` is this token.
    pub(crate) fn is(self, text: &str) -> bool {
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

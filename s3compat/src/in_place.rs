//! Configuration of reads in place: the key of the tokens that locate makes, and their lifetime.

use martlet_protocol::extent_token::{ExtentTokenKey, TOKEN_LIFETIME_MS};

/// Configuration of reads in place.
#[derive(Clone, Debug)]
pub struct InPlaceConfig {
    /// Key of the tokens. The storage nodes have it too.
    pub key: ExtentTokenKey,
    /// Lifetime of a token, in milliseconds.
    pub lifetime_ms: u64,
}

impl InPlaceConfig {
    /// Tokens of `key` that live for at most `lifetime_max_ms`.
    pub fn new(key: ExtentTokenKey, lifetime_max_ms: u64) -> Self {
        Self { key, lifetime_ms: TOKEN_LIFETIME_MS.min(lifetime_max_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end_with_the_grace_time_or_before() {
        let lifetime_ms =
            |grace_ms| InPlaceConfig::new(ExtentTokenKey::derive(b"secret"), grace_ms).lifetime_ms;
        assert_eq!([10_000, 60_000, u64::MAX].map(lifetime_ms), [10_000, 60_000, 60_000]);
    }
}

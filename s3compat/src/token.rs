//! Continuation tokens: the position of a listing, in a form that clients can't forge.
//!
//! ```text
//! base64url( version (1) | position | MAC (16) )
//! ```
//!
//! The MAC is keyed BLAKE3 over scope and position. So a token that was forged, truncated, or taken
//! from another bucket's listing is refused.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

const VERSION: u8 = 1;
const MAC_BYTES: usize = 16;

/// Secret of the tokens. All proxies of a cluster share it, and it survives restarts.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

impl TokenKey {
    /// Derives a key from random bytes. Don't use a password: the holder of a token could guess it
    /// offline.
    pub fn derive(random: &[u8; 32]) -> Self {
        Self(blake3::derive_key("martlet s3compat continuation tokens v1", random))
    }

    /// Creates a token for `position` in the listing named by `scope`.
    pub(crate) fn seal(&self, scope: &str, position: &str) -> String {
        let mut bytes = Vec::with_capacity(1 + position.len() + MAC_BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(position.as_bytes());
        bytes.extend_from_slice(&self.mac(scope, position.as_bytes()));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the position in a token; `None` unless this key sealed the token for this scope.
    pub(crate) fn open(&self, scope: &str, token: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (&version, rest) = bytes.split_first()?;
        let (position, mac) = rest.split_at_checked(rest.len().checked_sub(MAC_BYTES)?)?;
        let genuine = bool::from(self.mac(scope, position).ct_eq(mac));
        if version != VERSION || !genuine {
            return None;
        }
        String::from_utf8(position.to_vec()).ok()
    }

    fn mac(&self, scope: &str, position: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[VERSION]);
        hasher.update(&(scope.len() as u64).to_le_bytes());
        hasher.update(scope.as_bytes());
        hasher.update(position);
        let mut mac = [0; MAC_BYTES];
        hasher.finalize_xof().fill(&mut mac);
        mac
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_opens_to_its_sealed_claims(scope in ".*", position in ".*") {
            let key = TokenKey::derive(&[1; 32]);
            let token = key.seal(&scope, &position);
            prop_assert_eq!(key.open(&scope, &token), Some(position));
        }

        #[test]
        fn a_changed_token_is_refused(position in ".{1,40}", at in any::<usize>(), flip in 1u8..) {
            let key = TokenKey::derive(&[1; 32]);
            let mut bytes = URL_SAFE_NO_PAD.decode(key.seal("b", &position)).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert_eq!(key.open("b", &URL_SAFE_NO_PAD.encode(bytes)), None);
        }

        #[test]
        fn random_texts_are_no_tokens(text in ".*") {
            prop_assert_eq!(TokenKey::derive(&[1; 32]).open("b", &text), None);
        }
    }

    #[test]
    fn a_token_is_good_for_its_listing_and_its_key_only() {
        let key = TokenKey::derive(&[1; 32]);
        let token = key.seal("bucket", "key");
        assert_eq!(key.open("other", &token), None);
        assert_eq!(TokenKey::derive(&[2; 32]).open("bucket", &token), None);
        // Scope and position are separated.
        assert_eq!(key.open("bucke", &key.seal("bucket", "")), None);
    }
}

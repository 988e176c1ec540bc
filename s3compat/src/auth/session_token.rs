//! Session tokens: sealed descriptions of sessions, which clients can neither read nor forge.
//!
//! ```text
//! base64url( version (2) | nonce (12) | AES-256-GCM of the ticket, version authenticated )
//! ```
//!
//! The start of a session stores nothing: the token has all its data, and its secret is derived
//! from its access key. The caller of `SessionKey::open` looks up the role, the tenant and the
//! source key, any of which may end a session early.
//!
//! Invariants:
//! * A token that was changed, truncated, or made under another secret doesn't open.
//! * A token is valid only for the access key that it was made with.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use martlet_protocol::id::random_bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

use super::credential::SecretKey;

const VERSION: u8 = 2;
/// Prefix of session keys, by which clients and operators recognize them.
const PREFIX: &str = "ASIA";
/// Upper bound of a token's length.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
const SEALING: &str = "martlet 2026 session tokens";
const SECRETS: &str = "martlet 2026 secrets of sessions";
const MARKS: &str = "martlet 2026 marks of the secrets that begin sessions";
const MARK_BYTES: usize = 16;

/// Secret of session tokens. All proxies of a cluster share it, and it survives restarts.
#[derive(Clone)]
pub struct SessionKey {
    seal: LessSafeKey,
    secrets: [u8; 32],
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionToken {
    /// Access key that signs its requests.
    pub(crate) access_key: String,
    /// End of the session, in milliseconds since 1970.
    pub(crate) expires_ms: u64,
    /// Tenant of the role.
    pub(crate) tenant: String,
    /// Name of the role.
    pub(crate) role: String,
    /// Id that the role got at its creation.
    pub(crate) role_id: String,
    /// Name of the session.
    pub(crate) name: String,
    /// Policy that further limits the session.
    pub(crate) policy: Option<String>,
    /// Key that began the session; `None` if a provider's token did.
    pub(crate) source: Option<IssuingKey>,
}

/// The key that began a session, and its holder at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IssuingKey {
    pub(crate) access_key: String,
    pub(crate) canonical_id: String,
    pub(crate) user: String,
    /// Fingerprint of the key's secret at that time: another secret ends the session.
    pub(crate) mark: [u8; MARK_BYTES],
}

impl SessionKey {
    /// Derives a key from random bytes. Don't use a password: the holder of a token could guess it
    /// offline.
    ///
    /// # Panics
    /// Never: any 32 bytes are a key.
    pub fn derive(random: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &blake3::derive_key(SEALING, random));
        let seal = LessSafeKey::new(key.expect("it has 32 bytes"));
        Self { seal, secrets: blake3::derive_key(SECRETS, random) }
    }

    /// Fingerprint of the secret that begins a session. It doesn't reveal the secret.
    pub(crate) fn mark(&self, secret: &SecretKey) -> [u8; MARK_BYTES] {
        let marks = blake3::derive_key(MARKS, &self.secrets);
        let mac = blake3::keyed_hash(&marks, secret.expose().as_bytes());
        *mac.as_bytes().first_chunk().expect("a MAC is longer")
    }

    /// A new random access key.
    pub(crate) fn new_access_key() -> String {
        const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let letters = random_bytes::<16>().map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
        PREFIX.chars().chain(letters).collect()
    }

    /// Secret of a session's access key.
    pub(crate) fn secret(&self, access_key: &str) -> SecretKey {
        let mac = blake3::keyed_hash(&self.secrets, access_key.as_bytes());
        SecretKey::new(&URL_SAFE_NO_PAD.encode(&mac.as_bytes()[..30]))
    }

    /// Seals a session into a token.
    pub(crate) fn seal(&self, ticket: &SessionToken) -> String {
        let nonce: [u8; NONCE_LEN] = random_bytes();
        let mut text = postcard::to_allocvec(ticket).expect("a ticket in memory can be written");
        let nonce_once = Nonce::assume_unique_for_key(nonce);
        let sealed =
            self.seal.seal_in_place_append_tag(nonce_once, Aad::from([VERSION]), &mut text);
        sealed.expect("a ticket is far shorter than what can be sealed at once");
        let mut token = vec![VERSION];
        token.extend_from_slice(&nonce);
        token.extend_from_slice(&text);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Opens a token; `None` unless this key sealed it.
    pub(crate) fn open(&self, token: &str) -> Option<SessionToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (&version, rest) = bytes.split_first()?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>()?;
        if version != VERSION {
            return None;
        }
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.seal.open_in_place(nonce, Aad::from([VERSION]), &mut text).ok()?;
        postcard::from_bytes(opened).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticket(name: &str) -> SessionToken {
        SessionToken {
            access_key: "ASIAEXAMPLE".into(),
            expires_ms: 7,
            tenant: "t".into(),
            role: "r".into(),
            role_id: "1".into(),
            name: name.into(),
            policy: Some("{}".into()),
            source: Some(IssuingKey {
                access_key: "AKID".into(),
                canonical_id: "c".into(),
                user: "u".into(),
                mark: [5; MARK_BYTES],
            }),
        }
    }

    proptest! {
        #[test]
        fn a_token_opens_to_its_sealed_claims(name in ".*", random in any::<[u8; 32]>()) {
            let key = SessionKey::derive(&random);
            prop_assert_eq!(key.open(&key.seal(&ticket(&name))), Some(ticket(&name)));
        }

        #[test]
        fn a_changed_or_cut_token_is_refused(at in any::<usize>(), flip in 1u8..) {
            let key = SessionKey::derive(&[3; 32]);
            let mut bytes = URL_SAFE_NO_PAD.decode(key.seal(&ticket("s"))).unwrap();
            let at = at % bytes.len();
            prop_assert_eq!(key.open(&URL_SAFE_NO_PAD.encode(&bytes[..at])), None);
            bytes[at] ^= flip;
            prop_assert_eq!(key.open(&URL_SAFE_NO_PAD.encode(&bytes)), None);
        }

        #[test]
        fn random_texts_are_no_tokens(text in ".*") {
            prop_assert_eq!(SessionKey::derive(&[3; 32]).open(&text), None);
        }
    }

    #[test]
    fn tokens_and_secrets_are_of_one_cluster() {
        let (one, other) = (SessionKey::derive(&[110; 32]), SessionKey::derive(&[2; 32]));
        let token = one.seal(&ticket("s"));
        assert_ne!(token, one.seal(&ticket("s")), "each sealing has a nonce of its own");
        assert_eq!(other.open(&token), None);
        assert_ne!(one.secret("ASIA1").expose(), other.secret("ASIA1").expose());
        assert_ne!(one.secret("ASIA1").expose(), one.secret("ASIA2").expose());
        assert_eq!(one.secret("ASIA1").expose().len(), 40);
        assert_eq!(one.open(&"A".repeat(TOKEN_BYTES_MAX + 4)), None);
        assert!(!format!("{one:?}").contains("110"), "keys are never printed");
    }

    #[test]
    fn session_keys_look_like_session_keys() {
        let (one, other) = (SessionKey::new_access_key(), SessionKey::new_access_key());
        assert!(one.starts_with("ASIA") && one.len() == 20 && one != other, "{one} {other}");
    }
}

//! Secrets of the admin API, all derived from random bytes that the processes of a cluster share.
//!
//! ```text
//! random bytes ─┬─▶ secret of a key = MAC of its id        signs requests
//!               └─▶ key of sessions ─▶ token = claims, MAC
//! ```
//!
//! Invariants:
//! * No secret of a key is stored. A process verifies a signature without a look-up, so that
//!   requests without a valid signature read nothing from disks.
//! * A session's token carries all claims. A process needs no state to verify them.
//! * Comparisons take constant time, and secrets are never printed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use martlet_admin_api::principals::AdminRole;
use martlet_protocol::id::random_bytes;
use serde::{Deserialize, Serialize};

const KEYS: &str = "martlet 2026 secrets of admin keys";
const SESSIONS: &str = "martlet 2026 sessions of the admin API";
/// Begin of the id of a key, by which operators recognize one.
const KEY_PREFIX: &str = "MADM";
const KEY_BYTES: usize = 20;
/// Begin of a session's token.
const SESSION_PREFIX: &str = "mas1.";
/// Begin of the token of a session that may read one path. Releases before it refuse this token.
const READING_PREFIX: &str = "mar1.";
/// Upper limit of a token's length.
const TOKEN_BYTES_MAX: usize = 2048;

/// Derives secrets of admin keys, and makes and verifies sessions. Cheap to clone.
#[derive(Clone)]
pub struct AdminSecret {
    keys: [u8; 32],
    sessions: [u8; 32],
}

impl fmt::Debug for AdminSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminSecret(…)")
    }
}

/// Claims of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClaims {
    /// Id of the session.
    pub id: String,
    /// Id of the key that began it.
    pub key: String,
    /// Role of the key.
    pub role: AdminRole,
    /// Name of the tenant of a tenant admin.
    pub tenant: Option<String>,
    /// Canonical id of that tenant.
    pub tenant_id: Option<String>,
    /// Begin, in milliseconds since 1970.
    pub began_ms: u64,
    /// End, in milliseconds since 1970.
    pub expires_ms: u64,
    /// Path that the session may GET, and nothing else. None for all that the role may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<String>,
    /// Role and name of the process that accepts the session. Each session of one path has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl SessionClaims {
    fn prefix(&self) -> &'static str {
        if self.reads.is_some() { READING_PREFIX } else { SESSION_PREFIX }
    }
}

impl AdminSecret {
    /// Derives the secrets from random bytes. Don't use a password: the holder of a token could
    /// guess it offline.
    pub fn derive(random: &[u8; 32]) -> Self {
        Self {
            keys: blake3::derive_key(KEYS, random),
            sessions: blake3::derive_key(SESSIONS, random),
        }
    }

    /// Makes the id of a new key.
    pub fn new_key_id() -> String {
        const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let letters = random_bytes::<16>().map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
        KEY_PREFIX.chars().chain(letters).collect()
    }

    /// Makes the id of a new session of a key. The id begins with that of the key.
    pub fn new_session_id(key: &str) -> String {
        format!("{key}-{}", hex::encode(random_bytes::<8>()))
    }

    /// Returns the id of the key that began a session.
    pub fn key_of_session(session: &str) -> Option<&str> {
        let (key, _) = session.split_once('-')?;
        is_key_id(key).then_some(key)
    }

    /// Returns the secret of a key.
    pub fn key_secret(&self, id: &str) -> String {
        let mac = blake3::keyed_hash(&self.keys, id.as_bytes());
        URL_SAFE_NO_PAD.encode(&mac.as_bytes()[..30])
    }

    /// Makes the token of a session.
    pub fn seal(&self, claims: &SessionClaims) -> String {
        let text = serde_json::to_vec(claims).expect("claims in memory can be written");
        let text = format!("{}{}", claims.prefix(), URL_SAFE_NO_PAD.encode(text));
        let mac = blake3::keyed_hash(&self.sessions, text.as_bytes());
        format!("{text}.{}", mac.to_hex())
    }

    /// Reads a token; `None` unless these secrets made it.
    pub(crate) fn open(&self, token: &str) -> Option<SessionClaims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (text, mac) = token.rsplit_once('.')?;
        let given = blake3::Hash::from_hex(mac).ok()?;
        if blake3::keyed_hash(&self.sessions, text.as_bytes()) != given {
            return None;
        }
        let (prefix, claims) = text.split_at_checked(SESSION_PREFIX.len())?;
        let claims: SessionClaims =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        (prefix == claims.prefix()).then_some(claims)
    }
}

/// Returns true if `text` has the form of a session's token.
pub(crate) fn is_session(text: &str) -> bool {
    text.starts_with(SESSION_PREFIX) || text.starts_with(READING_PREFIX)
}

/// Returns true if `text` has the form of a key's id.
pub(crate) fn is_key_id(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    text.len() == KEY_BYTES && text.starts_with(KEY_PREFIX) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> SessionClaims {
        SessionClaims {
            id: "MADMAAAAAAAAAAAAAAAA-01".into(),
            key: "MADMAAAAAAAAAAAAAAAA".into(),
            role: AdminRole::TenantAdmin,
            tenant: Some("t".into()),
            tenant_id: Some("c".into()),
            began_ms: 1,
            expires_ms: 2,
            reads: None,
            at: None,
        }
    }

    #[test]
    fn a_token_opens_to_its_claims_and_in_its_cluster_alone() {
        let (one, other) = (AdminSecret::derive(&[110; 32]), AdminSecret::derive(&[2; 32]));
        let token = one.seal(&claims());
        assert_eq!(one.open(&token), Some(claims()));
        assert_eq!(other.open(&token), None);
        assert!(is_session(&token) && token.len() < TOKEN_BYTES_MAX);
        assert_ne!(one.key_secret("MADM1"), other.key_secret("MADM1"));
        assert_ne!(one.key_secret("MADM1"), one.key_secret("MADM2"));
        assert_eq!(one.key_secret("MADM1").len(), 40);
        assert!(!format!("{one:?}").contains("110"), "secrets are never printed");
    }

    #[test]
    fn a_session_of_one_path_has_a_token_that_earlier_releases_refuse() {
        let secret = AdminSecret::derive(&[7; 32]);
        let reading = SessionClaims { reads: Some("/admin/v1/audit".into()), ..claims() };
        let token = secret.seal(&reading);
        assert!(token.starts_with("mar1.") && is_session(&token), "{token}");
        assert_eq!(secret.open(&token), Some(reading));
        assert_eq!(secret.open(&token.replace("mar1.", "mas1.")), None);
    }

    #[test]
    fn a_changed_token_is_refused_at_every_place() {
        let secret = AdminSecret::derive(&[3; 32]);
        let token = secret.seal(&claims());
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            // No digit of the MAC is a g.
            bytes[at] = if bytes[at] == b'g' { b'h' } else { b'g' };
            assert_eq!(secret.open(&String::from_utf8(bytes).unwrap()), None, "at {at}");
            assert_eq!(secret.open(&token[..at]), None);
        }
        assert_eq!(secret.open(&"a".repeat(TOKEN_BYTES_MAX + 1)), None);
    }

    #[test]
    fn ids_name_the_key() {
        let key = AdminSecret::new_key_id();
        assert!(is_key_id(&key), "{key}");
        let session = AdminSecret::new_session_id(&key);
        assert_eq!(AdminSecret::key_of_session(&session), Some(key.as_str()));
        for odd in ["", "MADM", "MADM-1", &key.to_lowercase(), &format!("{key}A")] {
            assert!(!is_key_id(odd), "{odd}");
            assert_eq!(AdminSecret::key_of_session(odd), None);
        }
    }
}

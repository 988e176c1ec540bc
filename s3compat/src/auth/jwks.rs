//! Public keys of identity providers, from a JWKS file that is read again after a change.
//!
//! Invariants:
//! * Only public keys that can verify a signature are accepted. Shared secrets are skipped, so no
//!   public value can verify a token as a secret.
//! * An unreadable file admits no token, even if an earlier version was readable.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Limit of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Signature algorithm of a token. Unsigned tokens and shared secrets aren't supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    /// Algorithm of a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// Key that a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenKey {
    /// Id of the key, if the token has one.
    pub(crate) kid: Option<String>,
    /// Algorithm of the token's signature.
    pub(crate) algorithm: Algorithm,
}

/// A key of a provider.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey {
    kid: Option<String>,
    algorithm: Algorithm,
    material: KeyBytes,
}

#[derive(Clone)]
enum KeyBytes {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Point(Vec<u8>),
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBytes(…)")
    }
}

/// A key as the file has it.
#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    for_use: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct File {
    keys: Vec<serde_json::Value>,
}

impl RawKey {
    /// Converts to a key, if it can verify signatures of a supported algorithm.
    fn read(self) -> Option<PublicKey> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let (algorithm, material) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (bytes(&self.n)?, bytes(&self.e)?);
                (Algorithm::Rs256, KeyBytes::Rsa { n, e })
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
                // Uncompressed point, as `ring` takes it.
                let point = [&[4], x.as_slice(), &y].concat();
                (Algorithm::Es256, KeyBytes::Point(point))
            }
            ("OKP", Some("Ed25519")) => (Algorithm::EdDsa, KeyBytes::Point(bytes(&self.x)?)),
            _ => return None,
        };
        let is_for_this =
            self.alg.as_deref().is_none_or(|alg| Algorithm::of(alg) == Some(algorithm))
                && self.for_use.as_deref().is_none_or(|it| it == "sig");
        is_for_this.then_some(PublicKey { kid: self.kid, algorithm, material })
    }
}

impl PublicKey {
    /// True if the key made this signature.
    pub(crate) fn signed(&self, message: &[u8], mark: &[u8]) -> bool {
        let outcome = match (&self.material, self.algorithm) {
            (KeyBytes::Rsa { n, e }, _) => RsaPublicKeyComponents { n, e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                message,
                mark,
            ),
            (KeyBytes::Point(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, mark)
            }
            (KeyBytes::Point(point), _) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(message, mark)
            }
        };
        outcome.is_ok()
    }
}

/// Keys of a provider.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySet(Vec<PublicKey>);

impl KeySet {
    /// Parses a document; `None` if it is no JWKS.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let File { keys } = serde_json::from_slice(text).ok()?;
        let read = |key| serde_json::from_value::<RawKey>(key).ok()?.read();
        Some(Self(keys.into_iter().filter_map(read).collect()))
    }

    /// Key for a token's algorithm: the one with the token's `kid`, or the only one if the token
    /// has no `kid`. `None` if several keys match.
    pub(crate) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&PublicKey> {
        let is_it = |key: &&PublicKey| {
            key.algorithm == algorithm && (kid.is_none() || key.kid.as_deref() == kid)
        };
        let mut fitting = self.0.iter().filter(is_it);
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    /// Returns true if a key is the one that a token names.
    pub(crate) fn has(&self, wanted: &TokenKey) -> bool {
        self.find(wanted.kid.as_deref(), wanted.algorithm).is_some()
    }
}

/// File of a provider's keys.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    read: Mutex<Option<(FileFingerprint, Arc<KeySet>)>>,
}

/// Modification time, size and inode, which show that a file has changed.
type FileFingerprint = (SystemTime, u64, u64);

impl KeyFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::new(None) }
    }

    /// Current keys of the file. Blocks the thread.
    pub(crate) fn keys(&self) -> Result<Arc<KeySet>, String> {
        use std::os::unix::fs::MetadataExt;
        let name = self.path.display();
        let unreadable = |error: std::io::Error| format!("{name} can't be read: {error}");
        let about = std::fs::metadata(&self.path).map_err(unreadable)?;
        if about.len() > FILE_BYTES_MAX {
            return Err(format!("{name} has more than {FILE_BYTES_MAX} bytes"));
        }
        let mark = (about.modified().map_err(unreadable)?, about.len(), about.ino());
        if let Some((known, keys)) = &*self.read.lock()
            && *known == mark
        {
            return Ok(keys.clone());
        }
        let text = std::fs::read(&self.path).map_err(unreadable)?;
        let keys = KeySet::parse(&text).ok_or_else(|| format!("{name} is not a JWKS"))?;
        let keys = Arc::new(keys);
        *self.read.lock() = Some((mark, keys.clone()));
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EC: &str = r#"{"kty": "EC", "crv": "P-256", "kid": "e", "x": "AQ", "y": "Ag"}"#;
    const RSA: &str = r#"{"kty": "RSA", "kid": "r", "n": "AQ", "e": "AQAB", "alg": "RS256"}"#;

    fn set(keys: &[&str]) -> KeySet {
        KeySet::parse(format!(r#"{{"keys": [{}]}}"#, keys.join(",")).as_bytes()).unwrap()
    }

    #[test]
    fn keys_are_found_by_name_and_by_purpose() {
        let keys = set(&[EC, RSA]);
        assert!(keys.find(Some("e"), Algorithm::Es256).is_some());
        assert!(keys.find(Some("e"), Algorithm::Rs256).is_none(), "it is for other tokens");
        assert!(keys.find(Some("other"), Algorithm::Es256).is_none());
        assert!(keys.find(None, Algorithm::Rs256).is_some(), "there is one alone");
        let two = set(&[EC, &EC.replace("\"e\"", "\"f\"")]);
        assert!(two.find(None, Algorithm::Es256).is_none(), "which?");
        assert!(set(&[EC, EC]).find(Some("e"), Algorithm::Es256).is_none(), "which?");
    }

    #[test]
    fn keys_for_something_else_are_passed_over() {
        for other in [
            r#"{"kty": "oct", "kid": "e", "k": "c2VjcmV0", "alg": "HS256"}"#.to_owned(),
            RSA.replace("RS256", "HS256"),
            RSA.replace("RS256", "PS256"),
            EC.replace("P-256", "P-521"),
            EC.replace("\"kty\"", "\"use\": \"enc\", \"kty\""),
            EC.replace("\"AQ\"", "\"?\""),
            r#"{"kid": "e"}"#.to_owned(),
        ] {
            assert!(set(&[&other]).0.is_empty(), "{other}");
        }
        assert!(KeySet::parse(b"[]").is_none() && KeySet::parse(b"{").is_none());
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let random = hex::encode(martlet_protocol::id::random_bytes::<8>());
        let path = std::env::temp_dir().join(format!("martlet-jwks-{random}.json"));
        let file = KeyFile::new(path.clone());
        assert!(file.keys().unwrap_err().contains("can't be read"));
        std::fs::write(&path, r#"{"keys": []}"#).unwrap();
        assert_eq!(file.keys().unwrap().0.len(), 0);
        std::fs::write(&path, format!(r#"{{"keys": [{EC}]}}"#)).unwrap();
        assert_eq!(file.keys().unwrap().0.len(), 1);
        std::fs::write(&path, "mangled").unwrap();
        assert!(file.keys().unwrap_err().contains("is not a JWKS"));
        std::fs::remove_file(&path).unwrap();
        assert!(file.keys().is_err());
    }
}

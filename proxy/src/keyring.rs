//! Encryption of secrets in the registers by a master key.
//!
//! ```text
//! key (32) ──BLAKE3──▶ AES-256-GCM, a random nonce of 12 bytes for each sealing
//! ```
//!
//! The access key and its tenant's id are authenticated with the secret. So a sealed secret that is
//! copied into another register doesn't open. Of several master keys the first seals and all open.
//! To replace a master key, put the new one before it, and rotate the secrets that the old one
//! sealed.
//!
//! Signatures are computed from secrets, so secrets can't be stored as hashes. New secrets are
//! never written in clear. Secrets that an earlier version wrote in clear still open;
//! [`Accounts::seal_secrets`](crate::Accounts::seal_secrets) seals them.

use std::fmt;

use martlet_protocol::id::random_bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

const SEALING: &str = "martlet 2026 secrets of access keys";
const NAMING: &str = "martlet 2026 name of a master key";
const WRAPPING: &str = "martlet 2026 data keys wrapped by a master key";

/// A secret as stored in a register.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sealed {
    /// The secret in clear.
    Clear(String),
    /// Sealed by a master key; nonce and ciphertext are in hexadecimal.
    Aes256Gcm {
        /// The master key's name.
        by: String,
        /// The nonce.
        nonce: String,
        /// Ciphertext and tag.
        text: String,
    },
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear(_) => f.write_str("Clear(…)"),
            Self::Aes256Gcm { by, .. } => write!(f, "Aes256Gcm(by {by})"),
        }
    }
}

impl Sealed {
    /// The secret, if it is in clear.
    pub(crate) fn in_clear(&self) -> Option<&str> {
        match self {
            Self::Clear(secret) => Some(secret),
            Self::Aes256Gcm { .. } => None,
        }
    }

    /// Returns true if a master key is needed to read it.
    pub fn is_sealed(&self) -> bool {
        matches!(self, Self::Aes256Gcm { .. })
    }
}

/// A master key. It is never printed.
#[derive(Clone)]
pub struct MasterKey {
    name: String,
    key: LessSafeKey,
    /// Root key that wraps the data keys of objects.
    root: [u8; 32],
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.name)
    }
}

impl MasterKey {
    /// The master key with these bytes.
    ///
    /// # Panics
    /// Never: any 32 bytes form a key.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let name = blake3::derive_key(NAMING, bytes);
        let key = UnboundKey::new(&AES_256_GCM, &blake3::derive_key(SEALING, bytes));
        let key = LessSafeKey::new(key.expect("the key has 32 bytes"));
        let root = blake3::derive_key(WRAPPING, bytes);
        Self { name: hex::encode(&name[..4]), key, root }
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.trim(), &mut bytes).ok()?;
        Some(Self::new(&bytes))
    }
}

/// The master keys of a process.
#[derive(Clone, Debug, Default)]
pub struct Vault(Vec<MasterKey>);

impl Vault {
    /// A vault of `keys`; the first one seals.
    pub fn new(keys: Vec<MasterKey>) -> Self {
        Self(keys)
    }

    /// Returns true if a master key exists.
    pub fn seals(&self) -> bool {
        !self.0.is_empty()
    }

    /// Name and wrapping root of the first key.
    pub(crate) fn first_root(&self) -> Option<(&str, &[u8; 32])> {
        self.0.first().map(|key| (key.name.as_str(), &key.root))
    }

    /// Wrapping root of the key with this name.
    pub(crate) fn root(&self, name: &str) -> Option<&[u8; 32]> {
        self.0.iter().find(|key| key.name == name).map(|key| &key.root)
    }

    /// Seals a secret; returns it in clear without a master key. Opening needs an equal
    /// `belonging`.
    pub(crate) fn seal(&self, secret: &str, belonging: &str) -> Sealed {
        let Some(MasterKey { name, key, .. }) = self.0.first() else {
            return Sealed::Clear(secret.to_owned());
        };
        let nonce: [u8; 12] = random_bytes();
        let mut text = secret.as_bytes().to_vec();
        let sealed = key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(belonging.as_bytes()),
            &mut text,
        );
        sealed.expect("a secret is far shorter than what can be sealed at once");
        Sealed::Aes256Gcm { by: name.clone(), nonce: hex::encode(nonce), text: hex::encode(text) }
    }

    /// Opens a secret, or returns the reason why it can't be opened.
    pub(crate) fn open(&self, sealed: &Sealed, belonging: &str) -> Result<String, String> {
        let (by, nonce, text) = match sealed {
            Sealed::Clear(secret) => return Ok(secret.clone()),
            Sealed::Aes256Gcm { by, nonce, text } => (by, nonce, text),
        };
        let key = self.0.iter().find(|key| key.name == *by).ok_or_else(|| {
            format!("it is encrypted by the master key {by}, which this process was not given")
        })?;
        let wrong = || format!("it is not what the master key {by} encrypted");
        let mut bytes = [0; 12];
        hex::decode_to_slice(nonce, &mut bytes).map_err(|_| wrong())?;
        let mut text = hex::decode(text).map_err(|_| wrong())?;
        let nonce = Nonce::assume_unique_for_key(bytes);
        let opened = key.key.open_in_place(nonce, Aad::from(belonging.as_bytes()), &mut text);
        let opened = opened.map_err(|_| wrong())?;
        String::from_utf8(opened.to_vec()).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI";

    fn vault(keys: &[u8]) -> Vault {
        Vault::new(keys.iter().map(|byte| MasterKey::new(&[*byte; 32])).collect())
    }

    #[test]
    fn sealed_secrets_open_for_their_own_name_alone() {
        let vault = vault(&[1]);
        let sealed = vault.seal(SECRET, "key of a");
        assert!(sealed.is_sealed());
        assert_eq!(vault.open(&sealed, "key of a"), Ok(SECRET.to_owned()));
        assert!(vault.open(&sealed, "key of b").unwrap_err().contains("not what"));
        assert_ne!(vault.seal(SECRET, "key of a"), sealed, "each sealing has a nonce of its own");
        let Sealed::Aes256Gcm { by, nonce, mut text } = sealed else { unreachable!() };
        text.replace_range(..1, if text.starts_with('0') { "1" } else { "0" });
        let flipped = Sealed::Aes256Gcm { by, nonce, text };
        assert!(vault.open(&flipped, "key of a").is_err());
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let old = vault(&[1]).seal(SECRET, "x");
        let both = vault(&[2, 1]);
        assert_eq!(both.open(&old, "x"), Ok(SECRET.to_owned()));
        let new = both.seal(SECRET, "x");
        assert_eq!(vault(&[2]).open(&new, "x"), Ok(SECRET.to_owned()));
        assert!(vault(&[1]).open(&new, "x").unwrap_err().contains("was not given"));
        assert!(vault(&[]).open(&new, "x").unwrap_err().contains("was not given"));
    }

    #[test]
    fn without_a_key_secrets_lie_in_clear_and_are_read_by_all() {
        let clear = vault(&[]).seal(SECRET, "x");
        assert!(!clear.is_sealed() && !vault(&[]).seals());
        assert_eq!(vault(&[1]).open(&clear, "y"), Ok(SECRET.to_owned()));
    }

    #[test]
    fn nothing_secret_is_printed() {
        for vault in [vault(&[7]), vault(&[])] {
            let sealed = vault.seal(SECRET, "x");
            let printed = format!("{vault:?} {sealed:?}");
            assert!(!printed.contains("wJal") && !printed.contains("0707"), "{printed}");
            let kept = serde_json::to_string(&sealed).unwrap();
            assert_eq!(kept.contains("wJal"), !vault.seals());
            assert_eq!(serde_json::from_str::<Sealed>(&kept).unwrap(), sealed);
        }
    }

    #[test]
    fn keys_are_read_from_hexadecimal() {
        let text = format!(" {}\n", "0a".repeat(32));
        assert_eq!(
            format!("{:?}", MasterKey::parse(&text).unwrap()),
            format!("{:?}", MasterKey::new(&[10; 32]))
        );
        assert!(MasterKey::parse("0a").is_none() && MasterKey::parse("").is_none());
    }
}

//! Secret of a backup: a passphrase or a key, from a file that other users can't read.
//!
//! ```text
//! passphrase ──PBKDF2-HMAC-SHA256, salt of the file──┐
//!                                                    ├─▶ key of the file (AES-256-GCM)
//! key (32 bytes) ──BLAKE3, salt of the file──────────┘
//! ```
//!
//! Each file has a random salt, so no two files have one key.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::Args;
use martlet_serving::Failure;
use martlet_serving::folder::is_shared;
use ring::pbkdf2;
use serde::{Deserialize, Serialize};

/// Iterations of PBKDF2 for new files: about half a second of one processor.
const ITERATIONS: u32 = 1_000_000;
/// Maximum iterations that a file may demand of its reader.
const ITERATIONS_MAX: u32 = 20_000_000;
/// Minimum bytes of a passphrase.
const PASSPHRASE_BYTES_MIN: usize = 12;
const KEY: &str = "martlet 2026 key of a backup";
const CHECK: &str = "martlet 2026 check of a backup's key";

/// Arguments that name the secret.
#[derive(Args, Debug, Default)]
pub(in crate::admin) struct SecretArgs {
    /// File whose first line is the passphrase of the backup
    #[arg(long, value_name = "FILE", conflicts_with = "backup_key_file")]
    passphrase_file: Option<PathBuf>,
    /// File with the key of the backup: 64 hexadecimal digits (openssl rand -hex 32)
    #[arg(long, value_name = "FILE")]
    backup_key_file: Option<PathBuf>,
}

/// Secret of a backup. It is never printed.
pub(super) enum BackupSecret {
    Passphrase(String),
    Key([u8; 32]),
}

/// Derivation of a file's key from the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeyForm {
    /// From a passphrase, by PBKDF2-HMAC-SHA256.
    Passphrase {
        /// Iterations.
        iterations: u32,
    },
    /// From a key file.
    KeyFile,
}

/// Key of a file.
pub(super) struct FileKey(pub(super) [u8; 32]);

impl SecretArgs {
    /// Reads the secret; none if no file is named.
    pub(super) fn load(&self) -> Result<Option<BackupSecret>, Failure> {
        if let Some(path) = &self.passphrase_file {
            let text = read(path)?;
            let passphrase = text.lines().next().unwrap_or_default().to_owned();
            if passphrase.len() < PASSPHRASE_BYTES_MIN {
                return Err(Failure::usage(format!(
                    "the passphrase in {} has fewer than {PASSPHRASE_BYTES_MIN} bytes: choose a \
                     longer one",
                    path.display()
                )));
            }
            return Ok(Some(BackupSecret::Passphrase(passphrase)));
        }
        let Some(path) = &self.backup_key_file else { return Ok(None) };
        let mut key = [0; 32];
        hex::decode_to_slice(read(path)?.trim(), &mut key).map_err(|_| {
            Failure::usage(format!(
                "{} must have 64 hexadecimal digits: make it with openssl rand -hex 32",
                path.display()
            ))
        })?;
        Ok(Some(BackupSecret::Key(key)))
    }

    /// Reads the secret.
    ///
    /// # Errors
    /// No file is named, or it can't be used.
    pub(super) fn require(&self) -> Result<BackupSecret, Failure> {
        self.load()?.ok_or_else(|| {
            Failure::usage(
                "a backup is always encrypted: name a passphrase with --passphrase-file, or a key \
                 with --backup-key-file",
            )
        })
    }
}

impl BackupSecret {
    /// Returns the derivation for a new file.
    pub(super) fn form(&self) -> KeyForm {
        match self {
            Self::Passphrase(_) => KeyForm::Passphrase { iterations: ITERATIONS },
            Self::Key(_) => KeyForm::KeyFile,
        }
    }

    /// Derives the key of a file with this salt.
    ///
    /// # Errors
    /// The file was made with another kind of secret, or demands too many iterations.
    pub(super) fn key(&self, form: KeyForm, salt: &[u8; 32]) -> Result<FileKey, Failure> {
        match (self, form) {
            (Self::Passphrase(passphrase), KeyForm::Passphrase { iterations }) => {
                let count = NonZeroU32::new(iterations).filter(|it| it.get() <= ITERATIONS_MAX);
                let count = count.ok_or_else(|| {
                    Failure::refused(format!(
                        "the backup demands {iterations} iterations of PBKDF2, which is not within 1 \
                         to {ITERATIONS_MAX}"
                    ))
                })?;
                let mut key = [0; 32];
                let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
                pbkdf2::derive(algorithm, count, salt, passphrase.as_bytes(), &mut key);
                Ok(FileKey(key))
            }
            (Self::Key(key), KeyForm::KeyFile) => {
                Ok(FileKey(blake3::derive_key(KEY, &[&key[..], salt].concat())))
            }
            (_, KeyForm::Passphrase { .. }) => Err(Failure::usage(
                "the backup was made with a passphrase: name its file with --passphrase-file",
            )),
            (_, KeyForm::KeyFile) => Err(Failure::usage(
                "the backup was made with a key file: name it with --backup-key-file",
            )),
        }
    }
}

impl FileKey {
    /// Returns text that tells keys apart and reveals nothing of them.
    pub(super) fn check(&self) -> String {
        hex::encode(&blake3::derive_key(CHECK, &self.0)[..8])
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let unreadable =
        |error: &std::io::Error| Failure::refused(format!("{name} can't be read: {error}"));
    let about = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if about.is_file() && is_shared(&about) {
        return Err(Failure::refused(format!(
            "other users can read the secret in {name}: chmod 600 {name}, and choose another if it \
             may have been read"
        )));
    }
    fs::read_to_string(path).map_err(|error| unreadable(&error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_salt_and_each_secret_make_another_key() {
        let form = KeyForm::Passphrase { iterations: 10 };
        let one = BackupSecret::Passphrase("correct horse".into());
        let other = BackupSecret::Passphrase("battery staple".into());
        let key = |secret: &BackupSecret, salt| secret.key(form, &[salt; 32]).unwrap().check();
        assert_eq!(key(&one, 1), key(&one, 1));
        assert_ne!(key(&one, 1), key(&one, 2));
        assert_ne!(key(&one, 1), key(&other, 1));
        let by_key = BackupSecret::Key([7; 32]);
        let refusal = by_key.key(form, &[1; 32]).err().unwrap().to_string();
        assert!(refusal.contains("--passphrase-file"), "{refusal}");
        assert!(one.key(KeyForm::KeyFile, &[1; 32]).is_err());
        let greedy = KeyForm::Passphrase { iterations: ITERATIONS_MAX + 1 };
        for form in [greedy, KeyForm::Passphrase { iterations: 0 }] {
            assert!(one.key(form, &[1; 32]).err().unwrap().to_string().contains("iterations"));
        }
    }

    #[test]
    fn secrets_that_others_can_read_and_short_ones_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refusal = |text: &str, mode: u32| {
            fs::write(file.path(), text).unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let path = Some(file.path().to_owned());
            let args = SecretArgs { passphrase_file: path, backup_key_file: None };
            args.require().err().map(|error| error.to_string())
        };
        assert!(refusal("long enough for this", 0o644).unwrap().contains("chmod 600"));
        assert!(refusal("short", 0o600).unwrap().contains("fewer than 12"));
        assert_eq!(refusal("long enough for this\nnotes", 0o600), None);
        assert!(SecretArgs::default().require().is_err());
    }
}

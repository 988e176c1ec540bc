//! Credentials of a target at its broker: a user's name in the settings, and a secret in a file.
//!
//! Invariant: the file is read for each connection, so that it may be replaced at any time. The
//! secret is in no log, no error and no `Debug` output.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_serving::Failure;
use parking_lot::Mutex;

use super::super::retry::DeliveryFailure;
use super::super::tasks::off_thread;

/// Maximum length of a secret in bytes.
const SECRET_BYTES_MAX: usize = 4096;

/// Maximum length of a reason in bytes. Brokers may send any text.
const REASON_BYTES_MAX: usize = 300;

/// Secret of the last login. Clones share it.
#[derive(Clone, Default)]
pub(super) struct LastSecret(Arc<Mutex<Option<String>>>);

impl fmt::Debug for LastSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastSecret")
    }
}

/// User of a broker, and the file with the secret.
#[derive(Clone, Debug, Default)]
pub(super) struct Credentials {
    pub(super) user: Option<String>,
    /// File with the user's password, or with a token.
    pub(super) secret_file: Option<PathBuf>,
    /// Name of the file's setting in errors.
    pub(super) setting: &'static str,
    /// Secret that is removed from a broker's texts.
    pub(super) last: LastSecret,
}

/// Credentials of one connection.
#[derive(Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) secret: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads the file once, so that a mistake is refused at the start.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &self.secret_file {
            Some(path) => secret_of(path, self.setting).map(drop).map_err(Failure::usage),
            None => Ok(()),
        }
    }

    /// Returns the credentials as they are now. A file that can't be read is no message's fault.
    pub(super) async fn login(&self) -> Result<Login, DeliveryFailure> {
        let user = self.user.clone();
        let Some(path) = self.secret_file.clone() else { return Ok(Login { user, secret: None }) };
        let setting = self.setting;
        let ((), read) = off_thread((), move |()| Ok(secret_of(&path, setting))).await;
        let secret = read?.map_err(DeliveryFailure::Away)?;
        *self.last.0.lock() = Some(secret.clone());
        Ok(Login { user, secret: Some(secret) })
    }

    /// Returns a failure without the secret, which a broker may have repeated, and with a reason of
    /// bounded length.
    pub(super) fn without_secret(&self, failure: DeliveryFailure) -> DeliveryFailure {
        failure.map_reason(|reason| {
            let mut reason = match &*self.last.0.lock() {
                Some(secret) => reason.replace(secret.as_str(), "***"),
                None => reason,
            };
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            reason
        })
    }
}

/// Reads the secret of a file: one line.
fn secret_of(path: &Path, setting: &str) -> Result<String, String> {
    let failure =
        |why: &dyn fmt::Display| format!("the {setting} {} can't be used: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failure(&error))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    let is_line = !secret.is_empty() && !secret.chars().any(char::is_control);
    if !is_line || secret.len() > SECRET_BYTES_MAX {
        return Err(failure(&format!(
            "it must contain one line of at most {SECRET_BYTES_MAX} bytes"
        )));
    }
    Ok(secret.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn secrets_are_read_again_and_never_shown() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("password");
        let credentials = Credentials {
            user: Some("me".to_owned()),
            secret_file: Some(path.clone()),
            setting: "password_file",
            last: LastSecret::default(),
        };
        let refusal = || credentials.check().unwrap_err().to_string();
        assert!(refusal().contains("the password_file") && refusal().contains("No such file"));
        for bad in ["", "\n", "s3cret\nmore", &"s3cret".repeat(1000)] {
            std::fs::write(&path, bad).unwrap();
            assert!(refusal().contains("one line of at most 4096 bytes"), "{}", refusal());
            assert!(!refusal().contains("s3cret"));
        }
        for secret in ["a secret with blanks", "another"] {
            std::fs::write(&path, format!("{secret}\n")).unwrap();
            credentials.check().unwrap();
            let login = credentials.login().await.unwrap();
            assert_eq!(
                (login.user.as_deref(), login.secret.as_deref()),
                (Some("me"), Some(secret))
            );
            assert!(!format!("{login:?} {credentials:?}").contains(secret));
        }
        std::fs::remove_file(&path).unwrap();
        let failure = credentials.login().await.unwrap_err();
        assert!(matches!(failure, DeliveryFailure::Away(_)), "{failure:?}");
    }
    #[tokio::test]
    async fn reasons_are_short_and_have_no_secret() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("password");
        std::fs::write(&path, "s3cret").unwrap();
        let credentials = Credentials { secret_file: Some(path), ..Credentials::default() };
        let clone = credentials.clone();
        credentials.login().await.unwrap();
        let failure = DeliveryFailure::Refused("the password s3cret is not s3cret".to_owned());
        let expected = DeliveryFailure::Refused("the password *** is not ***".to_owned());
        assert_eq!(clone.without_secret(failure), expected);
        // The secret is removed before the end is, so that no part of it is left.
        let long = format!("{}s3cret{}", "x".repeat(297), "ü".repeat(9000));
        let failure = clone.without_secret(DeliveryFailure::away(&long));
        assert_eq!(failure, DeliveryFailure::away(format!("{}***", "x".repeat(297))));
        let failure = clone.without_secret(DeliveryFailure::away("€".repeat(200)));
        assert_eq!(failure.reason().len(), 300);
        let failure = clone.without_secret(DeliveryFailure::away(format!("a{}", "€".repeat(200))));
        assert_eq!(failure.reason().len(), 298, "a cut between characters");
    }
}

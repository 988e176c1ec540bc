//! Root credentials: from the settings, from the data folder, or made at the first start and shown
//! once.

use std::fmt::Write;
use std::path::Path;

use martlet_serving::folder::DataFolder;
use martlet_serving::key_file::{KeyPair, ROOT_KEY};
use martlet_serving::settings::SecretText;
use martlet_serving::{AdminToken, Failure};

use crate::process::s3_port::S3Settings;

/// File name within the data folder. A shell can source the file: `set -a; .
/// martlet-data/credentials`.
pub(crate) const FILE: &str = "credentials";
/// Lengths of access key and secret key, as S3 clients expect them.
const ACCESS_KEY_CHARACTERS: usize = 20;
const SECRET_KEY_CHARACTERS: usize = 40;

/// Access key and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: SecretText,
}

impl Credentials {
    /// Returns the credentials of the settings, else those of the data folder, else new ones. The
    /// flag is true if they are new.
    pub(crate) fn find_or_make(
        given: &S3Settings,
        folder: &DataFolder,
    ) -> Result<(Self, bool), Failure> {
        if let (Some(access_key), Some(secret_key)) =
            (&given.root_access_key, &given.root_secret_key)
        {
            let taken = Self { access_key: access_key.clone(), secret_key: secret_key.clone() };
            return Ok((taken, false));
        }
        if let Some(kept) = Self::read(&folder.join(FILE))? {
            return Ok((kept, false));
        }
        let made = Self::random();
        folder.replace(FILE, made.file().as_bytes())?;
        Ok((made, true))
    }

    /// Reads the credentials of a file. Returns `None` if the file is missing.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let Some(KeyPair { access_key, secret_key, is_shared }) = ROOT_KEY.read(path)? else {
            return Ok(None);
        };
        if is_shared {
            tracing::warn!("other users can read {}: run chmod 600 on it", path.display());
        }
        Ok(Some(Self { access_key, secret_key }))
    }

    fn random() -> Self {
        Self {
            access_key: random_text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", ACCESS_KEY_CHARACTERS),
            secret_key: SecretText(random_text(
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
                SECRET_KEY_CHARACTERS,
            )),
        }
    }

    fn file(&self) -> String {
        ROOT_KEY.text(&self.access_key, &self.secret_key.0)
    }

    /// Returns the admin token of the secret.
    pub(crate) fn admin_token(&self) -> AdminToken {
        AdminToken::of(self.secret_key.0.as_bytes())
    }

    /// Text that shows new credentials once, with examples for clients.
    pub(crate) fn introduction(&self, endpoint: &str, path: &Path) -> String {
        let Self { access_key, secret_key: SecretText(secret) } = self;
        let mut text = String::new();
        let _ = write!(
            text,
            "\
New credentials were generated. They are shown only this once, and stored in
  {}

For awscli, paste:
  export AWS_ACCESS_KEY_ID={access_key}
  export AWS_SECRET_ACCESS_KEY={secret}
  export AWS_DEFAULT_REGION=us-east-1
  export AWS_ENDPOINT_URL={endpoint}
  aws s3 mb s3://first && echo hello | aws s3 cp - s3://first/hello && aws s3 ls first

For boto3, paste:
  import boto3
  s3 = boto3.client(\"s3\", endpoint_url=\"{endpoint}\", region_name=\"us-east-1\",
                    aws_access_key_id=\"{access_key}\",
                    aws_secret_access_key=\"{secret}\")
",
            path.display()
        );
        text
    }
}

/// Sentence about new credentials for an output that others may read.
pub(crate) fn notice(path: &Path) -> String {
    format!(
        "New credentials were generated. This output is logged, so they are only stored in {}, \
         readable by the user of this process",
        path.display()
    )
}

/// Makes a random text. The alphabet's size is a power of two, so that all characters are equally
/// likely.
fn random_text(alphabet: &[u8], characters: usize) -> String {
    debug_assert!(alphabet.len().is_power_of_two());
    let mut bytes = vec![0; characters];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    bytes.iter().map(|byte| char::from(alphabet[usize::from(*byte) % alphabet.len()])).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, DataFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        (place, folder)
    }

    #[test]
    fn they_are_made_once_and_kept() {
        let (_place, folder) = folder();
        let (made, new) = Credentials::find_or_make(&S3Settings::default(), &folder).unwrap();
        assert!(new);
        assert_eq!((made.access_key.len(), made.secret_key.0.len()), (20, 40));
        let (kept, new) = Credentials::find_or_make(&S3Settings::default(), &folder).unwrap();
        assert!(!new);
        assert_eq!(kept, made);
        assert_ne!(Credentials::random(), made);
    }

    #[test]
    fn given_ones_win_and_are_not_kept() {
        let (_place, folder) = folder();
        let s3 = S3Settings {
            root_access_key: Some("abc".into()),
            root_secret_key: Some(SecretText("1234567890123456".into())),
            ..S3Settings::default()
        };
        let (given, new) = Credentials::find_or_make(&s3, &folder).unwrap();
        assert_eq!((given.access_key.as_str(), new), ("abc", false));
        assert!(!folder.join(FILE).exists());
    }

    #[test]
    fn a_broken_file_is_an_error_and_is_not_replaced() {
        let (_place, folder) = folder();
        fs::write(folder.join(FILE), "something else").unwrap();
        let refusal = Credentials::find_or_make(&S3Settings::default(), &folder).unwrap_err();
        assert!(refusal.to_string().contains("correct it"), "{refusal}");
        assert_eq!(fs::read_to_string(folder.join(FILE)).unwrap(), "something else");
    }

    #[test]
    fn a_log_gets_the_place_of_new_credentials_alone() {
        let (_place, folder) = folder();
        let (made, _) = Credentials::find_or_make(&S3Settings::default(), &folder).unwrap();
        let text = notice(&folder.join(FILE));
        assert!(text.contains(folder.join(FILE).to_str().unwrap()), "{text}");
        assert!(!text.contains(&made.secret_key.0) && !text.contains(&made.access_key));
    }

    #[test]
    fn the_introduction_has_lines_for_both_clients() {
        let made = Credentials::random();
        let text = made.introduction("http://127.0.0.1:9000", Path::new("/x"));
        for line in ["export AWS_SECRET_ACCESS_KEY=", "boto3.client(", "http://127.0.0.1:9000"] {
            assert!(text.contains(line), "{text}");
        }
    }
}

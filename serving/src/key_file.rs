//! Files with an access key and its secret, as two lines `NAME=value` that a shell can source.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::failure::Failure;
use crate::folder::is_shared;
use crate::settings::SecretText;

/// Form of a key file: the names in its two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFileForm {
    /// Name of the access key.
    pub access_name: &'static str,
    /// Name of the secret.
    pub secret_name: &'static str,
}

/// Key file of the root identity.
pub const ROOT_KEY: KeyFileForm =
    KeyFileForm { access_name: "MARTLET_ROOT_ACCESS_KEY", secret_name: "MARTLET_ROOT_SECRET_KEY" };
/// Key file of a tenant, with the names that clients of S3 know.
pub const TENANT_KEY: KeyFileForm =
    KeyFileForm { access_name: "AWS_ACCESS_KEY_ID", secret_name: "AWS_SECRET_ACCESS_KEY" };

/// Key file of the admin API.
pub const ADMIN_KEY: KeyFileForm =
    KeyFileForm { access_name: "MARTLET_ADMIN_KEY", secret_name: "MARTLET_ADMIN_SECRET" };

/// Contents of a key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// Access key.
    pub access_key: String,
    /// Secret of the access key.
    pub secret_key: SecretText,
    /// True if other users can read the file.
    pub is_shared: bool,
}

impl KeyFileForm {
    /// Reads a file. Returns `None` if it is missing. The text is never part of an error.
    pub fn read(&self, path: &Path) -> Result<Option<KeyPair>, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let name = path.display();
                return Err(Failure::refused(format!("the key in {name} can't be read: {error}")));
            }
        };
        let value = |name: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))
        };
        let (Some(access), Some(secret)) = (value(self.access_name), value(self.secret_name))
        else {
            return Err(Failure::refused(format!(
                "{} must have the two lines {}=… and {}=…: correct it",
                path.display(),
                self.access_name,
                self.secret_name
            )));
        };
        Ok(Some(KeyPair {
            access_key: access.to_owned(),
            secret_key: SecretText(secret.to_owned()),
            is_shared: fs::metadata(path).is_ok_and(|it| is_shared(&it)),
        }))
    }

    /// Returns the text of a file.
    pub fn text(&self, access_key: &str, secret_key: &str) -> String {
        format!("{}={access_key}\n{}={secret_key}\n", self.access_name, self.secret_name)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        assert_eq!(ROOT_KEY.read(&path).unwrap(), None);
        fs::write(&path, format!("# made by hand\n  {}", TENANT_KEY.text("abc", "x=y="))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let read = TENANT_KEY.read(&path).unwrap().unwrap();
        assert_eq!((read.access_key.as_str(), read.secret_key.0.as_str()), ("abc", "x=y="));
        assert!(!read.is_shared);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(TENANT_KEY.read(&path).unwrap().unwrap().is_shared);
        let refusal = ROOT_KEY.read(&path).unwrap_err().to_string();
        assert!(refusal.contains("two lines MARTLET_ROOT_ACCESS_KEY=…"), "{refusal}");
        assert!(!refusal.contains("x=y"), "{refusal}");
        let folder = TENANT_KEY.read(place.path()).unwrap_err().to_string();
        assert!(folder.contains("can't be read"), "{folder}");
    }
}

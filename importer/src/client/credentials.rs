//! Credentials: from the environment, from key files, and from the profiles of AWS's own tools.
//!
//! Invariant: secrets come from the environment or from files, never from the command line, and
//! appear in no error and no `Debug` output.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use martlet_serving::key_file::TENANT_KEY;
use serde::Deserialize;

use crate::error::{Error, Result};

/// Place of the credentials.
#[derive(Clone, Debug)]
pub enum CredentialSource {
    /// Requests without a signature, for public buckets.
    Unsigned,
    /// Values that the caller has read.
    Given(Credentials),
    /// File of two lines, `AWS_ACCESS_KEY_ID=…` and `AWS_SECRET_ACCESS_KEY=…`.
    KeyFile(PathBuf),
    /// Profile of awscli.
    Profile(ProfileFiles),
}

/// Profile in the files of awscli.
#[derive(Clone, Debug)]
pub struct ProfileFiles {
    /// Name of the profile.
    pub name: String,
    /// File of secrets, with sections `[NAME]`.
    pub credentials_file: PathBuf,
    /// File of settings, with sections `[profile NAME]`.
    pub config_file: PathBuf,
}

/// Access key and its secret.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
pub struct Credentials {
    /// Access key.
    pub access_key_id: String,
    /// Secret of the access key.
    pub secret_access_key: String,
    /// Token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.access_key_id)
    }
}

impl CredentialSource {
    /// Reads the credentials. Returns `None` for requests without a signature. Blocks while a
    /// `credential_process` of a profile runs.
    pub(crate) fn read(&self) -> Result<Option<Credentials>> {
        match self {
            Self::Unsigned => Ok(None),
            Self::Given(credentials) => Ok(Some(credentials.clone())),
            Self::KeyFile(path) => key_file(path).map(Some),
            Self::Profile(files) => files.read().map(Some),
        }
    }
}

fn key_file(path: &Path) -> Result<Credentials> {
    let pair = TENANT_KEY.read(path).map_err(|failure| Error::fatal(failure.to_string()))?;
    let pair = pair
        .ok_or_else(|| Error::fatal(format!("the key file {} does not exist", path.display())))?;
    Ok(Credentials {
        access_key_id: pair.access_key,
        secret_access_key: pair.secret_key.0,
        session_token: None,
    })
}

impl ProfileFiles {
    fn read(&self) -> Result<Credentials> {
        let mut values = section(&self.config_file, &format!("profile {}", self.name))?;
        if self.name == "default" {
            values.extend(section(&self.config_file, "default")?);
        }
        values.extend(section(&self.credentials_file, &self.name)?);
        if let (Some(access), Some(secret)) =
            (values.get("aws_access_key_id"), values.get("aws_secret_access_key"))
        {
            return Ok(Credentials {
                access_key_id: access.clone(),
                secret_access_key: secret.clone(),
                session_token: values.get("aws_session_token").cloned(),
            });
        }
        if let Some(command) = values.get("credential_process") {
            return from_process(command);
        }
        Err(Error::fatal(format!(
            "the profile {} has neither aws_access_key_id and aws_secret_access_key nor \
             credential_process in {} or {}: for other kinds of profiles, set credential_process \
             to `aws configure export-credentials --profile {}`",
            self.name,
            self.credentials_file.display(),
            self.config_file.display(),
            self.name
        )))
    }

    /// Returns a setting of the profile, such as `region` or `endpoint_url`.
    pub fn setting(&self, name: &str) -> Result<Option<String>> {
        let own = section(&self.config_file, &format!("profile {}", self.name))?;
        let plain = section(&self.config_file, &self.name)?;
        Ok(own.get(name).or_else(|| plain.get(name)).cloned())
    }
}

/// Runs a command that prints credentials as JSON.
fn from_process(command: &str) -> Result<Credentials> {
    let output = Command::new("/bin/sh").args(["-c", command]).output();
    let output = output
        .map_err(|error| Error::fatal(format!("credential_process can't be started: {error}")))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or_default();
        return Err(Error::fatal(format!("credential_process {}: {last}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|_| {
        Error::fatal("credential_process must print JSON with AccessKeyId and SecretAccessKey")
    })
}

/// Returns the values of a section of an INI file; no values if file or section are missing.
fn section(path: &Path, name: &str) -> Result<BTreeMap<String, String>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => {
            return Err(Error::fatal(format!("{} can't be read: {error}", path.display())));
        }
    };
    Ok(values_of(&text, name))
}

fn values_of(text: &str, name: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut is_within = false;
    for line in text.lines() {
        // Indented lines are nested settings, such as those below `s3 =`.
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|it| it.split(']').next()) {
            is_within = header.split_whitespace().eq(name.split_whitespace());
        } else if is_within
            && !is_nested
            && !line.starts_with(['#', ';'])
            && let Some((name, value)) = line.split_once('=')
        {
            values.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(config: &str, credentials: &str, name: &str) -> (tempfile::TempDir, ProfileFiles) {
        let folder = tempfile::tempdir().unwrap();
        let files = ProfileFiles {
            name: name.to_owned(),
            credentials_file: folder.path().join("credentials"),
            config_file: folder.path().join("config"),
        };
        std::fs::write(&files.config_file, config).unwrap();
        std::fs::write(&files.credentials_file, credentials).unwrap();
        (folder, files)
    }

    #[test]
    fn profiles_are_read_as_awscli_writes_them() {
        let config = "[default]\nregion = here\n[profile  old]\nregion=there\ns3 =\n  \
                      addressing_style = path\nendpoint_url = http://old:9000\n";
        let secrets = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key = B=\n\
                       [old]\naws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n";
        let (_folder, old) = profile(config, secrets, "old");
        assert_eq!(old.setting("region").unwrap().as_deref(), Some("there"));
        assert_eq!(old.setting("endpoint_url").unwrap().as_deref(), Some("http://old:9000"));
        let keys = old.read().unwrap();
        assert_eq!(keys.access_key_id + &keys.secret_access_key, "CD");
        assert_eq!(keys.session_token.as_deref(), Some("E"));
        let (_folder, default) = profile(config, secrets, "default");
        assert_eq!(default.read().unwrap().secret_access_key, "B=");
        assert_eq!(default.setting("region").unwrap().as_deref(), Some("here"));
        let (_folder, missing) = profile(config, secrets, "missing");
        let error = missing.read().unwrap_err().to_string();
        assert!(error.contains("the profile missing has neither"), "{error}");
    }

    #[test]
    fn a_process_prints_credentials() {
        let config = "[profile p]\ncredential_process = echo \
                      '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"B\"}'\n";
        let (_folder, files) = profile(config, "", "p");
        assert_eq!(files.read().unwrap().access_key_id, "A");
        let (_folder, files) =
            profile("[profile p]\ncredential_process = echo no; exit 3", "", "p");
        assert!(files.read().unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let keys = Credentials {
            access_key_id: "A".into(),
            secret_access_key: "hidden".into(),
            session_token: Some("hidden".into()),
        };
        assert!(!format!("{:?}", CredentialSource::Given(keys)).contains("hidden"));
    }
}

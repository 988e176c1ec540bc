//! Master keys: from a setting, from a file, or random ones made at the first start. There is no
//! default key.

use std::fs;
use std::path::Path;

use martlet_proxy::{MasterKey, Vault};
use martlet_serving::Failure;
use martlet_serving::folder::{DataFolder, is_shared};
use martlet_serving::settings::SecretText;

/// File of the generated master keys that seal the secrets of tenants' keys.
pub(crate) const FILE: &str = "master.key";
/// File of the generated master keys of object encryption.
pub(crate) const SSE_FILE: &str = "sse-master.key";

/// Two settings of master keys, at most one of which may be set.
pub(crate) struct MasterKeySettings<'a> {
    /// Name of the setting that holds keys.
    pub(crate) keys_name: &'static str,
    /// Keys, separated by commas.
    pub(crate) keys: Option<&'a SecretText>,
    /// Name of the setting that names a file.
    pub(crate) file_name: &'static str,
    /// File with one key on each line.
    pub(crate) file: Option<&'a Path>,
}

impl MasterKeySettings<'_> {
    /// Returns the configured master keys, if any are set.
    pub(crate) fn vault(&self) -> Result<Option<Vault>, Failure> {
        let Self { keys_name, file_name, .. } = self;
        match (self.keys, self.file) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err(Failure::usage(format!("set {keys_name} or {file_name}, not both")))
            }
            (Some(SecretText(text)), None) => parse(&text.replace(',', "\n"), keys_name).map(Some),
            (None, Some(file)) => read(file).map(Some),
        }
    }
}

/// Reads the master keys of a file in the data folder, or makes a key if the file is missing.
pub(crate) fn find_or_make(folder: &DataFolder, file: &str) -> Result<Vault, Failure> {
    let path = folder.join(file);
    if !path.exists() {
        folder.replace(file, new_key()?.as_bytes())?;
    }
    read(&path)
}

/// Reminder about a generated key, printed at each start.
pub(crate) fn reminder(path: &Path) -> String {
    format!("A master key is in {}: keep a copy of it elsewhere", path.display())
}

/// Makes a random key, in the form of a key file.
pub(crate) fn new_key() -> Result<String, Failure> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| {
        Failure::refused(format!("the operating system provides no random numbers: {error}"))
    })?;
    Ok(hex::encode(key) + "\n")
}

fn read(file: &Path) -> Result<Vault, Failure> {
    let text = fs::read_to_string(file).map_err(|error| {
        let file = file.display();
        Failure::refused(format!("the master keys in {file} can't be read: {error}"))
    })?;
    if fs::metadata(file).is_ok_and(|it| is_shared(&it)) {
        tracing::warn!("other users can read {}: run chmod 600 on it", file.display());
    }
    parse(&text, &file.display().to_string())
}

fn parse(text: &str, place: &str) -> Result<Vault, Failure> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Option<Vec<MasterKey>> = lines.map(MasterKey::parse).collect();
    keys.filter(|keys| !keys.is_empty()).map(Vault::new).ok_or_else(|| {
        Failure::refused(format!(
            "{place} must hold one or more master keys of 64 hexadecimal digits: make one with \
             openssl rand -hex 32"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone_and_kept() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        let path = folder.join(SSE_FILE);
        assert!(find_or_make(&folder, SSE_FILE).unwrap().seals());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let made = fs::read_to_string(&path).unwrap();
        assert!(find_or_make(&folder, SSE_FILE).unwrap().seals());
        assert_eq!(fs::read_to_string(&path).unwrap(), made);
        let other = tempfile::tempdir().unwrap();
        let other = DataFolder::open(other.path()).unwrap();
        find_or_make(&other, SSE_FILE).unwrap();
        assert_ne!(fs::read_to_string(other.join(SSE_FILE)).unwrap(), made);
        fs::write(&path, "mangled").unwrap();
        let refusal = find_or_make(&folder, SSE_FILE).unwrap_err().to_string();
        assert!(refusal.contains("openssl rand -hex 32"), "{refusal}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mangled", "nothing is written over it");
    }
}

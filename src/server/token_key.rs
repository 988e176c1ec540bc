//! Random bytes that session and continuation tokens are made with, for a single server.
//!
//! They derive from no password: clients hold such tokens, so a guessable input could be found by
//! trial.

use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;

use crate::process::master_keys::new_key;

/// File in the data folder, mode 0600.
const FILE: &str = "token.key";

/// Reads the bytes of a data folder, or makes them if the file is missing.
///
/// # Errors
/// Refuses a file that can't be read, or doesn't have 64 hexadecimal digits.
pub(crate) fn find_or_make(folder: &DataFolder) -> Result<[u8; 32], Failure> {
    let path = folder.join(FILE);
    if !path.exists() {
        folder.replace(FILE, new_key()?.as_bytes())?;
    }
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::refused(format!(
            "{} can't be used: {why}; remove it to get a new one, which ends all sessions",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| refuse(&error))?;
    let mut bytes = [0; 32];
    hex::decode_to_slice(text.trim(), &mut bytes)
        .map_err(|_| refuse(&"it must have 64 hexadecimal digits"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_made_once_and_differ_elsewhere() {
        let places = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = places.each_ref().map(|it| DataFolder::open(it.path()).unwrap());
        let made = find_or_make(&one).unwrap();
        assert_eq!(find_or_make(&one).unwrap(), made);
        assert_ne!(find_or_make(&other).unwrap(), made);
        std::fs::write(one.join(FILE), "mangled").unwrap();
        assert!(find_or_make(&one).unwrap_err().to_string().contains("64 hexadecimal digits"));
    }
}

//! The data folder: what a process itself must remember, and that only one process uses it.
//!
//! ```text
//! <data-dir>/lock           held by the process that uses the folder
//! <data-dir>/credentials    access key and secret, mode 0600 (server)
//! <data-dir>/cluster.json   which devices there are (server)
//! <data-dir>/device0/       the device, where none is named (server)
//! <data-dir>/*.ring         where things lie on the devices
//! <data-dir>/peers.json     which devices other nodes have (storage-node)
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The data folder of a running process. Dropping it lets another one in.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if need be, and takes it for this process.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let unusable = |doing: &str, error: &io::Error| {
            Failure::refused(format!(
                "the data folder {} can't be {doing}: {error}; give another with --data-dir, or make \
                 it writable for this user",
                path.display()
            ))
        };
        fs::create_dir_all(path).map_err(|error| unusable("made", &error))?;
        let path = path.canonicalize().map_err(|error| unusable("used", &error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(|error| unusable("written to", &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Failure::refused(format!(
                "another server is using the data folder {}: stop it first, or give this one another \
                 folder with --data-dir",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(unusable("locked", &error)),
        }
    }

    /// A file or folder within.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Replaces a file as a whole: after a power cut either the old bytes are there or the new.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.join(name);
        replace_file(&path, bytes).map_err(|error| {
            Failure::refused(format!("{} can't be written: {error}", path.display()))
        })
    }
}

/// Replaces a file as a whole: after a power cut either the old bytes are there or the new.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    let folder = path.parent().expect("a file in the data folder has a parent");
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_has_one_user_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let folder = DataFolder::open(&path).unwrap();
        let refusal = DataFolder::open(&path).unwrap_err().to_string();
        assert!(refusal.starts_with("another server is using the data folder"), "{refusal}");
        drop(folder);
        DataFolder::open(&path).unwrap();
    }

    #[test]
    fn files_are_replaced_whole_and_are_private() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        folder.replace("credentials", b"one").unwrap();
        folder.replace("credentials", b"two").unwrap();
        assert_eq!(fs::read(folder.join("credentials")).unwrap(), b"two");
        let mode = fs::metadata(folder.join("credentials")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_in_the_way_is_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, b"").unwrap();
        let refusal = DataFolder::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("can't be made"), "{refusal}");
    }
}

//! Files of the output folder: their wanted bytes beside the bytes that are there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use martlet_serving::Failure;
use martlet_serving::folder::{make_folder, replace_file};

use crate::names::CLUSTER_DIR;

/// Output folder that one apply uses, from before its plan until its end. Dropping it releases the
/// lock.
#[derive(Debug)]
pub struct LockedOutput {
    path: PathBuf,
    _lock: File,
}

/// File within the folder of keys and builders that an apply locks.
const LOCK: &str = "lock";

impl LockedOutput {
    /// Makes the folder if it is missing, and locks it. A folder that another apply uses is
    /// refused.
    pub fn lock(out: &Path) -> Result<Self, Failure> {
        let unusable = |error: &io::Error| {
            Failure::refused(format!("the folder {} can't be used: {error}", out.display()))
        };
        let folder = out.join(CLUSTER_DIR);
        make_folder(&folder).map_err(|error| unusable(&error))?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(MODE);
        let lock = options.open(folder.join(LOCK)).map_err(|error| unusable(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: out.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Failure::refused(format!(
                "another apply uses the folder {}: wait until it ends, then apply again",
                out.display()
            ))),
            Err(TryLockError::Error(error)) => Err(unusable(&error)),
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Purpose of a file, by which the plan lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// Keys and credentials. Their contents are never printed.
    Secret,
    /// Certificates and their keys.
    Certificate,
    /// Ring files of machines.
    Ring,
    /// Settings of machines.
    Settings,
    /// Units and install scripts.
    Unit,
}

/// A file as it should be.
#[derive(Clone)]
pub(crate) struct WantedFile {
    /// Path within the output folder.
    pub(crate) path: PathBuf,
    pub(crate) kind: FileKind,
    pub(crate) bytes: Vec<u8>,
}

impl WantedFile {
    pub(crate) fn new(path: PathBuf, kind: FileKind, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path, kind, bytes: bytes.into() }
    }
}

/// A file that differs, or whose mode does.
#[derive(Clone)]
pub(crate) struct FileChange {
    pub(crate) wanted: WantedFile,
    /// Bytes before the change; `None` if there is no file.
    pub(crate) before: Option<Vec<u8>>,
}

/// Mode of every file: the output folder is for its owner alone.
const MODE: u32 = 0o600;

impl FileChange {
    /// Compares a file with the output folder.
    pub(crate) fn of(out: &Path, wanted: WantedFile) -> Result<Option<Self>, Failure> {
        let path = out.join(&wanted.path);
        let before = read(&path)?;
        let mode = fs::metadata(&path).map_or(MODE, |it| it.permissions().mode() & 0o777);
        let is_same = before.as_ref() == Some(&wanted.bytes) && mode == MODE;
        Ok((!is_same).then_some(Self { wanted, before }))
    }

    /// Writes the file with mode 0600, atomically.
    pub(crate) fn write(&self, out: &Path) -> Result<(), Failure> {
        let path = out.join(&self.wanted.path);
        let folder = path.parent().unwrap_or(out);
        let written = make_folder(folder).and_then(|()| replace_file(&path, &self.wanted.bytes));
        written.map_err(|error| {
            Failure::refused(format!("{} can't be written: {error}", path.display()))
        })
    }
}

/// Gives a file the mode of all files of the output folder.
pub(crate) fn close(path: &Path) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(|error| {
        Failure::refused(format!("{} can't be made private: {error}", path.display()))
    })
}

/// Reads a file of the output folder, if there is one.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::refused(format!("{} can't be read: {error}", path.display()))),
    }
}

/// Reads a text file of the output folder, if there is one.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, Failure> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| {
        Failure::refused(format!("{} is no text: restore it from a copy", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_folder_has_one_apply_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("out");
        let first = LockedOutput::lock(&out).unwrap();
        let refusal = LockedOutput::lock(&out).unwrap_err().to_string();
        assert!(refusal.starts_with("another apply uses the folder"), "{refusal}");
        drop(first);
        LockedOutput::lock(&out).unwrap();
    }

    #[test]
    fn a_file_changes_once_and_is_for_its_owner_alone() {
        let out = tempfile::tempdir().unwrap();
        let wanted = || WantedFile::new("n1/node.toml".into(), FileKind::Settings, "a = 1\n");
        let change = FileChange::of(out.path(), wanted()).unwrap().unwrap();
        assert!(change.before.is_none());
        change.write(out.path()).unwrap();
        assert!(FileChange::of(out.path(), wanted()).unwrap().is_none());
        let path = out.path().join("n1/node.toml");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let change = FileChange::of(out.path(), wanted()).unwrap().unwrap();
        change.write(out.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

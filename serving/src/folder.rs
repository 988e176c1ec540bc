//! Data folder: the files of one process, locked against all other processes.
//!
//! ```text
//! <data-dir>/lock           locked by the process that uses the folder
//! <data-dir>/credentials    access key and secret, mode 0600 (server)
//! <data-dir>/cluster.json   devices of the server (server)
//! <data-dir>/device0/       default device, if no other is configured (server)
//! <data-dir>/master.key     seals the secrets of tenants' keys, mode 0600 (server)
//! <data-dir>/sse-master.key master key of object encryption, mode 0600 (server)
//! <data-dir>/token.key      makes session and continuation tokens, mode 0600 (server)
//! <data-dir>/*.ring         rings
//! <data-dir>/peers.json     devices of other nodes (storage-node)
//! ```
//!
//! All files that a process makes are private to its user: files have mode 0600, folders 0700.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::{Gid, getegid, geteuid, getgroups, umask};

use crate::failure::Failure;

/// Entries, besides rings, that earlier versions left readable by other users.
const ONCE_OPEN: [&str; 7] =
    ["credentials", "cluster.json", "peers.json", "index.waiting", "device0", "events", "cursors"];
const RING: &str = "ring";
/// User id of root.
const ROOT: u32 = 0;

/// Makes all files that this process creates private: files get mode 0600, folders 0700. Must be
/// called before threads are started and files are made.
pub fn create_for_owner_alone() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Makes a folder and its missing parents, with mode 0700.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns true if other users than this process's can read a secret file, or write to it.
///
/// A file of root's that the process's group can read isn't shared: packages and orchestrators hand
/// secrets to a process that way, and the group is its own.
pub fn is_shared(about: &fs::Metadata) -> bool {
    let mut groups: Vec<u32> =
        getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
    groups.push(getegid().as_raw());
    ProcessIdentity { user: geteuid().as_raw(), groups }.shares(&SecretFile {
        mode: about.permissions().mode(),
        owner: about.uid(),
        group: about.gid(),
    })
}

/// User of a process, and its groups.
struct ProcessIdentity {
    user: u32,
    groups: Vec<u32>,
}

/// Permissions of a secret file.
struct SecretFile {
    mode: u32,
    owner: u32,
    group: u32,
}

impl ProcessIdentity {
    fn shares(&self, file: &SecretFile) -> bool {
        let is_given = self.user != ROOT && file.owner == ROOT && self.groups.contains(&file.group);
        let others = if is_given { 0o037 } else { 0o077 };
        file.mode & others != 0
    }
}

/// Removes other users' permissions from entries that earlier versions made in a data folder. Other
/// entries stay unchanged, as other programs may share the folder.
fn close_to_others(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_ring = path.extension().is_some_and(|end| end == RING);
        let is_made_here = is_ring || ONCE_OPEN.iter().any(|name| entry.file_name() == *name);
        if is_made_here && let Err(error) = close_entry(&path) {
            tracing::warn!(path = %path.display(), %error, "could not restrict access to the \
                folder: other users may read it");
        }
    }
}

fn close_entry(path: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(path)?;
    let mode = about.permissions().mode();
    if about.is_symlink() || mode.trailing_zeros() >= 6 || about.uid() != geteuid().as_raw() {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700))
}

/// Locked data folder of a running process. Dropping it releases the lock.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if it is missing, and locks it for this process. A folder in use is
    /// refused.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let unusable = |doing: &str, error: &io::Error| {
            Failure::refused(format!(
                "the data folder {} can't be {doing}: {error}; choose another with --data-dir, or \
                 make it writable for this user",
                path.display()
            ))
        };
        make_folder(path).map_err(|error| unusable("made", &error))?;
        let path = path.canonicalize().map_err(|error| unusable("used", &error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(|error| unusable("written to", &error))?;
        match lock.try_lock() {
            Ok(()) => {
                close_to_others(&path);
                Ok(Self { path, _lock: lock })
            }
            Err(TryLockError::WouldBlock) => Err(Failure::refused(format!(
                "another server uses the data folder {}: stop it first, or choose another folder \
                 with --data-dir",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(unusable("locked", &error)),
        }
    }

    /// Returns the path of an entry of the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Replaces a file atomically: after a power cut it holds either the old or the new bytes.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.join(name);
        replace_file(&path, bytes).map_err(|error| {
            Failure::refused(format!("{} can't be written: {error}", path.display()))
        })
    }
}

/// Replaces a file atomically: after a power cut it holds either the old or the new bytes.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
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
    use super::*;

    #[test]
    fn a_folder_has_one_user_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let folder = DataFolder::open(&path).unwrap();
        let refusal = DataFolder::open(&path).unwrap_err().to_string();
        assert!(refusal.starts_with("another server uses the data folder"), "{refusal}");
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
    fn only_folders_with_open_modes_are_changed() {
        let place = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            fs::metadata(place.path().join(name)).unwrap().permissions().mode() & 0o777
        };
        for (name, open) in [("device0", 0o755), ("events", 0o755)] {
            fs::create_dir(place.path().join(name)).unwrap();
            let open = fs::Permissions::from_mode(open);
            fs::set_permissions(place.path().join(name), open).unwrap();
        }
        for name in ["index.ring", "cluster.json", "notes.txt"] {
            fs::write(place.path().join(name), "x").unwrap();
            let open = fs::Permissions::from_mode(0o644);
            fs::set_permissions(place.path().join(name), open).unwrap();
        }
        DataFolder::open(place.path()).unwrap();
        assert_eq!((mode("device0"), mode("events")), (0o700, 0o700));
        assert_eq!((mode("index.ring"), mode("cluster.json")), (0o600, 0o600));
        assert_eq!(mode("notes.txt"), 0o644, "another program's file");
    }

    #[test]
    fn new_folders_are_for_their_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        DataFolder::open(&place.path().join("a/b")).unwrap();
        for name in ["a", "a/b"] {
            let mode = fs::metadata(place.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{name}");
        }
    }

    #[test]
    fn a_secret_is_for_its_owner_or_given_by_root_to_the_own_group() {
        let process = |user: u32| ProcessIdentity { user, groups: vec![7, 8] };
        let shared = |user: u32, mode: u32, owner: u32, group: u32| {
            process(user).shares(&SecretFile { mode, owner, group })
        };
        assert!(!shared(5, 0o100_600, 5, 7) && !shared(5, 0o100_400, 0, 7));
        assert!(!shared(5, 0o100_640, 0, 7) && !shared(5, 0o100_440, 0, 8), "given by root");
        assert!(shared(5, 0o100_640, 5, 7), "the owner may have let the group in by mistake");
        assert!(shared(5, 0o100_640, 0, 9), "another group");
        assert!(shared(5, 0o100_660, 0, 7) && shared(5, 0o100_644, 0, 7), "written, or for all");
        assert!(shared(0, 0o100_640, 0, 7), "root needs no group");
    }

    #[test]
    fn the_file_of_another_user_is_judged_as_it_lies() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, shared) in [(0o600, false), (0o644, true), (0o666, true)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_shared(&fs::metadata(file.path()).unwrap()), shared, "{mode:o}");
        }
    }

    #[test]
    fn a_file_in_the_folders_place_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, b"").unwrap();
        let refusal = DataFolder::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("can't be made"), "{refusal}");
    }
}

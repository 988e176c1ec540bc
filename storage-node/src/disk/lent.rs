//! Files of the real disk that are opened for other processes.
//!
//! A descriptor that is open for reading can be opened again through `/proc/self/fd`, and then for
//! writing, by the file's owner and by root. A mount that is read-only refuses that with `EROFS`.
//! So a folder is lent through a mount of its own, which no path leads to:
//!
//! ```text
//! a thread with its own mount namespace:  bind the folder ─▶ make it read-only ─▶ clone it
//! the clone belongs to no namespace       ◀──────────────── a descriptor of it ────┘
//! ```
//!
//! The namespace ends with the thread, so that no other process ever sees the mount. The steps need
//! `CAP_SYS_ADMIN` and Linux 5.2. Without them the folder is lent as it is, to users who may not
//! open its files for writing.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use martlet_protocol::Result;
use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{self, Errno};
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, mount_bind, mount_change, mount_remount,
    open_tree,
};
use rustix::thread::UnshareFlags;

use super::errno::failed;

/// A folder whose files are lent.
#[derive(Debug)]
pub(crate) struct LentFolder {
    folder: OwnedFd,
    /// Reason if the folder has no read-only mount.
    writable: Option<String>,
}

/// Two descriptors of one file, open for reading.
#[derive(Debug)]
pub struct LentFiles {
    /// Reads through the page cache.
    pub plain: OwnedFd,
    /// Reads past the page cache, if [`LentFiles::is_direct`].
    pub direct: OwnedFd,
    /// True if the file system supports direct reads.
    pub is_direct: bool,
}

impl LentFolder {
    /// Opens a folder, through a read-only mount where this process may make one. Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        match read_only(path) {
            Ok(folder) => Ok(Self { folder, writable: None }),
            Err(reason) => Self::open_writable(path, reason),
        }
    }

    /// Opens a folder that has no read-only mount for this reason. Blocks.
    pub(crate) fn open_writable(path: &Path, reason: String) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = io::retry_on_intr(|| fs::open(path, flags, Mode::empty()))
            .map_err(|errno| failed("open", &path.display().to_string(), errno))?;
        Ok(Self { folder, writable: Some(reason) })
    }

    /// Returns the reason if the folder has no read-only mount.
    pub(crate) fn writable(&self) -> Option<&str> {
        self.writable.as_deref()
    }

    /// Opens a file by its path within the folder. Blocks.
    pub(crate) fn open_files(&self, path: &Path) -> Result<LentFiles> {
        let open = |flags| io::retry_on_intr(|| self.open_file(path, flags));
        let open_both = || -> io::Result<LentFiles> {
            let plain = open(OFlags::empty())?;
            match open(OFlags::DIRECT) {
                Ok(direct) => Ok(LentFiles { plain, direct, is_direct: true }),
                // The file system has no direct I/O.
                Err(Errno::INVAL) => {
                    Ok(LentFiles { plain, direct: open(OFlags::empty())?, is_direct: false })
                }
                Err(errno) => Err(errno),
            }
        };
        open_both().map_err(|errno| failed("lend", &path.display().to_string(), errno))
    }

    /// Opens a file for reading, and never through a symbolic link. Blocks.
    ///
    /// `O_NOFOLLOW` would stay among the descriptor's flags, and cuFile refuses descriptors that
    /// have it (`CU_FILE_INVALID_FILE_OPEN_FLAG`). So the kernel resolves the path without links.
    /// A kernel before 5.6, or a sandbox that lacks `openat2`, gets the flag.
    fn open_file(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let (folder, mode) = (self.folder.as_fd(), Mode::empty());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match fs::openat2(folder, path, flags, mode, resolve) {
            Err(Errno::NOSYS | Errno::PERM) => {
                fs::openat(folder, path, flags | OFlags::NOFOLLOW, mode)
            }
            outcome => outcome,
        }
    }
}

/// Returns a folder within a read-only mount of it, or the reason against it.
fn read_only(path: &Path) -> Result<OwnedFd, String> {
    let (thread, own) =
        (std::thread::Builder::new().name("read-only-mount".into()), path.to_owned());
    let mounted = thread.spawn(move || mount(&own)).map_err(|error| error.to_string())?;
    let outcome = mounted.join().map_err(|_| "the thread that makes it panicked".to_owned())?;
    outcome.map_err(|(call, errno)| {
        let hint = match errno {
            Errno::PERM | Errno::ACCESS => ": the process needs CAP_SYS_ADMIN",
            Errno::NOSYS => ": the kernel is older than 5.2",
            _ => "",
        };
        format!("{call} failed ({}){hint}", std::io::Error::from(errno))
    })
}

/// Makes a read-only mount of a folder, in a mount namespace that ends with this thread.
fn mount(path: &Path) -> Result<OwnedFd, (&'static str, Errno)> {
    let step = |call: &'static str| move |errno| (call, errno);
    #[expect(deprecated, reason = "only UnshareFlags::FILES makes the call unsafe")]
    rustix::thread::unshare(UnshareFlags::NEWNS).map_err(step("unshare"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(step("making mounts private"))?;
    mount_bind(path, path).map_err(step("the bind mount"))?;
    let flags = MountFlags::BIND
        | MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC;
    mount_remount(path, flags, "").map_err(step("making the mount read-only"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, path, flags).map_err(step("open_tree"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn again(file: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::open(path, flags, Mode::empty())
    }

    #[test]
    fn a_lent_file_cannot_be_opened_for_writing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), [7; 8192]).unwrap();
        let lent = LentFolder::open(folder.path()).unwrap();
        if let Some(reason) = lent.writable() {
            eprintln!("SKIPPED a_lent_file_cannot_be_opened_for_writing: {reason}");
            return;
        }
        let files = lent.open_files(Path::new("file")).unwrap();
        drop(lent);
        for file in [&files.plain, &files.direct] {
            assert_eq!(again(file, OFlags::RDWR).unwrap_err(), Errno::ROFS);
            assert_eq!(again(file, OFlags::WRONLY | OFlags::TRUNC).unwrap_err(), Errno::ROFS);
            assert_eq!(fs::fchmod(file, Mode::from_raw_mode(0o666)).unwrap_err(), Errno::ROFS);
            again(file, OFlags::RDONLY).unwrap();
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(folder.path().to_str().unwrap()), "no path leads to the mount");
        std::fs::write(folder.path().join("other"), b"x").unwrap();
        std::fs::remove_file(folder.path().join("file")).unwrap();
        again(&files.plain, OFlags::RDONLY).unwrap();
    }

    #[test]
    fn links_and_other_folders_are_not_lent() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lent")).unwrap();
        std::fs::write(folder.path().join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink("../secret", folder.path().join("lent/link")).unwrap();
        let lent = LentFolder::open(&folder.path().join("lent")).unwrap();
        assert!(lent.open_files(Path::new("link")).is_err());
        assert!(lent.open_files(Path::new("../secret")).is_err());
        assert!(lent.open_files(Path::new("none")).is_err());
    }

    #[test]
    fn descriptors_have_no_flags_that_cufile_refuses() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"x").unwrap();
        for lent in [
            LentFolder::open(folder.path()).unwrap(),
            LentFolder::open_writable(folder.path(), "no right".into()).unwrap(),
        ] {
            let files = lent.open_files(Path::new("file")).unwrap();
            for file in [&files.plain, &files.direct] {
                let flags = fs::fcntl_getfl(file).unwrap();
                assert!(!flags.contains(OFlags::NOFOLLOW), "{flags:?}");
            }
        }
    }

    #[test]
    fn a_folder_without_a_mount_has_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"x").unwrap();
        let lent = LentFolder::open_writable(folder.path(), "no right".into()).unwrap();
        assert_eq!(lent.writable(), Some("no right"));
        lent.open_files(Path::new("file")).unwrap();
    }
}

//! Small ext4 file systems in image files, to fill, break and unmount.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Granularity in bytes at which free space is taken.
const PIECE: u64 = 64 << 10;

/// A file system that is mounted while this value lives.
#[derive(Debug)]
pub struct Image {
    folder: tempfile::TempDir,
    mounted: bool,
}

impl Image {
    /// Makes and mounts a file system of `mib` MiB. Prints a notice and returns `None` if the
    /// machine can't.
    pub fn new(test: &str, mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut image = Self { folder, mounted: false };
        let file = image.folder.path().join("image");
        File::create(&file).unwrap().set_len(mib << 20).unwrap();
        std::fs::create_dir(image.path()).unwrap();
        let made = run("mkfs.ext4", &["-q", "-F", "-m", "0", file.to_str().unwrap()]);
        if !made || !image.mount() {
            println!("SKIPPED {test}: it needs root, mkfs.ext4 and a loop device to mount");
            return None;
        }
        Some(image)
    }

    /// Mount point.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// Mounts the file system, for the first time or again; returns true on success.
    pub fn mount(&mut self) -> bool {
        let (file, path) = (self.folder.path().join("image"), self.path());
        self.mounted =
            run("mount", &["-o", "loop", file.to_str().unwrap(), path.to_str().unwrap()]);
        self.mounted
    }

    /// Unmounts the file system. Retries for 5 s, because a process with open files keeps it busy.
    pub fn unmount(&mut self) {
        for _ in 0..100 {
            if !self.mounted || run("umount", &[self.path().to_str().unwrap()]) {
                self.mounted = false;
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("{} can't be unmounted", self.path().display());
    }

    /// Cuts the power: unsynced data is lost, and every later call fails with EIO. Returns true on
    /// success.
    pub fn cut_power(&self) -> bool {
        Self::cut_all_power([self])
    }

    /// Cuts the power of several file systems at one moment; returns true on success.
    pub fn cut_all_power<'a>(images: impl IntoIterator<Item = &'a Self>) -> bool {
        // EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH.
        let script = "import fcntl, os, struct, sys\n\
            for it in [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]:\n    \
            fcntl.ioctl(it, 0x8004587d, struct.pack('I', 2))";
        let paths: Vec<PathBuf> = images.into_iter().map(Self::path).collect();
        let paths = paths.iter().map(|path| path.to_str().unwrap());
        run("python3", &["-c", script].into_iter().chain(paths).collect::<Vec<_>>())
    }

    /// Freezes the file system until the returned value is dropped. Writers block meanwhile.
    pub fn freeze(&self) -> FrozenFilesystem {
        let path = self.path();
        assert!(run("fsfreeze", &["-f", path.to_str().unwrap()]), "{} freezes", path.display());
        FrozenFilesystem(path)
    }

    /// Number of free bytes.
    pub fn free_bytes(&self) -> u64 {
        let state = rustix::fs::statvfs(self.path()).unwrap();
        state.f_bavail * state.f_frsize
    }

    /// Writes a foreign file that leaves at most about `left_bytes` free.
    pub fn fill_up_to(&self, left_bytes: u64) {
        let mut file = File::create(self.filler()).unwrap();
        while let Some(bytes) = self.free_bytes().checked_sub(left_bytes).filter(|it| *it >= PIECE)
        {
            let piece = vec![1; usize::try_from(bytes.min(64 * PIECE)).unwrap()];
            file.write_all(&piece).unwrap();
            // Unsynced bytes don't count as used yet.
            file.sync_all().unwrap();
        }
    }

    /// Removes the foreign file.
    pub fn give_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: a failed test may have left files open.
            run("umount", &["--lazy", self.path().to_str().unwrap()]);
        }
    }
}

/// A file system that takes no writes while this value lives.
#[derive(Debug)]
pub struct FrozenFilesystem(PathBuf);

impl Drop for FrozenFilesystem {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", self.0.to_str().unwrap()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

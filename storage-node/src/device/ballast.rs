//! Reserve of a device: space held back so that deletes still work on a full device.
//!
//! The ballast is a file that is allocated while space is free: 1 % of the device, at least 64 MiB
//! and at most 1 GiB, and never more than the reserve. When free space runs out, the file is
//! truncated before RocksDB meets ENOSPC. The file is allocated again once space returns. New bytes
//! are refused early enough to keep the rest of the reserve free.
//!
//! ```text
//! available = free + bytes held by the ballast
//!
//! Ready     available > reserve + margin    accepts everything
//! Full      available > reserve / 2         accepts entries, promises, deletes; no new bytes
//! Critical  less                            accepts promises and deletes
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::{Error, Result};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::config::Reserve;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
/// Maximum space beside the reserve that RocksDB may need at once: a log and a flush or two.
const MARGIN_BYTES_MAX: u64 = 256 * MIB;
/// Ballast size as a divisor of the file system's size, with its bounds in bytes.
const BALLAST_PART: u64 = 100;
const BALLAST_BYTES_MIN: u64 = 64 * MIB;
const BALLAST_BYTES_MAX: u64 = GIB;

/// Kinds of writes that a device still accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillLevel {
    /// All writes.
    Ready,
    /// Entries, promises and deletes; no new bytes.
    Full,
    /// Promises and deletes.
    Critical,
}

/// Action on the ballast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BallastAction {
    Keep,
    GiveUp,
    TakeBack,
}

/// Space at the last check, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BallastSpace {
    free: u64,
    held: u64,
    /// Size of the ballast when it is fully allocated.
    ballast: u64,
    reserve: u64,
}

/// The ballast of one device.
#[derive(Debug)]
pub(crate) struct Ballast {
    file: File,
    reserve: u64,
    /// Size of the file when it is fully allocated.
    whole: u64,
    held: AtomicU64,
    free: AtomicU64,
    total: AtomicU64,
}

impl BallastSpace {
    fn margin(self) -> u64 {
        (self.reserve / 4).min(MARGIN_BYTES_MAX)
    }

    fn level(self) -> FillLevel {
        let available = self.free + self.held;
        if available > self.reserve + self.margin() {
            FillLevel::Ready
        } else if available > self.reserve / 2 {
            FillLevel::Full
        } else {
            FillLevel::Critical
        }
    }

    fn action(self) -> BallastAction {
        if self.held > 0 && self.free < self.margin() {
            BallastAction::GiveUp
        } else if self.held < self.ballast
            && self.free + self.held > self.reserve + 2 * self.margin()
        {
            BallastAction::TakeBack
        } else {
            BallastAction::Keep
        }
    }
}

impl Reserve {
    /// Returns the reserve in bytes on a file system of `total` bytes.
    fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Standard => (total / 50).max(2 * GIB).min(total / 10),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the bytes that new extents must leave free on a file system of `total` bytes,
    /// counting the ballast as free: the reserve and its margin.
    pub fn left_alone(self, total: u64) -> u64 {
        let reserve = self.bytes(total);
        reserve + BallastSpace { free: 0, held: 0, ballast: 0, reserve }.margin()
    }

    /// Returns the size of the ballast on a file system of `total` bytes.
    fn ballast(self, total: u64) -> u64 {
        let part = (total / BALLAST_PART).clamp(BALLAST_BYTES_MIN, BALLAST_BYTES_MAX);
        part.min(self.bytes(total))
    }
}

impl Ballast {
    /// Opens the ballast in `root`, and allocates it if space permits.
    pub(crate) fn open(root: &Path, reserve: Reserve) -> Result<Self> {
        let path = root.join("ballast");
        let first = !path.exists();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| failed(&path, error))?;
        let about = file.metadata().map_err(|error| failed(&path, error))?;
        // A copy of the device's folder may have a hole here, which holds no space.
        let held = about.len().min(about.blocks() * 512);
        let mut ballast = Self {
            file,
            reserve: 0,
            whole: 0,
            held: AtomicU64::new(held),
            free: AtomicU64::new(0),
            total: AtomicU64::new(0),
        };
        ballast.refresh();
        ballast.reserve = reserve.bytes(ballast.total_bytes());
        ballast.whole = reserve.ballast(ballast.total_bytes());
        if held > ballast.whole {
            ballast.resize(ballast.whole);
        }
        ballast.tend();
        if first {
            let bytes = ballast.held.load(Ordering::Relaxed);
            let of = ballast.total_bytes();
            tracing::info!(
                path = %path.display(), bytes, of,
                "allocating the ballast, which is released when the device is full"
            );
        }
        Ok(ballast)
    }

    /// Size of the file system in bytes.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Free bytes on the file system, without the ballast.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Bytes beside the full ballast that new extents must leave free.
    pub(crate) fn margin_bytes(&self) -> u64 {
        self.reserve - self.whole + self.space().margin()
    }

    /// Returns the level, by the space at the last check.
    pub(crate) fn level(&self) -> FillLevel {
        self.space().level()
    }

    /// Checks the space, and truncates the ballast if the next write might need its space.
    pub(crate) fn before_write(&self) -> FillLevel {
        self.refresh();
        if self.space().action() == BallastAction::GiveUp {
            tracing::warn!(free = self.free_bytes(), "releasing the ballast");
            self.resize(0);
        }
        self.level()
    }

    /// Checks the space, and truncates or reallocates the ballast. Slower than
    /// [`Ballast::before_write`]: not for the committer.
    pub(crate) fn tend(&self) {
        self.before_write();
        if self.space().action() == BallastAction::TakeBack {
            self.resize(self.whole);
        }
    }

    fn space(&self) -> BallastSpace {
        BallastSpace {
            free: self.free_bytes(),
            held: self.held.load(Ordering::Relaxed),
            ballast: self.whole,
            reserve: self.reserve,
        }
    }

    fn refresh(&self) {
        // A failed fstatvfs is ignored; writes will fail if the file system does.
        if let Ok(figures) = fstatvfs(&self.file) {
            self.free.store(figures.f_bavail * figures.f_frsize, Ordering::Relaxed);
            self.total.store(figures.f_blocks * figures.f_frsize, Ordering::Relaxed);
        }
    }

    fn resize(&self, bytes: u64) {
        if let Err(error) = self.try_resize(bytes) {
            tracing::warn!(bytes, %error, "could not resize the ballast");
        }
        self.refresh();
    }

    fn try_resize(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.held.load(Ordering::Relaxed) {
            fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?;
        } else {
            self.file.set_len(bytes)?;
        }
        self.held.store(bytes, Ordering::Relaxed);
        // The journal must commit before freed blocks can be used again.
        self.file.sync_all()
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("{} can't be used", PathBuf::from(path).display()))
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn space(free: u64, held: u64) -> BallastSpace {
        BallastSpace { free, held, ballast: 100, reserve: 100 }
    }

    #[test]
    fn the_reserve_follows_the_rule() {
        assert_eq!(Reserve::Standard.bytes(10 * GIB), GIB);
        assert_eq!(Reserve::Standard.bytes(50 * GIB), 2 * GIB);
        assert_eq!(Reserve::Standard.bytes(1000 * GIB), 20 * GIB);
        assert_eq!(Reserve::Bytes(7).bytes(1000 * GIB), 7);
    }

    #[test]
    fn a_device_fills_in_three_steps() {
        assert_eq!(
            (space(900, 100).level(), space(900, 100).action()),
            (FillLevel::Ready, BallastAction::Keep)
        );
        assert_eq!(
            (space(25, 100).level(), space(25, 100).action()),
            (FillLevel::Full, BallastAction::Keep)
        );
        assert_eq!(
            (space(24, 100).level(), space(24, 100).action()),
            (FillLevel::Full, BallastAction::GiveUp)
        );
        assert_eq!(
            (space(124, 0).level(), space(124, 0).action()),
            (FillLevel::Full, BallastAction::Keep)
        );
        assert_eq!(space(50, 0).level(), FillLevel::Critical);
        assert_eq!(space(151, 0).action(), BallastAction::TakeBack);
    }

    #[test]
    fn an_empty_device_takes_a_hundredth_of_the_disk_at_most_a_gibibyte() {
        for (total, expected) in [
            (10 * GIB, 10 * GIB / 100),
            (260 * GIB, GIB),
            (20_000 * GIB, GIB),
            (2 * GIB, 64 * MIB),
            (100 * MIB, 10 * MIB),
        ] {
            assert_eq!(Reserve::Standard.ballast(total), expected, "of {total}");
        }
        assert_eq!(Reserve::Bytes(7).ballast(1000 * GIB), 7);
        assert_eq!(Reserve::Bytes(0).ballast(1000 * GIB), 0);
    }

    #[test]
    fn the_rest_of_the_reserve_is_kept_free_of_new_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let ballast = Ballast::open(folder.path(), Reserve::Bytes(200 * MIB)).unwrap();
        let held = std::fs::metadata(folder.path().join("ballast")).unwrap().len();
        assert!((64 * MIB..=200 * MIB).contains(&held), "{held} bytes");
        assert_eq!(ballast.margin_bytes(), 200 * MIB - held + 50 * MIB);
    }

    proptest! {
        #[test]
        fn reclaimed_ballast_is_not_released_at_once(
            free in 0u64..1000,
            ballast in 0u64..=100,
            held in 0u64..=100,
        ) {
            let space = |free, held| BallastSpace { free, held, ballast, reserve: 100 };
            let held = held.min(ballast);
            let before = space(free, held);
            if before.action() == BallastAction::TakeBack {
                let after = space(free + held - ballast, ballast);
                prop_assert_eq!(after.action(), BallastAction::Keep);
            }
            if before.action() == BallastAction::GiveUp {
                prop_assert_ne!(space(free + held, 0).action(), BallastAction::TakeBack);
            }
        }
    }

    /// A copy of a device's folder may be sparse.
    #[test]
    fn a_ballast_without_blocks_holds_no_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast");
        File::create(&path).unwrap().set_len(4 * MIB).unwrap();
        let blocks = || std::fs::metadata(&path).unwrap().blocks() * 512;
        assert_eq!(blocks(), 0);
        let ballast = Ballast::open(folder.path(), Reserve::Bytes(4 * MIB)).unwrap();
        assert_eq!(ballast.held.load(Ordering::Relaxed), 4 * MIB);
        assert!(blocks() >= 4 * MIB, "{} bytes", blocks());
    }

    #[test]
    fn the_ballast_holds_real_space_and_shrinks_to_its_reserve() {
        let folder = tempfile::tempdir().unwrap();
        let ballast = Ballast::open(folder.path(), Reserve::Bytes(4 * MIB)).unwrap();
        let metadata = std::fs::metadata(folder.path().join("ballast")).unwrap();
        assert_eq!(metadata.len(), 4 * MIB);
        assert!(metadata.blocks() * 512 >= 4 * MIB);
        assert_eq!(ballast.level(), FillLevel::Ready);
        drop(ballast);
        Ballast::open(folder.path(), Reserve::Bytes(MIB)).unwrap();
        assert_eq!(std::fs::metadata(folder.path().join("ballast")).unwrap().len(), MIB);
    }
}

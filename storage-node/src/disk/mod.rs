//! The seam between a device's bytes and the operating system: what the extent store asks of a disk,
//! and no more.
//!
//! * [`Disk`] names files; [`DiskFile`] is one of them, open. Every call may block, none is async.
//! * [`PosixDisk`] is the real one. It is the only place that knows errno.
//! * `FaultyDisk` lives in memory and fails as disks do, `GatedDisk` is one that hangs; they exist for
//!   tests.
//!
//! All run the same conformance suite.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod faulty;
#[cfg(test)]
mod gated;
mod posix;

use std::fmt::Debug;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use martlet_protocol::Result;

#[cfg(test)]
pub(crate) use faulty::{Fault, FaultyDisk};
#[cfg(test)]
pub(crate) use gated::{Gate, GatedDisk};
pub use posix::PosixDisk;

/// Names of files on one device.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder and those above it, unless they are there.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Names in a folder, in no order.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// Makes a new file, open for reading and writing. One that is there is a `Conflict`.
    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>>;
    /// Removes a file's name. The bytes go with the last who has it open.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Gives a file another name, in place of any file of that name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// How much room the device has.
    fn space(&self, path: &Path) -> Result<Space>;
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Its length in bytes.
    fn length(&self) -> Result<u64>;
    /// Fills `buffer` from `offset` on. A file that ends before is `Corrupt`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    /// Reads what can be had without waiting for the device: as many bytes as are returned,
    /// possibly none.
    fn read_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `slices`, one after another, from `offset` on.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()>;
    /// Makes the bytes and the length durable.
    fn sync(&self) -> Result<()>;
    /// Gives `length` bytes from `offset` on room on the device; new ones read as zeros.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;
    /// Cuts the file off at `length`.
    fn truncate(&self, length: u64) -> Result<()>;
    /// Gives room back: the bytes read as zeros, the file keeps its length.
    fn punch(&self, offset: u64, length: u64) -> Result<()>;
    /// Drops what the page cache holds of `length` bytes from `offset` on, so that the next read asks
    /// the device. What was written and not synced stays.
    fn drop_cached(&self, offset: u64, length: u64) -> Result<()>;
}

/// Whether bytes go through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache.
    Cached,
    /// Past it, where the file system can: offsets, lengths and memory of reads and writes are
    /// aligned to 4 KiB.
    Direct,
}

/// Room on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that it has.
    pub total_bytes: u64,
    /// Bytes that are free for this process.
    pub free_bytes: u64,
}

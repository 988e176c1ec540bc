//! File operations that the extent store needs from a disk.
//!
//! * [`Disk`] names files; [`DiskFile`] is an open file. Every call may block, none is async.
//! * [`PosixDisk`] is the real disk. [`errno`] maps errno values to error kinds.
//! * [`LentFolder`] opens files of the real disk for other processes.
//! * `FaultyDisk` keeps files in memory and fails as disks do; `GatedDisk` hangs on request. Both
//!   exist for tests.
//!
//! The three disks pass one conformance suite.

#[cfg(test)]
mod conformance;
mod errno;
#[cfg(test)]
mod faulty;
#[cfg(test)]
mod gated;
mod lent;
mod posix;

use std::fmt::Debug;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use martlet_protocol::{Error, Result};
use rustix::io::{Errno, retry_on_intr};

#[cfg(test)]
pub(crate) use faulty::{DiskFault, FaultyDisk};
#[cfg(test)]
pub(crate) use gated::{FolderGate, GatedDisk};
pub use lent::LentFiles;
pub(crate) use lent::LentFolder;
pub use posix::PosixDisk;

/// Names of files on one device.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder and its missing parents. Does nothing if the folder exists.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Names in a folder, in no order.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// Makes a new file, open for reading and writing. `Conflict` if the name exists.
    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>>;
    /// Removes a file's name. The bytes are freed once no process has the file open.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Renames a file, and replaces any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Returns length and time of a file or folder, without following links.
    fn details(&self, path: &Path) -> Result<FileDetails>;
    /// Returns total and free bytes of the device.
    fn space(&self, path: &Path) -> Result<Space>;
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Returns the length in bytes.
    fn length(&self) -> Result<u64>;
    /// Fills `buffer` from `offset` on. `Corrupt` if the file ends earlier.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    /// Reads bytes that are in memory, without waiting for the device. Returns the number of bytes
    /// read, possibly 0.
    fn read_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Returns the first offset from `offset` on that may hold other bytes than zeros. The default
    /// knows of no holes.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }
    /// Writes all of `slices` consecutively, from `offset` on.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()>;
    /// Makes bytes and length durable.
    fn sync(&self) -> Result<()>;
    /// Allocates space for `length` bytes from `offset` on; new bytes read as zeros.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;
    /// Truncates the file to `length` bytes.
    fn truncate(&self, length: u64) -> Result<()>;
    /// Frees the space of a range: its bytes read as zeros, the file keeps its length.
    fn punch(&self, offset: u64, length: u64) -> Result<()>;
    /// Returns true if the file has a name, and so may be opened again after its last descriptor is
    /// closed.
    fn is_named(&self) -> Result<bool>;
    /// Sends up to `length` bytes from `offset` on to a socket that doesn't block. Returns the number
    /// of bytes that the socket took, or none if it takes none now. `Unavailable` if the socket is
    /// closed.
    fn send(&self, socket: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Option<usize>> {
        let mut bytes = vec![0; length.min(COPIED_BYTES_MAX)];
        self.read_at(&mut bytes, offset)?;
        sent(retry_on_intr(|| rustix::io::write(socket, &bytes)))
    }
    /// Drops `length` bytes from `offset` on from the page cache, so that the next read uses the
    /// device. Bytes that are not synced stay.
    fn drop_cached(&self, offset: u64, length: u64) -> Result<()>;
}

/// Most bytes that [`DiskFile::send`] copies at a time, on disks that can't send without a copy.
const COPIED_BYTES_MAX: usize = 64 * 1024;

/// Outcome of sending to a socket that doesn't block.
fn sent(outcome: rustix::io::Result<usize>) -> Result<Option<usize>> {
    match outcome {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => {
            let source = std::io::Error::from(errno);
            Err(Error::unavailable("the reader's connection is closed").with_source(source))
        }
    }
}

/// Use of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache.
    Cached,
    /// Bypasses the page cache if the file system supports this. Offsets, lengths and memory of
    /// reads and writes are aligned to 4 KiB.
    Direct,
}

/// Length and time of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDetails {
    /// Length in bytes; none for a folder.
    pub bytes: Option<u64>,
    /// Time at which name, length or bytes last changed, in milliseconds since 1970; none on a disk without
    /// times.
    pub changed_ms: Option<u64>,
}

/// Space of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total bytes.
    pub total_bytes: u64,
    /// Bytes free for this process.
    pub free_bytes: u64,
}

//! The real disk, of which one folder hangs on request. For tests.
//!
//! While its gate is shut, calls for files in the folder block, as on a disk that doesn't answer.
//! Non-blocking reads then find nothing in memory. The gate may be shut for sends alone, as if the
//! kernel had dropped pages between a look-up and its send. It may shut itself after a send, as if the
//! pages behind these bytes were not in memory.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::Result;
use parking_lot::{Condvar, Mutex};

use super::{Caching, Disk, DiskFile, FileDetails, PosixDisk, Space};

/// A gate that blocks callers while it is shut.
#[derive(Debug, Default)]
pub(crate) struct FolderGate {
    shut: Mutex<Shut>,
    opened: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shut {
    #[default]
    No,
    AfterSend,
    Sends,
    All,
}

impl FolderGate {
    pub(crate) fn shut(&self) {
        *self.shut.lock() = Shut::All;
    }

    pub(crate) fn shut_for_sends(&self) {
        *self.shut.lock() = Shut::Sends;
    }

    /// Lets one more send pass, and is shut after it.
    pub(crate) fn shut_after_a_send(&self) {
        *self.shut.lock() = Shut::AfterSend;
    }

    pub(crate) fn open(&self) {
        *self.shut.lock() = Shut::No;
        self.opened.notify_all();
    }

    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let mut shut = self.shut.lock();
        while *shut == Shut::All {
            self.opened.wait(&mut shut);
        }
    }

    fn pass_send(&self) {
        let mut shut = self.shut.lock();
        while matches!(*shut, Shut::Sends | Shut::All) {
            self.opened.wait(&mut shut);
        }
        if *shut == Shut::AfterSend {
            *shut = Shut::All;
        }
    }

    fn is_shut(&self) -> bool {
        *self.shut.lock() == Shut::All
    }
}

/// The real disk with one gated folder.
#[derive(Clone, Debug)]
pub(crate) struct GatedDisk {
    folder: PathBuf,
    gate: Arc<FolderGate>,
}

impl GatedDisk {
    /// Returns the real disk with a gate before `folder`.
    pub(crate) fn new(folder: &Path, gate: Arc<FolderGate>) -> Self {
        Self { folder: folder.to_path_buf(), gate }
    }

    fn pass(&self, path: &Path) {
        if path.starts_with(&self.folder) {
            self.gate.pass();
        }
    }

    fn gated(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if !path.starts_with(&self.folder) {
            return file;
        }
        Arc::new(GatedFile { file, gate: self.gate.clone() })
    }
}

impl Disk for GatedDisk {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.pass(path);
        PosixDisk.create_dir(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.pass(dir);
        PosixDisk.list(dir)
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>> {
        self.pass(path);
        Ok(self.gated(path, PosixDisk.create(path, caching)?))
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>> {
        self.pass(path);
        Ok(self.gated(path, PosixDisk.open(path, caching)?))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.pass(path);
        PosixDisk.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.pass(from);
        PosixDisk.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.pass(dir);
        PosixDisk.sync_dir(dir)
    }

    fn details(&self, path: &Path) -> Result<FileDetails> {
        self.pass(path);
        PosixDisk.details(path)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.pass(path);
        PosixDisk.space(path)
    }
}

/// A file behind the gate.
#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn DiskFile>,
    gate: Arc<FolderGate>,
}

impl DiskFile for GatedFile {
    fn length(&self) -> Result<u64> {
        self.gate.pass();
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.gate.pass();
        self.file.read_at(buffer, offset)
    }

    fn read_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.gate.is_shut() { Ok(0) } else { self.file.read_nowait(buffer, offset) }
    }

    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.gate.pass();
        self.file.write_at(slices, offset)
    }

    fn sync(&self) -> Result<()> {
        self.gate.pass();
        self.file.sync()
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.gate.pass();
        self.file.allocate(offset, length)
    }

    fn truncate(&self, length: u64) -> Result<()> {
        self.gate.pass();
        self.file.truncate(length)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.gate.pass();
        self.file.punch(offset, length)
    }

    fn is_named(&self) -> Result<bool> {
        self.gate.pass();
        self.file.is_named()
    }

    fn send(&self, socket: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Option<usize>> {
        self.gate.pass_send();
        self.file.send(socket, offset, length)
    }

    fn drop_cached(&self, offset: u64, length: u64) -> Result<()> {
        self.gate.pass();
        self.file.drop_cached(offset, length)
    }
}

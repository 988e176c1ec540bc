//! The real disk.
//!
//! `Direct` files bypass the page cache if the file system supports this; else they are cached. No
//! failed call is retried, except calls that a signal interrupted.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use martlet_protocol::{Error, ErrorKind, Result};
use rustix::fs::{
    self, Advice, AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, SeekFrom,
};
use rustix::io::{self, Errno, ReadWriteFlags};

use super::errno::failed;
use super::{Caching, Disk, DiskFile, FileDetails, Space, sent};

/// Maximum number of slices in one call of the kernel.
const SLICES_MAX: usize = 1024;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixDisk;

/// An open file of the operating system.
#[derive(Debug)]
struct PosixFile {
    file: File,
    name: String,
}

fn on_path(call: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
    let name = path.display().to_string();
    move |errno| failed(call, &name, errno)
}

fn open(path: &Path, flags: OFlags) -> io::Result<Arc<dyn DiskFile>> {
    let fd = io::retry_on_intr(|| {
        fs::open(path, flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))
    })?;
    Ok(Arc::new(PosixFile { file: File::from(fd), name: path.display().to_string() }))
}

impl Disk for PosixDisk {
    fn create_dir(&self, path: &Path) -> Result<()> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            on_path("make the folder", path)(errno)
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let read = || -> io::Result<Vec<String>> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = io::retry_on_intr(|| fs::open(dir, flags, Mode::empty()))?;
            let mut names = Vec::new();
            for entry in Dir::read_from(&folder)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            Ok(names)
        };
        read().map_err(on_path("list", dir))
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>> {
        let new = OFlags::CREATE | OFlags::EXCL;
        if caching == Caching::Direct {
            match open(path, new | OFlags::DIRECT) {
                // The file system has no direct I/O. The failed call may have made the file.
                Err(Errno::INVAL) => self.unlink(path).or_else(absent_is_fine)?,
                opened => return opened.map_err(on_path("create", path)),
            }
        }
        open(path, new).map_err(on_path("create", path))
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>> {
        if caching == Caching::Direct {
            match open(path, OFlags::DIRECT) {
                Err(Errno::INVAL) => {}
                opened => return opened.map_err(on_path("open", path)),
            }
        }
        open(path, OFlags::empty()).map_err(on_path("open", path))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        fs::unlinkat(CWD, path, AtFlags::empty()).map_err(on_path("remove", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::renameat(CWD, from, CWD, to).map_err(on_path("move", from))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let sync = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            fs::fsync(io::retry_on_intr(|| fs::open(dir, flags, Mode::empty()))?)
        };
        sync().map_err(on_path("sync the folder", dir))
    }

    fn details(&self, path: &Path) -> Result<FileDetails> {
        let found = fs::lstat(path).map_err(on_path("examine", path))?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let seconds = u64::try_from(found.st_ctime).unwrap_or_default();
        let millis = found.st_ctime_nsec / 1_000_000;
        Ok(FileDetails {
            bytes: (!is_folder).then(|| u64::try_from(found.st_size).unwrap_or_default()),
            changed_ms: Some(seconds.saturating_mul(1000).saturating_add(millis)),
        })
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let found = fs::statvfs(path).map_err(on_path("ask for the free space of", path))?;
        Ok(Space {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

fn absent_is_fine(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl PosixFile {
    fn failed(&self, call: &str, errno: Errno) -> Error {
        failed(call, &self.name, errno)
    }
}

impl DiskFile for PosixFile {
    fn length(&self) -> Result<u64> {
        let stat = fs::fstat(&self.file).map_err(|errno| self.failed("ask for", errno))?;
        Ok(u64::try_from(stat.st_size).expect("a length is never negative"))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            match io::retry_on_intr(|| io::pread(&self.file, &mut buffer[done..], at)) {
                Ok(0) => {
                    return Err(Error::corrupt(format!("{} ends before byte {at}", self.name)));
                }
                Ok(read) => done += read,
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        Ok(())
    }

    fn read_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let mut slices = [IoSliceMut::new(&mut buffer[done..])];
            let at = offset + done as u64;
            match io::preadv2(&self.file, &mut slices, at, ReadWriteFlags::NOWAIT) {
                Ok(0) | Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Ok(read) => done += read,
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        Ok(done)
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        // Holes, and space that was allocated and never written.
        match fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(data),
            Err(Errno::NXIO) => Ok(self.length()?.max(offset)),
            // The file system doesn't know.
            Err(_) => Ok(offset),
        }
    }

    fn write_at(&self, slices: &[IoSlice<'_>], mut offset: u64) -> Result<()> {
        let mut slices = slices.to_vec();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let some = &left[..left.len().min(SLICES_MAX)];
            match io::retry_on_intr(|| io::pwritev(&self.file, some, offset)) {
                Ok(0) => return Err(self.failed("write", Errno::IO)),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(errno) => return Err(self.failed("write", errno)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        fs::fdatasync(&self.file).map_err(|errno| self.failed("sync", errno))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        match io::retry_on_intr(|| {
            fs::fallocate(&self.file, FallocateFlags::empty(), offset, length)
        }) {
            // Space is then allocated as bytes are written.
            Err(Errno::OPNOTSUPP) => {
                let end = self.length()?.max(offset + length);
                fs::ftruncate(&self.file, end).map_err(|errno| self.failed("lengthen", errno))
            }
            result => result.map_err(|errno| self.failed("find room for", errno)),
        }
    }

    fn truncate(&self, length: u64) -> Result<()> {
        io::retry_on_intr(|| fs::ftruncate(&self.file, length))
            .map_err(|errno| self.failed("shorten", errno))
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match io::retry_on_intr(|| fs::fallocate(&self.file, flags, offset, length)) {
            Err(Errno::OPNOTSUPP) => {
                Err(Error::unavailable(format!("{} can't give space back", self.name)))
            }
            result => result.map_err(|errno| self.failed("give back space of", errno)),
        }
    }

    fn is_named(&self) -> Result<bool> {
        let stat = fs::fstat(&self.file).map_err(|errno| self.failed("ask for", errno))?;
        Ok(stat.st_nlink > 0)
    }

    fn send(&self, socket: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Option<usize>> {
        let mut at = offset;
        match io::retry_on_intr(|| fs::sendfile(socket, &self.file, Some(&mut at), length)) {
            Ok(0) => Err(Error::corrupt(format!("{} ends before byte {offset}", self.name))),
            Err(Errno::IO) => Err(self.failed("send", Errno::IO)),
            outcome => sent(outcome),
        }
    }

    fn drop_cached(&self, offset: u64, length: u64) -> Result<()> {
        let Some(length) = NonZeroU64::new(length) else { return Ok(()) };
        fs::fadvise(&self.file, offset, Some(length), Advice::DontNeed)
            .map_err(|errno| self.failed("drop the cached pages of", errno))
    }
}

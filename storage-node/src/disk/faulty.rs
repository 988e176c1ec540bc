//! A disk in memory that fails as disks do. For tests.
//!
//! # The fault model
//!
//! Every call is counted, and each call can be chosen to fail:
//! * [`DiskFault::PowerCut`]: the call and all later calls fail; the disk is dead.
//!   [`FaultyDisk::reboot`] returns the surviving content.
//! * [`DiskFault::Io`]: the call fails. A write may have happened in part. After a failed sync,
//!   unsynced bytes are marked clean, as kernels do. Reads still return these bytes until they are
//!   dropped from the cache. They may or may not have reached the disk, and a later sync doesn't
//!   write them.
//! * [`DiskFault::NoSpace`]: the call fails if it needs space. A write may have happened in part.
//!   Calls that free space succeed.
//!
//! These survive a power cut:
//! * bytes, length and allocation of a file at its last completed sync. Of each later change a
//!   seeded choice of its 512-byte sectors survives: none, some or all, in no order. A sector is
//!   written whole or not at all;
//! * names at the last completed sync of their folder. Of the later changes a seeded choice
//!   survives, in no order. A rename happens in both folders or in none. Folders survive;
//! * the interrupted call may have taken effect, in whole or in part.
//!
//! Not modelled: bit rot (see [`FaultyDisk::flip`] and [`FaultyDisk::flip_cached`]), reordering
//! within a sync, disks that acknowledge a sync falsely, and file systems on which a sync of one
//! file makes other files durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::{Error, ErrorKind, Result};
use parking_lot::{Mutex, MutexGuard};

use self::content::{Content, ContentChange, ContentRng, NameChange, SECTOR};
use super::{Caching, Disk, DiskFile, FileDetails, Space};

mod content;
#[cfg(test)]
mod tests;

/// Kind of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The power is cut during the call.
    PowerCut,
    /// The device reports an error.
    Io,
    /// No space is left.
    NoSpace,
    /// The caller panics.
    Panic,
}

/// A disk in memory. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct FaultyDisk(Arc<Mutex<FaultyState>>);

#[derive(Debug)]
struct FaultyState {
    chance: ContentRng,
    calls: u64,
    fault: Option<(u64, DiskFault)>,
    dead: bool,
    free_bytes: u64,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    folders: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<NameChange>,
}

impl FaultyDisk {
    /// Creates an empty disk. The seed decides which unsynced changes survive.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(FaultyState {
            chance: ContentRng(seed),
            calls: 0,
            fault: None,
            dead: false,
            free_bytes: u64::MAX / 4,
            files: BTreeMap::new(),
            next_file: 0,
            folders: BTreeSet::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
        })))
    }

    /// Makes the call after the next `calls` calls fail.
    pub(crate) fn fail_after(&self, calls: u64, fault: DiskFault) {
        let mut state = self.0.lock();
        state.fault = Some((state.calls + calls, fault));
    }

    /// Cancels a pending fault; returns true if a fault was pending.
    pub(crate) fn heal(&self) -> bool {
        self.0.lock().fault.take().is_some()
    }

    /// Returns true if the power was cut.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    /// Blocks all calls until the returned guard is dropped.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.0.lock()
    }

    /// Sets the free space that the device reports, in bytes.
    pub(crate) fn set_free_bytes(&self, bytes: u64) {
        self.0.lock().free_bytes = bytes;
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Counts a step of another component that loses power with this disk; it fails as a call does.
    pub(crate) fn step(&self) -> Result<()> {
        self.0.lock().call().0
    }

    /// Flips a bit of a file, on disk and in memory.
    pub(crate) fn flip(&self, path: &Path, at: u64) {
        let mut state = self.0.lock();
        let file = state.names[path];
        let content = state.files.get_mut(&file).expect("a name has a file");
        let at = usize::try_from(at).expect("files fit in memory");
        content.live[at] ^= 1;
        if let Some(byte) = content.durable.get_mut(at) {
            *byte ^= 1;
        }
    }

    /// Makes reads of a byte fail until the byte is written again.
    pub(crate) fn break_byte(&self, path: &Path, at: u64) {
        let mut state = self.0.lock();
        let file = state.names[path];
        let content = state.files.get_mut(&file).expect("a name has a file");
        content.unreadable.insert(index(at));
    }

    /// Makes all broken bytes readable again.
    pub(crate) fn mend_bytes(&self) {
        self.0.lock().files.values_mut().for_each(|content| content.unreadable.clear());
    }

    /// Flips a bit of a file in the page cache, and not on disk.
    pub(crate) fn flip_cached(&self, path: &Path, at: u64) {
        let mut state = self.0.lock();
        let file = state.names[path];
        let content = state.files.get_mut(&file).expect("a name has a file");
        content.misread.insert(index(at));
    }

    /// Cuts the power, unless it is cut already, and returns the surviving disk.
    pub(crate) fn reboot(&self) -> Self {
        let mut state = self.0.lock();
        state.dead = true;
        let mut chance = ContentRng(state.chance.next());
        let mut names = state.durable_names.clone();
        for change in &state.pending_names {
            if chance.one_in(2) {
                change.apply(&mut names);
            }
        }
        let mut files = BTreeMap::new();
        for file in names.values() {
            let mut content = state.files[file].clone();
            content.scatter(&mut chance);
            let durable = content.durable;
            let content = Content { live: durable.clone(), durable, ..Content::default() };
            files.insert(*file, content);
        }
        let survivor = Self::new(chance.next());
        *survivor.0.lock() = FaultyState {
            chance,
            calls: 0,
            fault: None,
            dead: false,
            free_bytes: state.free_bytes,
            files,
            next_file: state.next_file,
            folders: state.folders.clone(),
            durable_names: names.clone(),
            names,
            pending_names: Vec::new(),
        };
        survivor
    }

    /// Returns every name, with the length of its file.
    pub(crate) fn names(&self) -> Vec<(PathBuf, u64)> {
        let state = self.0.lock();
        let length = |file: &u64| state.files[file].live.len() as u64;
        state.names.iter().map(|(path, file)| (path.clone(), length(file))).collect()
    }
}

fn io(what: &str) -> Error {
    Error::internal(format!("can't {what}: input/output error"))
}

fn full(what: &str) -> Error {
    Error::full(format!("can't {what}: no space left"))
}

impl FaultyState {
    /// Counts a call; returns its outcome, and the fault that it met.
    fn call(&mut self) -> (Result<()>, Option<DiskFault>) {
        if self.dead {
            return (Err(io("reach the disk")), None);
        }
        self.calls += 1;
        match self.fault {
            Some((at, fault)) if self.calls > at => {
                self.fault = None;
                assert!(fault != DiskFault::Panic, "a call was to panic");
                self.dead = fault == DiskFault::PowerCut;
                let error = if fault == DiskFault::NoSpace { full("write") } else { io("go on") };
                (Err(error), Some(fault))
            }
            _ => (Ok(()), None),
        }
    }

    /// Counts a call that needs no space, which [`DiskFault::NoSpace`] does not fail.
    fn spaceless(&mut self) -> (Result<()>, Option<DiskFault>) {
        match self.call() {
            (_, Some(DiskFault::NoSpace)) => (Ok(()), None),
            outcome => outcome,
        }
    }

    fn file(&self, path: &Path) -> Result<u64> {
        let absent = || Error::not_found(format!("{} is not there", path.display()));
        self.names.get(path).copied().ok_or_else(absent)
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    /// Returns the outcome of a call that takes effect. An interrupted call takes effect in half of
    /// the cases.
    fn effective(&mut self, outcome: Result<()>, fault: Option<DiskFault>) -> Result<Result<()>> {
        match (outcome, fault) {
            (Err(error), Some(DiskFault::PowerCut)) if self.chance.one_in(2) => Ok(Err(error)),
            (outcome, _) => outcome.map(Ok),
        }
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.call().0?;
        state.folders.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut state = self.0.lock();
        state.spaceless().0?;
        if !state.folders.contains(dir) {
            return Err(Error::not_found(format!("{} is not there", dir.display())));
        }
        let names = state.names.keys().chain(&state.folders);
        let inside = names.filter(|path| path.parent() == Some(dir));
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        Ok(inside.filter_map(name).collect())
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        let (outcome, fault) = state.call();
        let outcome = state.effective(outcome, fault)?;
        if state.names.contains_key(path) {
            return Err(Error::conflict(format!("{} is there", path.display())));
        }
        let folder = path.parent().filter(|folder| state.folders.contains(*folder));
        folder.ok_or_else(|| Error::not_found(format!("no folder for {}", path.display())))?;
        let file = state.next_file;
        state.next_file += 1;
        state.files.insert(file, Content::default());
        state.rename(NameChange::Link(path.to_path_buf(), file));
        outcome?;
        Ok(Arc::new(FaultyFile { disk: self.clone(), file, caching }))
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.spaceless().0?;
        let file = state.file(path)?;
        Ok(Arc::new(FaultyFile { disk: self.clone(), file, caching }))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        let (outcome, fault) = state.spaceless();
        let outcome = state.effective(outcome, fault)?;
        state.file(path)?;
        state.rename(NameChange::Unlink(path.to_path_buf()));
        outcome
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.0.lock();
        let (outcome, fault) = state.call();
        let outcome = state.effective(outcome, fault)?;
        state.file(from)?;
        state.rename(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
        outcome
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.0.lock();
        let (outcome, fault) = state.spaceless();
        if fault == Some(DiskFault::Io) {
            state.scatter_names(dir);
        }
        outcome?;
        let (synced, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.pending_names).into_iter().partition(|c| c.touches(dir));
        for change in synced {
            change.apply(&mut state.durable_names);
        }
        state.pending_names = kept;
        Ok(())
    }

    fn details(&self, path: &Path) -> Result<FileDetails> {
        let mut state = self.0.lock();
        state.spaceless().0?;
        if state.folders.contains(path) {
            return Ok(FileDetails { bytes: None, changed_ms: None });
        }
        let file = state.file(path)?;
        let bytes = state.files[&file].live.len() as u64;
        Ok(FileDetails { bytes: Some(bytes), changed_ms: None })
    }

    fn space(&self, _: &Path) -> Result<Space> {
        let mut state = self.0.lock();
        state.spaceless().0?;
        Ok(Space { total_bytes: u64::MAX / 2, free_bytes: state.free_bytes })
    }
}

impl FaultyState {
    /// Decides for each change in a folder if it reached the disk, after a failed sync.
    fn scatter_names(&mut self, dir: &Path) {
        let changes = std::mem::take(&mut self.pending_names);
        for change in changes {
            if !change.touches(dir) {
                self.pending_names.push(change);
            } else if self.chance.one_in(2) {
                change.apply(&mut self.durable_names);
            }
        }
    }
}

/// An open file of a faulty disk.
#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    file: u64,
    caching: Caching,
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("files fit in memory")
}

impl FaultyFile {
    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.disk.0.lock()
    }

    /// Makes a change; if the call fails, possibly a part of a write.
    fn change(&self, change: ContentChange, spaceless: bool) -> Result<()> {
        let mut state = self.state();
        let (outcome, _) = if spaceless { state.spaceless() } else { state.call() };
        let FaultyState { files, chance, .. } = &mut *state;
        let content = files.get_mut(&self.file).expect("an open file is there");
        if outcome.is_ok() {
            content.change(change);
        } else if let ContentChange::Write(at, data) = change {
            let reached = at + index(chance.next()) % (data.len() + 1);
            // Sectors are written whole or not at all, also by an interrupted call.
            let whole =
                if reached == at + data.len() { reached } else { reached / SECTOR * SECTOR };
            let done = whole.saturating_sub(at);
            content.change(ContentChange::Write(at, data[..done].to_vec()));
        }
        outcome
    }

    fn length_now(&self) -> usize {
        self.state().files[&self.file].live.len()
    }
}

impl DiskFile for FaultyFile {
    fn length(&self) -> Result<u64> {
        let mut state = self.state();
        state.spaceless().0?;
        Ok(state.files[&self.file].live.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut state = self.state();
        state.spaceless().0?;
        let content = &state.files[&self.file];
        let wanted = index(offset)..index(offset) + buffer.len();
        if content.unreadable.range(wanted.clone()).next().is_some() {
            return Err(io("read"));
        }
        let bytes = content.live.get(wanted.clone());
        buffer.copy_from_slice(bytes.ok_or_else(|| Error::corrupt("the file ends before"))?);
        if self.caching == Caching::Cached {
            for at in content.misread.range(wanted) {
                buffer[at - index(offset)] ^= 1;
            }
        }
        Ok(())
    }

    fn read_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let live = self.length_now();
        // A quarter of the reads find half of their bytes in memory, a quarter none.
        let ready = match self.state().chance.next() % 4 {
            0 => buffer.len() / 2,
            1 => 0,
            _ => buffer.len(),
        };
        let ready = ready.min(live.saturating_sub(index(offset)));
        self.read_at(&mut buffer[..ready], offset).map(|()| ready)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let data = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.change(ContentChange::Write(index(offset), data), false)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state();
        let (outcome, fault) = state.spaceless();
        let FaultyState { files, chance, .. } = &mut *state;
        let content = files.get_mut(&self.file).expect("an open file is there");
        match fault {
            None if outcome.is_ok() => content.synced(),
            Some(DiskFault::Io) => content.scatter(chance),
            _ => {}
        }
        outcome
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let length = self.length_now().max(index(offset + length));
        self.change(ContentChange::Length(length), false)
    }

    fn truncate(&self, length: u64) -> Result<()> {
        self.change(ContentChange::Length(index(length)), true)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.change(ContentChange::Punch(index(offset)..index(offset + length)), true)
    }

    fn is_named(&self) -> Result<bool> {
        let mut state = self.state();
        state.spaceless().0?;
        Ok(state.names.values().any(|file| *file == self.file))
    }

    fn drop_cached(&self, offset: u64, length: u64) -> Result<()> {
        let mut state = self.state();
        state.spaceless().0?;
        let content = state.files.get_mut(&self.file).expect("an open file is there");
        content.drop_cached(index(offset)..index(offset + length));
        Ok(())
    }
}

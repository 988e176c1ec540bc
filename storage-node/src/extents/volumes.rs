//! Volumes of a store: files that hold packed extents, and their free space.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use martlet_protocol::id::random_bytes;
use martlet_protocol::limits::{ALIGN_BYTES, PACKED_BYTES_MAX};
use martlet_protocol::{Error, ErrorKind, Result};
use parking_lot::RwLock;

use crate::disk::{Caching, Disk, DiskFile};
use crate::sync::{Mutex, MutexGuard};

use super::heads::Heads;
use super::lease::Leases;
use super::record::{BlockRun, VolumeHead, record_bytes};
use super::seal::Seal;
use super::space::{Backing, Needs, SpaceMap};

/// Bytes of a volume that are used, at most: far beyond any setting. A damaged inode may report any
/// length, and the map of used blocks takes a bit for each block.
const VOLUME_BYTES_MAX: u64 = 1 << 40;

/// An open volume.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    /// The volume's file, opened for writes that bypass the page cache.
    pub(super) direct: Arc<dyn DiskFile>,
    pub(super) head: VolumeHead,
    pub(super) seal: Seal,
    /// Preallocated bytes.
    bytes: AtomicU64,
}

impl Volume {
    /// Opens the volume in a file whose first 4 KiB are `head`.
    pub(super) fn open(disk: &dyn Disk, head: &VolumeHead, path: PathBuf) -> Result<Self> {
        let file = disk.open(&path, Caching::Cached)?;
        let direct = disk.open(&path, Caching::Direct)?;
        let length = file.length()?;
        if length > VOLUME_BYTES_MAX {
            let path = path.display();
            tracing::error!(%path, length, "a volume is longer than any; its end is not used");
        }
        let bytes = length.min(VOLUME_BYTES_MAX) / ALIGN_BYTES * ALIGN_BYTES;
        let (head, seal) = (*head, Seal::volume(&head.secret));
        let (number, bytes) = (head.number, AtomicU64::new(bytes));
        Ok(Self { number, path, file, direct, head, seal, bytes })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns the file for cached or direct reads.
    pub(super) fn through(&self, caching: Caching) -> &Arc<dyn DiskFile> {
        match caching {
            Caching::Cached => &self.file,
            Caching::Direct => &self.direct,
        }
    }
}

/// All volumes of a store.
#[derive(Debug)]
pub(super) struct Volumes {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    pub(super) heads: Heads,
    volume_bytes: u64,
    step_bytes: u64,
    by_number: RwLock<BTreeMap<u32, Arc<Volume>>>,
    space: Arc<Mutex<SpaceMap>>,
    pub(super) leases: Leases,
    /// True if the file system can't take blocks back.
    keeps_blocks: AtomicBool,
}

/// Runs and bytes that were returned to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReturnedSpace {
    pub(super) runs: usize,
    pub(super) bytes: u64,
}

impl Volumes {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        root: &Path,
        volume_bytes: u64,
        step_bytes: u64,
    ) -> Self {
        let (heads, folder) = (Heads::new(disk.clone(), root), root.join("volumes"));
        let space = Arc::new(Mutex::new(SpaceMap::default()));
        let leases = Leases::new(space.clone());
        let (by_number, keeps_blocks) = (RwLock::default(), AtomicBool::new(false));
        Self {
            disk,
            folder,
            heads,
            volume_bytes,
            step_bytes,
            by_number,
            space,
            leases,
            keeps_blocks,
        }
    }

    pub(super) fn add(&self, volume: Volume) -> Arc<Volume> {
        let volume = Arc::new(volume);
        self.by_number.write().insert(volume.number, volume.clone());
        volume
    }

    pub(super) fn get(&self, number: u32) -> Result<Arc<Volume>> {
        let found = self.by_number.read().get(&number).cloned();
        found.ok_or_else(|| Error::corrupt(format!("volume {number} is missing")))
    }

    pub(super) fn all(&self) -> Vec<Arc<Volume>> {
        self.by_number.read().values().cloned().collect()
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.space.lock().free_bytes()
    }

    /// Returns true if a block of a run is free.
    pub(super) fn is_free(&self, run: BlockRun) -> bool {
        self.space.lock().is_free(run)
    }

    /// Adds free space.
    pub(super) fn free(&self, run: BlockRun, backing: Backing) {
        self.space.lock().insert(run, backing);
    }

    /// Returns true for bytes that a volume is preallocated by at a time.
    pub(super) fn is_one_step(&self, bytes: u64) -> bool {
        bytes <= self.step_bytes
    }

    /// Replaces the map of free space, while the store is being opened.
    pub(super) fn set_space(&self, space: SpaceMap) {
        *self.space.lock() = space;
    }

    /// Returns the free space of a closed store.
    pub(super) fn space_at_rest(&self) -> Result<MutexGuard<'_, SpaceMap>> {
        self.leases.settle()?;
        Ok(self.space.lock())
    }

    /// Returns true if an extent of `length` bytes can be packed without new blocks of the file
    /// system.
    pub(super) fn has_blocks_for(&self, length: u64) -> bool {
        length <= PACKED_BYTES_MAX && self.space.lock().has_blocks_for(record_bytes(length))
    }

    /// Allocates space for a record among the blocks that the volumes have, those of `first` before
    /// others. Only the committer calls this.
    pub(super) fn allocate_blocks(&self, bytes: u64, first: &[u32]) -> Option<BlockRun> {
        let mut space = self.space.lock();
        let found = space.allocate_in(first, bytes, Needs::Blocks);
        found.or_else(|| space.allocate(bytes, Needs::Blocks))
    }

    /// Frees the space of a removed or failed record.
    pub(super) fn release(&self, run: BlockRun) {
        self.space.lock().release(run);
    }

    /// Allocates space for a record: freed space first, for overwriting is cheaper than growing, and
    /// in the volumes `first` before others.
    /// A volume grows by a whole step if `admits` takes the bytes beyond the record, else by the
    /// record alone: a step must not take the reserve of the device. Only the committer calls this.
    pub(super) fn allocate(
        &self,
        bytes: u64,
        first: &[u32],
        admits: impl Fn(u64) -> bool,
    ) -> Result<BlockRun> {
        loop {
            let mut space = self.space.lock();
            let found = space.allocate_in(first, bytes, Needs::Any);
            if let Some(run) = found.or_else(|| space.allocate(bytes, Needs::Any)) {
                return Ok(run);
            }
            drop(space);
            self.grow(bytes, &admits)?;
        }
    }

    fn grow(&self, bytes: u64, admits: impl Fn(u64) -> bool) -> Result<()> {
        let last = self.by_number.read().last_key_value().map(|(_, volume)| volume.clone());
        let volume = match last {
            Some(volume) if volume.bytes() + bytes <= self.volume_bytes => volume,
            last => {
                let number = last.map_or(0, |volume| volume.number + 1);
                return self.create(number);
            }
        };
        let (from, room) = (volume.bytes(), self.volume_bytes - volume.bytes());
        let step = self.step_bytes.max(bytes).min(room);
        let wanted = if step == bytes || admits(step - bytes) { step } else { bytes };
        let grown = match volume.file.allocate(from, wanted) {
            Err(error) if error.kind() == ErrorKind::Full && wanted > bytes => {
                volume.file.allocate(from, bytes).map(|()| bytes)
            }
            outcome => outcome.map(|()| wanted),
        }?;
        volume.bytes.store(from + grown, Ordering::Release);
        let run = BlockRun { volume: volume.number, offset: from, bytes: grown };
        self.free(run, Backing::Fresh);
        Ok(())
    }

    /// Makes the next volume as a hole of `bytes` behind its head; returns its number.
    pub(super) fn add_hole(&self, bytes: u64) -> Result<u32> {
        let last = self.by_number.read().last_key_value().map(|(number, _)| *number);
        let number = last.map_or(0, |last| last + 1);
        self.create(number)?;
        let volume = self.get(number)?;
        volume.file.truncate(bytes)?;
        volume.file.sync()?;
        Ok(number)
    }

    /// Makes a volume that holds only its head.
    fn create(&self, number: u32) -> Result<()> {
        let path = self.folder.join(format!("{number}.vol"));
        let head = VolumeHead { number, secret: random_bytes() };
        self.heads.keep(&head)?;
        let file = self.disk.create(&path, Caching::Cached)?;
        let durable = file
            .write_at(&[IoSlice::new(&head.encode())], 0)
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.sync_dir(&self.folder));
        if let Err(error) = durable {
            // The name must not block the next attempt.
            let _ = self.disk.unlink(&path);
            return Err(error);
        }
        self.add(Volume::open(self.disk.as_ref(), &head, path)?);
        Ok(())
    }

    /// Returns up to `runs_max` free runs of one volume, of at least `bytes_min` each, to the file
    /// system, and waits until their space is usable again. One sync serves all of them. With
    /// `preallocated`, includes runs that were never written.
    pub(super) fn reclaim(
        &self,
        bytes_min: u64,
        preallocated: bool,
        runs_max: usize,
    ) -> Result<ReturnedSpace> {
        if self.keeps_blocks.load(Ordering::Relaxed) {
            return Ok(ReturnedSpace::default());
        }
        let taken = self.space.lock().take_returnable(bytes_min, preallocated, runs_max);
        let Some((first, _)) = taken.first() else { return Ok(ReturnedSpace::default()) };
        let punched = self.get(first.volume).and_then(|volume| {
            taken.iter().try_for_each(|(run, _)| volume.direct.punch(run.offset, run.bytes))?;
            // The kernel reports a write error once to each open file. This sync uses the direct
            // file, so that the committer's file still gets its errors.
            volume.direct.sync()
        });
        let refused = punched.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable);
        self.keeps_blocks.store(refused, Ordering::Relaxed);
        for (run, before) in &taken {
            let backing = match &punched {
                Ok(()) => Backing::Hole,
                Err(_) if refused => *before,
                Err(_) => Backing::Unknown,
            };
            self.free(*run, backing);
        }
        punched?;
        let bytes = taken.iter().map(|(run, _)| run.bytes).sum();
        Ok(ReturnedSpace { runs: taken.len(), bytes })
    }
}

//! The space map and the sums of extents on disk, which spare the next opening a walk over all rows.
//!
//! The map is written when a store was closed in good order. Its hash goes into the marker of the
//! clean closing, and the marker is durably removed before the next opening changes anything. So a
//! map is believed only if no process used the device after it was written, and only if all of its
//! bytes are those that were written. Any doubt costs a walk over all rows, and nothing else.
//!
//! ```text
//!  0   8  magic "MRTLFREE"
//!  8   2  format version: 2
//! 10   2  zero
//! 12   4  number of volumes
//! 16   8  number of extents
//! 24   8  bytes of extents
//! 32   8  number of items in quarantine
//! 40      for each volume: number (4) | number of free runs (4) | bytes of the volume (8)
//!                          | secret (32)
//!           for each run, by offset: first block (4) | length in blocks (30 bits), backing (2 bits)
//!         number of policies (4)
//!         for each policy: policy (2) | bits of a bin (1) | zero (1) | number of sums (4)
//!           for each sum, in order: bin (4) | k (1) | m (1) | data fragments with bytes (1)
//!                          | fragment (1) | hash (8) | extents (4)
//! ```

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::extent_sums::{
    BIN_POWER_MAX, BINS_MAX, ExtentBin, ExtentClass, ExtentSum, ExtentSums, PolicySums,
};
use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{Error, ErrorKind, PolicyId, Result};

use super::record::VolumeHead;
use super::seal::array;
use super::space::{FreeRun, SpaceMap};
use super::volumes::Volumes;
use crate::disk::{Caching, Disk, DiskFile};

const MAGIC: [u8; 8] = *b"MRTLFREE";
const VERSION: u16 = 2;
/// Bytes of the map that are in memory at a time.
const WINDOW_BYTES: usize = 1024 * 1024;

/// Figures beside the free runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedFigures {
    pub(super) extents: u64,
    pub(super) bytes: u64,
    pub(super) quarantined: u64,
}

/// A volume as it was at the closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedVolume {
    /// Spares the opening a read of the volume's head, and of its copy.
    pub(super) head: VolumeHead,
    pub(super) bytes: u64,
}

/// Contents of a saved map.
#[derive(Debug)]
pub(super) struct SavedSpace {
    pub(super) space: SpaceMap,
    pub(super) volumes: Vec<SavedVolume>,
    pub(super) figures: SavedFigures,
    pub(super) sums: ExtentSums,
}

/// State of a store at its closing.
#[derive(Clone, Copy)]
pub(super) struct Closed<'a> {
    pub(super) volumes: &'a Volumes,
    pub(super) figures: SavedFigures,
    pub(super) sums: &'a [PolicySums],
}

fn path(root: &Path) -> PathBuf {
    root.join("free-space")
}

/// Writes the map, durably; returns its hash. A map that can't be written leaves no bytes behind: a
/// full device needs them to open again.
pub(super) fn save(disk: &dyn Disk, root: &Path, closed: Closed<'_>) -> Result<[u8; 32]> {
    let new = root.join("free-space.new");
    if let Err(error) = disk.unlink(&new)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let hash = write(disk, &new, closed).inspect_err(|_| drop(disk.unlink(&new)))?;
    disk.rename(&new, &path(root))?;
    disk.sync_dir(root)?;
    Ok(hash)
}

fn write(disk: &dyn Disk, new: &Path, closed: Closed<'_>) -> Result<[u8; 32]> {
    let Closed { volumes, figures, sums } = closed;
    let all = volumes.all();
    let space = volumes.space_at_rest()?;
    let mut writer = Writer::new(disk.create(new, Caching::Cached)?);
    writer.put(&MAGIC)?;
    writer.put(&VERSION.to_le_bytes())?;
    writer.put(&[0; 2])?;
    writer.put(&count(all.len())?.to_le_bytes())?;
    for figure in [figures.extents, figures.bytes, figures.quarantined] {
        writer.put(&figure.to_le_bytes())?;
    }
    for volume in all {
        let runs = space.runs(volume.number);
        writer.put(&volume.number.to_le_bytes())?;
        writer.put(&count(runs.len())?.to_le_bytes())?;
        writer.put(&volume.bytes().to_le_bytes())?;
        writer.put(&volume.head.secret)?;
        for run in runs {
            writer.put(&run.encode())?;
        }
    }
    write_sums(&mut writer, sums)?;
    writer.end()
}

fn write_sums(writer: &mut Writer, sums: &[PolicySums]) -> Result<()> {
    writer.put(&count(sums.len())?.to_le_bytes())?;
    for PolicySums { policy, power, sums } in sums {
        writer.put(&policy.0.to_le_bytes())?;
        writer.put(&[*power, 0])?;
        writer.put(&count(sums.len())?.to_le_bytes())?;
        for (ExtentBin { bin, class }, ExtentSum { hash, count }) in sums {
            writer.put(&bin.to_le_bytes())?;
            writer.put(&[class.k, class.m, class.needed, class.fragment])?;
            writer.put(&hash.to_le_bytes())?;
            writer.put(&count.to_le_bytes())?;
        }
    }
    Ok(())
}

fn read_sums(reader: &mut Reader) -> Result<ExtentSums> {
    let mut policies = Vec::new();
    for _ in 0..u32::from_le_bytes(reader.take()?) {
        let about: [u8; 8] = reader.take()?;
        let policy = PolicyId(u16::from_le_bytes(array(&about[..2])));
        let (power, number) = (about[2], u32::from_le_bytes(array(&about[4..])) as usize);
        if power > BIN_POWER_MAX || number > BINS_MAX {
            return Err(other("has sums that no device has"));
        }
        let mut sums = Vec::with_capacity(number);
        for _ in 0..number {
            let bin = u32::from_le_bytes(reader.take()?);
            let [k, m, needed, fragment] = reader.take()?;
            let class = ExtentClass { k, m, needed, fragment };
            let hash = u64::from_le_bytes(reader.take()?);
            let count = u32::from_le_bytes(reader.take()?);
            sums.push((ExtentBin { bin, class }, ExtentSum { hash, count }));
        }
        policies.push(PolicySums { policy, power, sums });
    }
    Ok(ExtentSums::restore(policies))
}

/// Reads the map with this hash. `Corrupt` if it is not that map.
pub(super) fn load(disk: &dyn Disk, root: &Path, hash: &[u8; 32]) -> Result<SavedSpace> {
    let mut reader = Reader::new(disk.open(&path(root), Caching::Cached)?)?;
    let start: [u8; 40] = reader.take()?;
    let number = |at: usize| u64::from_le_bytes(array(&start[at..at + 8]));
    if start[..8] != MAGIC || u16::from_le_bytes(array(&start[8..10])) != VERSION {
        return Err(other("has another format"));
    }
    let figures = SavedFigures { extents: number(16), bytes: number(24), quarantined: number(32) };
    let (mut space, mut volumes) = (SpaceMap::default(), Vec::new());
    for _ in 0..u32::from_le_bytes(array(&start[12..16])) {
        let about: [u8; 48] = reader.take()?;
        let head = VolumeHead {
            number: u32::from_le_bytes(array(&about[..4])),
            secret: array(&about[16..]),
        };
        let runs = u32::from_le_bytes(array(&about[4..8]));
        let bytes = u64::from_le_bytes(array(&about[8..16]));
        // Until the hash is known, the count may be wrong.
        let runs_max = usize::try_from(reader.left / 8).unwrap_or(usize::MAX) + WINDOW_BYTES / 8;
        space.reserve(head.number, runs_max.min(runs as usize));
        for _ in 0..runs {
            let run = FreeRun::decode(reader.take()?);
            let lies_within = u64::from(run.end()) <= bytes / ALIGN_BYTES;
            if !lies_within || space.append(head.number, run).is_none() {
                return Err(other("has runs that no volume has"));
            }
        }
        volumes.push(SavedVolume { head, bytes });
    }
    let sums = read_sums(&mut reader)?;
    if reader.end()? != *hash {
        return Err(other("is not the one of the last closing"));
    }
    Ok(SavedSpace { space, volumes, figures, sums })
}

fn other(what: &str) -> Error {
    Error::corrupt(format!("the saved map of free space {what}"))
}

fn count(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::internal("too many runs for a map of free space"))
}

/// Writes and hashes a file, a window at a time.
struct Writer {
    file: Arc<dyn DiskFile>,
    hasher: blake3::Hasher,
    window: Vec<u8>,
    at: u64,
}

impl Writer {
    fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, hasher: blake3::Hasher::new(), window: Vec::new(), at: 0 }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.window.extend_from_slice(bytes);
        if self.window.len() >= WINDOW_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.hasher.update(&self.window);
        self.file.write_at(&[IoSlice::new(&self.window)], self.at)?;
        self.at += self.window.len() as u64;
        self.window.clear();
        Ok(())
    }

    fn end(mut self) -> Result<[u8; 32]> {
        self.flush()?;
        self.file.sync()?;
        Ok(*self.hasher.finalize().as_bytes())
    }
}

/// Reads and hashes a file, a window at a time.
struct Reader {
    file: Arc<dyn DiskFile>,
    hasher: blake3::Hasher,
    window: Vec<u8>,
    /// Bytes of the window that were taken.
    taken: usize,
    /// Bytes of the file behind the window.
    left: u64,
    at: u64,
}

impl Reader {
    fn new(file: Arc<dyn DiskFile>) -> Result<Self> {
        let left = file.length()?;
        let (hasher, window) = (blake3::Hasher::new(), Vec::new());
        Ok(Self { file, hasher, window, taken: 0, left, at: 0 })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            if self.taken == self.window.len() {
                self.refill()?;
            }
            *byte = self.window[self.taken];
            self.taken += 1;
        }
        Ok(bytes)
    }

    fn refill(&mut self) -> Result<()> {
        let bytes = self.left.min(WINDOW_BYTES as u64);
        if bytes == 0 {
            return Err(other("ends early"));
        }
        self.window.resize(usize::try_from(bytes).expect("a window fits in memory"), 0);
        self.file.read_at(&mut self.window, self.at)?;
        self.hasher.update(&self.window);
        (self.taken, self.at, self.left) = (0, self.at + bytes, self.left - bytes);
        Ok(())
    }

    /// Returns the hash of the file, all of which was taken.
    fn end(self) -> Result<[u8; 32]> {
        if self.taken < self.window.len() || self.left > 0 {
            return Err(other("goes on behind its end"));
        }
        Ok(*self.hasher.finalize().as_bytes())
    }
}

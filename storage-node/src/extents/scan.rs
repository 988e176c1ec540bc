//! Scan of a volume for records without a row. Blocks that the disk can't read count as such records,
//! so that no new record gets their space.

use martlet_protocol::Result;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::ALIGN_BYTES;

use super::blocks::{BLOCK, verify};
use super::buffer::ALIGN;
use super::classify::Evidence;
use super::record::{self, BlockRun, Header};
use super::seal::{Description, SealLocation};
use super::unreadable::tried_twice;
use super::used::UsedBlocks;
use super::volumes::Volume;
use crate::disk::DiskFile;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 1024 * 1024;

/// A non-empty run of a volume that has no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowlessRun {
    pub(super) run: BlockRun,
    pub(super) evidence: Evidence,
    /// Its record, if its header is valid.
    pub(super) record: Option<ExtentRecord>,
}

/// Some strays of a volume.
pub(super) struct ScanPage {
    /// By offset.
    pub(super) strays: Vec<RowlessRun>,
    /// Offset at which the scan goes on, unless it has ended.
    pub(super) next: Option<u64>,
}

/// Returns up to `limit` strays of a volume, from offset `from` on. Skips the blocks in `used`, and
/// those that were never written.
pub(super) fn volume(
    volume: &Volume,
    used: &UsedBlocks,
    from: u64,
    limit: usize,
) -> Result<ScanPage> {
    let mut strays = Vec::new();
    let mut window = Window::new(volume, WINDOW_BYTES);
    let mut at = from;
    while let Some(unused) = used.next_unused(at) {
        at = unused.start;
        while at < unused.end {
            if !window.has(at) {
                at = volume.file.next_data(at)?.max(at) / ALIGN_BYTES * ALIGN_BYTES;
                if at >= unused.end {
                    break;
                }
            }
            let Some(stray) = stray_at(volume, at, &mut window, unused.end)? else {
                at += ALIGN_BYTES;
                continue;
            };
            at = stray.run.end();
            strays.push(stray);
            if strays.len() >= limit {
                return Ok(ScanPage { strays, next: Some(at) });
            }
        }
    }
    Ok(ScanPage { strays, next: None })
}

/// Returns the stray whose header lies at `offset`, unless this block is in use.
pub(super) fn header(
    volume: &Volume,
    used: &UsedBlocks,
    offset: u64,
) -> Result<Option<RowlessRun>> {
    if used.is_used(offset) {
        return Ok(None);
    }
    let Some(unused) = used.next_unused(offset) else { return Ok(None) };
    let mut window = Window::new(volume, ALIGN);
    stray_at(volume, offset, &mut window, unused.end)
}

/// Returns the record whose header lies at `at`, if there is one. Reads ahead up to `limit`, the
/// end of the unused run.
fn stray_at(
    volume: &Volume,
    at: u64,
    window: &mut Window<'_>,
    limit: u64,
) -> Result<Option<RowlessRun>> {
    let spot = SealLocation { volume: volume.number, offset: at };
    let Some(header) = window.header(at, limit)? else {
        return Ok(Some(headless(spot, Evidence::Unreadable)));
    };
    let mut stray = match record::inspect(&volume.seal, spot, header) {
        Header::Absent => return Ok(None),
        Header::Rotten => headless(spot, Evidence::Contradiction),
        Header::Torn(head) => {
            let run = BlockRun::of_record(spot, u64::from(head.length));
            RowlessRun { run, ..headless(spot, Evidence::Unfinished) }
        }
        Header::Good(description) => whole(volume, spot, description)?,
    };
    if stray.run.end() > limit {
        // Behind the end of the volume, bytes were never synced. Elsewhere the record overlaps a
        // used run.
        let is_cut_off = limit >= volume.bytes();
        stray.run.bytes = if is_cut_off { limit - at } else { ALIGN_BYTES };
        stray.evidence = if is_cut_off { Evidence::Unfinished } else { Evidence::Contradiction };
    }
    Ok(Some(stray))
}

/// Returns the run of a block without a valid header.
fn headless(spot: SealLocation, evidence: Evidence) -> RowlessRun {
    let run = BlockRun { volume: spot.volume, offset: spot.offset, bytes: ALIGN_BYTES };
    RowlessRun { run, evidence, record: None }
}

/// Inspects a record with a valid header, whose bytes may not have reached the disk.
fn whole(volume: &Volume, spot: SealLocation, description: Description) -> Result<RowlessRun> {
    let extent = description.record.extent;
    let run = BlockRun::of_record(spot, u64::from(extent.length));
    let matching = if run.end() <= volume.bytes() {
        tried_twice(|| matches(volume.file.as_ref(), run.data_offset(), &description))?
    } else {
        Some(false)
    };
    let evidence = match matching {
        Some(true) => Evidence::Whole(extent.length, extent.blake3),
        Some(false) => Evidence::Unfinished,
        None => Evidence::Unreadable,
    };
    Ok(RowlessRun { run, evidence, record: Some(description.record) })
}

/// Returns true if the bytes from `base` on match the description's checksums.
pub(super) fn matches(file: &dyn DiskFile, base: u64, description: &Description) -> Result<bool> {
    let length = u64::from(description.record.extent.length);
    let bytes_max = length.min(WINDOW_BYTES as u64);
    let mut buffer = vec![0; usize::try_from(bytes_max).expect("a window fits in memory")];
    let mut at = 0;
    while at < length {
        let bytes = (length - at).min(bytes_max);
        let piece = &mut buffer[..usize::try_from(bytes).expect("a window fits in memory")];
        file.read_at(piece, base + at)?;
        let first = usize::try_from(at).expect("an extent fits in memory") / BLOCK;
        if !verify(piece, &description.crcs, first) {
            return Ok(false);
        }
        at += bytes;
    }
    Ok(true)
}

/// Part of a volume that is in memory.
struct Window<'a> {
    volume: &'a Volume,
    bytes: Vec<u8>,
    start: u64,
    filled: u64,
    /// End of a range that is read block by block, because the disk can't read all of it.
    blocks_until: u64,
}

impl<'a> Window<'a> {
    fn new(volume: &'a Volume, bytes: usize) -> Self {
        Self { volume, bytes: vec![0; bytes], start: 0, filled: 0, blocks_until: 0 }
    }

    fn has(&self, at: u64) -> bool {
        at >= self.start && at + ALIGN_BYTES <= self.start + self.filled
    }

    /// Returns the 4 KiB at `at`; reads ahead up to `limit`. None if the disk can't read them.
    fn header(&mut self, at: u64, limit: u64) -> Result<Option<&[u8]>> {
        if !self.has(at) {
            let ahead = (limit - at).min(self.bytes.len() as u64);
            if ahead > ALIGN_BYTES && at >= self.blocks_until && !self.read(at, ahead)? {
                self.blocks_until = at + ahead;
            }
            if !self.has(at) && !self.read(at, ALIGN_BYTES.min(ahead))? {
                return Ok(None);
            }
        }
        let from = usize::try_from(at - self.start).expect("a window fits in memory");
        Ok(Some(&self.bytes[from..from + ALIGN]))
    }

    /// Fills the window from `at` on. False if the disk can't read all of it.
    fn read(&mut self, at: u64, bytes: u64) -> Result<bool> {
        (self.start, self.filled) = (at, 0);
        let window = usize::try_from(bytes).expect("a window fits in memory");
        let buffer = &mut self.bytes[..window];
        let is_read = tried_twice(|| self.volume.file.read_at(buffer, at))?.is_some();
        self.filled = if is_read { bytes } else { 0 };
        Ok(is_read)
    }
}

//! Scan of a volume for records without a row.

use martlet_protocol::Result;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::ALIGN_BYTES;

use super::blocks::{BLOCK, verify};
use super::buffer::ALIGN;
use super::classify::Evidence;
use super::record::{self, BlockRun, Header};
use super::seal::{Description, SealLocation};
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

/// Returns up to `limit` strays of a volume, from offset `from` on. Skips the blocks in `used`.
pub(super) fn volume(
    volume: &Volume,
    used: &UsedBlocks,
    from: u64,
    limit: usize,
) -> Result<ScanPage> {
    let mut strays = Vec::new();
    let mut window = Window { volume, bytes: vec![0; WINDOW_BYTES], start: 0, filled: 0 };
    let mut at = from;
    while let Some(unused) = used.next_unused(at) {
        at = unused.start;
        while at < unused.end {
            let Some(mut stray) = stray_at(volume, at, &mut window, unused.end)? else {
                at += ALIGN_BYTES;
                continue;
            };
            if stray.run.end() > unused.end {
                // The record overlaps a used run.
                stray.run.bytes = ALIGN_BYTES;
                stray.evidence = Evidence::Contradiction;
            }
            at = stray.run.end();
            strays.push(stray);
            if strays.len() >= limit {
                return Ok(ScanPage { strays, next: Some(at) });
            }
        }
    }
    Ok(ScanPage { strays, next: None })
}

/// Returns the record whose header lies at `at`, if there is one. Reads ahead up to `limit`.
fn stray_at(
    volume: &Volume,
    at: u64,
    window: &mut Window<'_>,
    limit: u64,
) -> Result<Option<RowlessRun>> {
    let spot = SealLocation { volume: volume.number, offset: at };
    Ok(match record::inspect(&volume.seal, spot, window.header(at, limit)?) {
        Header::Absent => None,
        Header::Rotten => Some(unreadable(spot, Evidence::Contradiction)),
        Header::Torn(head) => {
            let run = BlockRun::of_record(spot, u64::from(head.length));
            Some(RowlessRun { run, ..unreadable(spot, Evidence::Unfinished) })
        }
        Header::Good(description) => Some(whole(volume, spot, description)?),
    })
}

fn unreadable(spot: SealLocation, evidence: Evidence) -> RowlessRun {
    let run = BlockRun { volume: spot.volume, offset: spot.offset, bytes: ALIGN_BYTES };
    RowlessRun { run, evidence, record: None }
}

/// Inspects a record with a valid header, whose bytes may not have reached the disk.
fn whole(volume: &Volume, spot: SealLocation, description: Description) -> Result<RowlessRun> {
    let extent = description.record.extent;
    let run = BlockRun::of_record(spot, u64::from(extent.length));
    let good = run.end() <= volume.bytes()
        && matches(volume.file.as_ref(), run.data_offset(), &description)?;
    let evidence =
        if good { Evidence::Whole(extent.length, extent.blake3) } else { Evidence::Unfinished };
    Ok(RowlessRun { run, evidence, record: Some(description.record) })
}

/// Returns true if the bytes from `base` on match the description's checksums.
pub(super) fn matches(file: &dyn DiskFile, base: u64, description: &Description) -> Result<bool> {
    let length = u64::from(description.record.extent.length);
    let mut buffer = vec![0; WINDOW_BYTES];
    let mut at = 0;
    while at < length {
        let bytes = (length - at).min(WINDOW_BYTES as u64);
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
}

impl Window<'_> {
    /// Returns the 4 KiB at `at`; reads ahead up to `limit`.
    fn header(&mut self, at: u64, limit: u64) -> Result<&[u8]> {
        if at < self.start || at + ALIGN_BYTES > self.start + self.filled {
            self.filled = (limit - at).min(WINDOW_BYTES as u64);
            self.start = at;
            let filled = usize::try_from(self.filled).expect("a window fits in memory");
            self.volume.file.read_at(&mut self.bytes[..filled], at)?;
        }
        let from = usize::try_from(at - self.start).expect("a window fits in memory");
        Ok(&self.bytes[from..from + ALIGN])
    }
}

//! Scan of a volume for records without a row.

use std::collections::BTreeMap;

use martlet_protocol::Result;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::ALIGN_BYTES;

use super::blocks::{BLOCK, verify};
use super::buffer::ALIGN;
use super::classify::Evidence;
use super::record::{self, BlockRun, Header};
use super::seal::{Description, SealLocation};
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

/// Returns the strays of a volume, by offset. `known` has offset and length of every used run;
/// these are skipped.
pub(super) fn volume(volume: &Volume, known: &BTreeMap<u64, u64>) -> Result<Vec<RowlessRun>> {
    let mut strays = Vec::new();
    let mut window = Window { volume, bytes: vec![0; WINDOW_BYTES], start: 0, filled: 0 };
    let (mut at, end) = (ALIGN_BYTES, volume.bytes());
    while at < end {
        if let Some(bytes) = known.get(&at) {
            at += bytes;
            continue;
        }
        let limit = known.range(at..).next().map_or(end, |(offset, _)| *offset);
        let spot = SealLocation { volume: volume.number, offset: at };
        let stray = match record::inspect(&volume.seal, spot, window.header(at, limit)?) {
            Header::Absent => None,
            Header::Rotten => Some(unreadable(spot, Evidence::Contradiction)),
            Header::Torn(head) => {
                let run = BlockRun::of_record(spot, u64::from(head.length));
                Some(RowlessRun { run, ..unreadable(spot, Evidence::Unfinished) })
            }
            Header::Good(description) => Some(whole(volume, spot, description)?),
        };
        match stray {
            None => at += ALIGN_BYTES,
            Some(mut stray) => {
                if stray.run.end() > limit {
                    // The record overlaps a used run.
                    stray.run.bytes = ALIGN_BYTES;
                    stray.evidence = Evidence::Contradiction;
                }
                at = stray.run.end();
                strays.push(stray);
            }
        }
    }
    Ok(strays)
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

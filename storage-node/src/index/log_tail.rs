//! The end of a RocksDB log after a power cut.
//!
//! A record that was being written at a power cut may exist in part; the missing sectors read as
//! zeros. RocksDB treats a record with a wrong checksum as corruption. It can only refuse the whole
//! log or silently skip the rest. So the log is inspected before RocksDB opens it. An end that is
//! torn, and not damaged, is cut off, because its writes were never acknowledged.
//!
//! A log is in blocks of 32 KiB, and a record in fragments, none across two blocks:
//!
//! ```text
//! 0  4  CRC32C of type and payload, rotated right by 15 and added to a constant
//! 4  2  bytes of the payload, little-endian
//! 6  1  type: 1 whole record, 2 first fragment, 3 middle, 4 last
//! 7     payload
//! ```
//!
//! The end is torn if it is a bad fragment, if no record begins after it, and if one of its sectors
//! was never written. Anything else is damage to bytes that were synced.
//!
//! *No record begins after it.* A fragment begins at each block, and where another fragment ends.
//! If the length of the bad fragment is unreliable, a record may begin at any byte of the rest of
//! its block. A client's bytes there may look like a record, as the bytes of a stored `LevelDB` log
//! do. So such a record must have a sequence number above the earlier records. It must also write
//! to a family with a name, which a `LevelDB` log doesn't have.
//!
//! *Never written.* A sector is written whole or not at all. So a sector counts only if it is all
//! zeros, or if all its bytes after the previous record, or before the end of the file, are zeros.
//! Each record ends in [`TRAILER`], so that the last sector of a complete record is never all
//! zeros. A record that one flipped bit explains was written whole, whatever its sectors hold
//! ([`flipped_bit`]).

mod flipped_bit;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

use martlet_protocol::{Error, Result};

const BLOCK: usize = 32 * 1024;
const HEADER: usize = 7;
const SECTOR: usize = 512;
/// Bytes of a batch's sequence number and count, before its first operation.
const BATCH_HEADER: usize = 12;
/// Last log data of every synced batch. RocksDB keeps log data only in the log.
pub(super) const TRAILER: [u8; 3] = [0xa5; 3];
/// The trailer as encoded in a batch: tag of log data, length, bytes.
const TRAILER_IN_BATCH: [u8; 5] = [3, 3, 0xa5, 0xa5, 0xa5];
/// Minimum number of zeros that prove a lost end, where records have no trailer. Fewer zeros may
/// have been written: a sum ends in a count of eight bytes.
const ZEROS_MIN: usize = 16;
/// Number of lost bytes of a checksum up to which its remaining bytes still count as a check.
const CRC_BYTES_LOST_MAX: usize = 3;
/// Maximum rise of sequence numbers from one record to the next. Batches without a log use numbers
/// too.
const SEQUENCE_STEP_MAX: u64 = 1 << 40;

/// State of a log's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogEnd {
    /// Every record is whole, or the end of the file truncates the last record.
    Sound,
    /// The record at this offset was never completely written.
    Torn(usize),
    /// The bytes at this offset were synced, and are damaged.
    Damaged(usize),
}

/// A fragment of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fragment {
    kind: u8,
    end: usize,
}

impl Fragment {
    fn begins_record(self) -> bool {
        !matches!(self.kind, 3 | 4)
    }

    fn ends_record(self) -> bool {
        !matches!(self.kind, 2 | 3)
    }
}

/// Result of reading a fragment at an offset.
enum FragmentRead {
    Good(Fragment),
    Bad,
    /// The file ends before the fragment does.
    CutOff,
}

fn fragment(log: &[u8], at: usize) -> FragmentRead {
    let block_end = at / BLOCK * BLOCK + BLOCK;
    let Some(header) = log.get(at..at + HEADER) else { return FragmentRead::CutOff };
    let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let end = at + HEADER + length;
    if end > block_end {
        return FragmentRead::Bad;
    }
    let Some(covered) = log.get(at + 6..end) else { return FragmentRead::CutOff };
    let crc = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if crc == masked(covered) && header[6] != 0 {
        FragmentRead::Good(Fragment { kind: header[6], end })
    } else {
        FragmentRead::Bad
    }
}

fn masked(covered: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(covered).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns true if the last fragment is intact except for a length beyond the end of the file.
fn whole_but_for_its_length(fragment: &[u8]) -> bool {
    let Some((crc, rest)) = fragment.split_first_chunk::<4>() else { return false };
    rest.len() > 2 && u32::from_le_bytes(*crc) == masked(&rest[2..])
}

/// Offset of the next fragment: an end of a block that is too short for a header holds none.
fn next(at: usize) -> usize {
    let left = BLOCK - at % BLOCK;
    if left < HEADER { at + left } else { at }
}

/// Properties of the log's records so far.
#[derive(Clone, Copy, Debug, Default)]
struct LogProperties {
    /// Minimum sequence number of the next record; none before the first record.
    sequence: Option<u64>,
    /// True if the last record ends in the trailer.
    trailer: bool,
}

impl LogProperties {
    /// Records a good fragment.
    fn record(&mut self, log: &[u8], at: usize, found: Fragment) {
        let payload = &log[at + HEADER..found.end];
        if found.begins_record()
            && let Some((sequence, _)) = batch_header(payload)
        {
            self.sequence = Some(sequence.saturating_add(1));
        }
        if found.ends_record() {
            self.trailer = payload.ends_with(&TRAILER_IN_BATCH);
        }
    }

    /// Returns true if the fragment may begin a record that follows the earlier records.
    fn may_be_followed_by(self, payload: &[u8]) -> bool {
        let Some((sequence, first_op)) = batch_header(payload) else { return false };
        // The index never uses the unnamed family: its tags are puts, merges and deletes.
        let named = !matches!(first_op, Some(0..=2));
        let rises = self.sequence.is_none_or(|least| {
            (least..least.saturating_add(SEQUENCE_STEP_MAX)).contains(&sequence)
        });
        named && rises
    }
}

/// Returns the sequence number of a batch, and the tag of its first operation.
fn batch_header(payload: &[u8]) -> Option<(u64, Option<u8>)> {
    let sequence = u64::from_le_bytes(*payload.first_chunk()?);
    (payload.len() >= BATCH_HEADER).then(|| (sequence, payload.get(BATCH_HEADER).copied()))
}

/// Kind of a log, which decides the format of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// A write-ahead log: its records are batches.
    Writes,
    /// A manifest: its records are version edits.
    Manifest,
}

fn tail(log: &[u8], kind: Log) -> LogEnd {
    let (mut at, mut record, mut seen) = (0, 0, LogProperties::default());
    loop {
        at = next(at);
        if at >= log.len() {
            return LogEnd::Sound;
        }
        let follower = || LaterRecords { log, kind, seen }.any_after(at);
        match fragment(log, at) {
            FragmentRead::CutOff if log.len() - at < HEADER => return LogEnd::Sound,
            FragmentRead::CutOff if whole_but_for_its_length(&log[at..]) => {
                return LogEnd::Damaged(at);
            }
            FragmentRead::CutOff if !zeros(&log[at..]) && !follower() => return LogEnd::Sound,
            FragmentRead::Good(found) => {
                if found.begins_record() {
                    record = at;
                }
                seen.record(log, at, found);
                at = found.end;
                if found.ends_record() {
                    record = at;
                }
            }
            FragmentRead::CutOff | FragmentRead::Bad => {
                let torn = never_written(log, at, seen.trailer)
                    && !follower()
                    && !(kind == Log::Writes && flipped_bit::explains(log, at));
                return if torn { LogEnd::Torn(record) } else { LogEnd::Damaged(at) };
            }
        }
    }
}

/// Returns true if a sector was never written, of the sectors from a fragment at `from` on.
fn never_written(log: &[u8], from: usize, trailer: bool) -> bool {
    let first = (from / SECTOR * SECTOR + SECTOR).min(log.len());
    if zeros(&log[from..]) {
        return true;
    }
    if !from.is_multiple_of(SECTOR) && first < log.len() && zeros(&log[from..first]) {
        // If a header is lost only in part, its checksum may itself begin with zeros.
        let lost = first - from;
        if lost > CRC_BYTES_LOST_MAX || whole_but_for(log, from, lost) {
            return true;
        }
    }
    let mut sectors = log[from.next_multiple_of(SECTOR).min(log.len())..].chunks(SECTOR);
    sectors.any(|sector| {
        let whole = sector.len() == SECTOR || trailer || sector.len() >= ZEROS_MIN;
        whole && zeros(sector)
    })
}

/// Returns true if a fragment is intact except for the first `lost` bytes of its checksum.
fn whole_but_for(log: &[u8], at: usize, lost: usize) -> bool {
    let length = usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
    let covered = log.get(at + 6..at + HEADER + length);
    covered.is_some_and(|covered| masked(covered).to_le_bytes()[lost..] == log[at + lost..at + 4])
}

fn zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Search for records after a bad fragment.
#[derive(Clone, Copy)]
struct LaterRecords<'a> {
    log: &'a [u8],
    kind: Log,
    seen: LogProperties,
}

impl LaterRecords<'_> {
    /// Returns true if a record begins after the bad fragment at `bad`.
    fn any_after(self, bad: usize) -> bool {
        let mut at = bad;
        while at < self.log.len() {
            // A fragment begins here, good or bad.
            let block_end = at / BLOCK * BLOCK + BLOCK;
            let (stopped, begins) = self.find_record_start(at);
            if begins || (stopped < block_end && self.any_in_the_rest(stopped)) {
                return true;
            }
            at = block_end;
        }
        false
    }

    /// Follows the fragments within a block. Returns the end offset, and true if a record began on
    /// the way.
    fn find_record_start(self, mut at: usize) -> (usize, bool) {
        let block_end = at / BLOCK * BLOCK + BLOCK;
        while at < block_end.min(self.log.len()) && next(at) == at {
            match fragment(self.log, at) {
                FragmentRead::Good(found) if found.begins_record() => return (at, true),
                FragmentRead::Good(found) => at = found.end,
                FragmentRead::Bad | FragmentRead::CutOff => break,
            }
        }
        (at, false)
    }

    /// Returns true if a record begins after the bad fragment at `bad`, in its block.
    fn any_in_the_rest(self, bad: usize) -> bool {
        let log = self.log;
        let block_end = (bad / BLOCK * BLOCK + BLOCK).min(log.len());
        if self.fills_the_rest(bad, block_end) {
            return false;
        }
        (bad + 1..block_end.saturating_sub(HEADER)).any(|at| {
            // The type alone excludes most offsets.
            if !matches!(log[at + 6], 1 | 2) {
                return false;
            }
            let FragmentRead::Good(found) = fragment(log, at) else { return false };
            let payload = &log[at + HEADER..found.end];
            // The end of a block may be too short for the sequence number.
            let too_short = payload.len() < BATCH_HEADER && found.end == block_end;
            self.kind == Log::Manifest || too_short || self.seen.may_be_followed_by(payload)
        })
    }

    /// Returns true if the header of a bad fragment exists and claims the rest of its block or log.
    /// No record begins within the payload of another record.
    fn fills_the_rest(self, bad: usize, block_end: usize) -> bool {
        let Some(header) = self.log.get(bad..bad + HEADER) else { return true };
        let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
        (1..=4).contains(&header[6]) && bad + HEADER + length == block_end
    }
}

/// Cuts off the torn ends of the logs in `folder` that were being written at a power cut: the
/// newest write-ahead log, and the manifest. Returns an error for a damaged log.
pub(super) fn repair(folder: &Path) -> Result<()> {
    let unreadable = |error| {
        Error::unavailable(format!("{} can't be read", folder.display())).with_source(error)
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut logs = Vec::new();
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        logs.extend(
            number.and_then(|number| number.parse::<u64>().ok()).map(|n| (n, name.clone())),
        );
    }
    logs.sort();
    let written: Vec<_> = logs.into_iter().map(|(_, name)| folder.join(name)).collect();
    let last = written.iter().rposition(|log| log.metadata().is_ok_and(|data| data.len() > 0));
    for (at, log) in written.iter().enumerate() {
        repair_log(log, Log::Writes, Some(at) == last)?;
    }
    match std::fs::read_to_string(folder.join("CURRENT")) {
        Ok(manifest) => repair_log(&folder.join(manifest.trim_end()), Log::Manifest, true),
        Err(_) => Ok(()),
    }
}

/// Cuts off the torn end of a log, if `may_be_torn`.
fn repair_log(path: &Path, kind: Log, may_be_torn: bool) -> Result<()> {
    let failed = |error| {
        Error::unavailable(format!("{} can't be inspected", path.display())).with_source(error)
    };
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let mut log = Vec::new();
    file.read_to_end(&mut log).map_err(failed)?;
    match tail(&log, kind) {
        LogEnd::Sound => Ok(()),
        LogEnd::Torn(at) if may_be_torn => {
            let (path, bytes) = (path.display(), log.len() - at);
            tracing::warn!(%path, at, bytes, "truncating an incomplete record at the end of a log");
            let file = OpenOptions::new().write(true).open(path.to_string()).map_err(failed)?;
            file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(failed)
        }
        LogEnd::Torn(at) | LogEnd::Damaged(at) => Err(Error::corrupt(format!(
            "the index does not open: its log {} is damaged at byte {at}, and skipping the damage \
             would lose acknowledged writes",
            path.display()
        ))),
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
pub(super) mod tests;

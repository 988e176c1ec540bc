//! The end of a RocksDB log after a power cut.
//!
//! A record that was being written when the power went may be there in part: what did not come to
//! the disk reads as zeros. RocksDB takes any record that its checksum contradicts for corruption,
//! and can only refuse the whole log or skip over the rest of it silently. So the log is looked at
//! before RocksDB opens it, and an end that is torn and nothing worse is cut off, for nobody was told
//! that it was written.
//!
//! A log is in blocks of 32 KiB, and a record in fragments, none across two blocks:
//!
//! ```text
//! 0  4  CRC32C of what follows the length, rotated right by 15 and added to a constant
//! 4  2  bytes of the payload, little-endian
//! 6  1  type: 1 whole record, 2 first fragment, 3 middle, 4 last
//! 7     payload
//! ```
//!
//! The end is torn if it is a bad fragment, if no record begins behind it, and if a sector of it was
//! never written. Anything else is damage to bytes that were synced.
//!
//! *No record begins behind it.* A fragment begins at each block, and where another one ends. Only
//! where the bad fragment's own length can't be relied on may a record begin at any byte of the rest
//! of its block. There the bytes of a client may look like a record, as those of a stored `LevelDB` log
//! do. So a record must then have a sequence number above those before it, and write to a family that
//! has a name, which a `LevelDB` log has not.
//!
//! *Never written.* A sector is written whole or not at all. So only a sector that is all zeros counts,
//! or all of it that lies behind the record before, or before the end of the file. Each record ends in
//! [`TRAILER`], so that the last sector of one that was written is never all zeros.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

use martlet_protocol::{Error, Result};

const BLOCK: usize = 32 * 1024;
const HEADER: usize = 7;
const SECTOR: usize = 512;
/// Bytes of a record's number and count, before its first operation.
const BATCH_HEADER: usize = 12;
/// What every synced batch carries as its last log data, which RocksDB keeps in the log alone.
pub(super) const TRAILER: [u8; 3] = [0xa5; 3];
/// The trailer as a batch holds it: the tag of log data, its length, and the bytes.
const TRAILER_IN_BATCH: [u8; 5] = [3, 3, 0xa5, 0xa5, 0xa5];
/// Fewer zeros than this at the end of a record may be what was written, where records have no trailer:
/// a sum ends in a count of eight bytes.
const ZEROS_MIN: usize = 16;
/// A checksum whose lost bytes are this many or fewer is still a checksum.
const CRC_BYTES_LOST_MAX: usize = 3;
/// How far sequence numbers rise at most from one record to the next. Batches without a log take
/// some, too.
const SEQUENCE_STEP_MAX: u64 = 1 << 40;

/// What the end of a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// Every record is whole, or the end of the file cuts the last one off.
    Sound,
    /// What begins here was never written to its end.
    Torn(usize),
    /// What lies here was synced, and isn't what was written.
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

/// What is at a place where a fragment could be.
enum At {
    Good(Fragment),
    Bad,
    /// The file ends before the fragment does.
    CutOff,
}

fn fragment(log: &[u8], at: usize) -> At {
    let block_end = at / BLOCK * BLOCK + BLOCK;
    let Some(header) = log.get(at..at + HEADER) else { return At::CutOff };
    let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let end = at + HEADER + length;
    if end > block_end {
        return At::Bad;
    }
    let Some(covered) = log.get(at + 6..end) else { return At::CutOff };
    let crc = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if crc == masked(covered) && header[6] != 0 {
        At::Good(Fragment { kind: header[6], end })
    } else {
        At::Bad
    }
}

fn masked(covered: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(covered).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Whether the last fragment only says that it is longer than the file.
fn whole_but_for_its_length(fragment: &[u8]) -> bool {
    let Some((crc, rest)) = fragment.split_first_chunk::<4>() else { return false };
    rest.len() > 2 && u32::from_le_bytes(*crc) == masked(&rest[2..])
}

/// Where the next fragment begins: too short an end of a block holds none.
fn next(at: usize) -> usize {
    let left = BLOCK - at % BLOCK;
    if left < HEADER { at + left } else { at }
}

/// What the log has shown of its records so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The lowest sequence number that the next record may have; none before the first record.
    sequence: Option<u64>,
    /// True when the last record ends in the trailer.
    trailer: bool,
}

impl Seen {
    /// Notes a good fragment.
    fn note(&mut self, log: &[u8], at: usize, found: Fragment) {
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

    /// Whether the fragment may be the beginning of a record that follows those that were seen.
    fn may_be_followed_by(self, payload: &[u8]) -> bool {
        let Some((sequence, first_op)) = batch_header(payload) else { return false };
        // The index has no use for the family without a name: puts, merges and deletes there.
        let named = !matches!(first_op, Some(0..=2));
        let rises = self.sequence.is_none_or(|least| {
            (least..least.saturating_add(SEQUENCE_STEP_MAX)).contains(&sequence)
        });
        named && rises
    }
}

/// The sequence number of a batch, and the tag of its first operation.
fn batch_header(payload: &[u8]) -> Option<(u64, Option<u8>)> {
    let sequence = u64::from_le_bytes(*payload.first_chunk()?);
    (payload.len() >= BATCH_HEADER).then(|| (sequence, payload.get(BATCH_HEADER).copied()))
}

/// What a log is for: it decides what its records look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// A write-ahead log, of batches.
    Writes,
    /// A manifest, of edits of a version.
    Manifest,
}

fn tail(log: &[u8], kind: Log) -> Tail {
    let (mut at, mut record, mut seen) = (0, 0, Seen::default());
    loop {
        at = next(at);
        if at >= log.len() {
            return Tail::Sound;
        }
        let follower = || Followers { log, kind, seen }.any_after(at);
        match fragment(log, at) {
            At::CutOff if log.len() - at < HEADER => return Tail::Sound,
            At::CutOff if whole_but_for_its_length(&log[at..]) => return Tail::Damaged(at),
            At::CutOff if !zeros(&log[at..]) && !follower() => return Tail::Sound,
            At::Good(found) => {
                if found.begins_record() {
                    record = at;
                }
                seen.note(log, at, found);
                at = found.end;
                if found.ends_record() {
                    record = at;
                }
            }
            At::CutOff | At::Bad => {
                let torn = never_written(log, at, seen.trailer) && !follower();
                return if torn { Tail::Torn(record) } else { Tail::Damaged(at) };
            }
        }
    }
}

/// Whether a sector was never written, of those that a fragment at `from` and what follows lie in.
fn never_written(log: &[u8], from: usize, trailer: bool) -> bool {
    let first = (from / SECTOR * SECTOR + SECTOR).min(log.len());
    if zeros(&log[from..]) {
        return true;
    }
    if !from.is_multiple_of(SECTOR) && first < log.len() && zeros(&log[from..first]) {
        // Of a header that is lost only in part, the checksum may begin with zeros of its own.
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

/// Returns true when a fragment is right but for the first `lost` bytes of its checksum.
fn whole_but_for(log: &[u8], at: usize, lost: usize) -> bool {
    let length = usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
    let covered = log.get(at + 6..at + HEADER + length);
    covered.is_some_and(|covered| masked(covered).to_le_bytes()[lost..] == log[at + lost..at + 4])
}

fn zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The search for records behind a bad fragment.
#[derive(Clone, Copy)]
struct Followers<'a> {
    log: &'a [u8],
    kind: Log,
    seen: Seen,
}

impl Followers<'_> {
    /// Returns true when a record begins behind the bad fragment at `bad`.
    fn any_after(self, bad: usize) -> bool {
        let mut at = bad;
        while at < self.log.len() {
            // Here a fragment begins for certain, good or bad.
            let block_end = at / BLOCK * BLOCK + BLOCK;
            let (stopped, begins) = self.follow(at);
            if begins || (stopped < block_end && self.any_in_the_rest(stopped)) {
                return true;
            }
            at = block_end;
        }
        false
    }

    /// Goes on from fragment to fragment within a block: where it ends, or meets a bad one, and
    /// whether a record began on the way.
    fn follow(self, mut at: usize) -> (usize, bool) {
        let block_end = at / BLOCK * BLOCK + BLOCK;
        while at < block_end.min(self.log.len()) && next(at) == at {
            match fragment(self.log, at) {
                At::Good(found) if found.begins_record() => return (at, true),
                At::Good(found) => at = found.end,
                At::Bad | At::CutOff => break,
            }
        }
        (at, false)
    }

    /// Returns true when a record begins behind the bad fragment at `bad`, in its block.
    fn any_in_the_rest(self, bad: usize) -> bool {
        let log = self.log;
        let block_end = (bad / BLOCK * BLOCK + BLOCK).min(log.len());
        if self.fills_the_rest(bad, block_end) {
            return false;
        }
        (bad + 1..block_end.saturating_sub(HEADER)).any(|at| {
            // Most places are told apart by the type alone.
            if !matches!(log[at + 6], 1 | 2) {
                return false;
            }
            let At::Good(found) = fragment(log, at) else { return false };
            let payload = &log[at + HEADER..found.end];
            // The end of a block may leave no room for the number.
            let too_short = payload.len() < BATCH_HEADER && found.end == block_end;
            self.kind == Log::Manifest || too_short || self.seen.may_be_followed_by(payload)
        })
    }

    /// Whether the header of a bad fragment is there and claims all of the rest of its block, or of
    /// the log. No record begins within the payload of another.
    fn fills_the_rest(self, bad: usize, block_end: usize) -> bool {
        let Some(header) = self.log.get(bad..bad + HEADER) else { return true };
        let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
        (1..=4).contains(&header[6]) && bad + HEADER + length == block_end
    }
}

/// Cuts off the torn ends of the logs in `folder` that were being written when the power went: the
/// newest write-ahead log, and the manifest. Refuses a log that is damaged.
pub(super) fn mend(folder: &Path) -> Result<()> {
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
        mend_log(log, Log::Writes, Some(at) == last)?;
    }
    match std::fs::read_to_string(folder.join("CURRENT")) {
        Ok(manifest) => mend_log(&folder.join(manifest.trim_end()), Log::Manifest, true),
        Err(_) => Ok(()),
    }
}

/// Cuts off a torn end, if this is a log whose end may be.
fn mend_log(path: &Path, kind: Log, may_be_torn: bool) -> Result<()> {
    let failed = |error| {
        Error::unavailable(format!("{} can't be looked at", path.display())).with_source(error)
    };
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let mut log = Vec::new();
    file.read_to_end(&mut log).map_err(failed)?;
    match tail(&log, kind) {
        Tail::Sound => Ok(()),
        Tail::Torn(at) if may_be_torn => {
            let (path, bytes) = (path.display(), log.len() - at);
            tracing::warn!(%path, at, bytes, "cutting off what was not written to its end");
            let file = OpenOptions::new().write(true).open(path.to_string()).map_err(failed)?;
            file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(failed)
        }
        Tail::Torn(at) | Tail::Damaged(at) => Err(Error::corrupt(format!(
            "the index does not open: its log {} is damaged at byte {at}, and going on would skip \
             what was acknowledged",
            path.display()
        ))),
    }
}

#[cfg(test)]
pub(super) mod tests;

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

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

use martlet_protocol::{Error, Result};

const BLOCK: usize = 32 * 1024;
const HEADER: usize = 7;
const SECTOR: usize = 512;
/// Fewer zeros than a header has prove nothing.
const ZEROS_MIN: usize = HEADER;

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

fn tail(log: &[u8]) -> Tail {
    let (mut at, mut record) = (0, 0);
    loop {
        at = next(at);
        if at >= log.len() {
            return Tail::Sound;
        }
        match fragment(log, at) {
            At::CutOff if whole_but_for_its_length(&log[at..]) => return Tail::Damaged(at),
            At::CutOff if !zeros(&log[at..]) && !a_record_begins_after(log, at) => {
                return Tail::Sound;
            }
            At::Good(found) => {
                if found.begins_record() {
                    record = at;
                }
                at = found.end;
                if found.ends_record() {
                    record = at;
                }
            }
            At::CutOff | At::Bad => {
                let torn = never_written(log, at) && !a_record_begins_after(log, at);
                return if torn { Tail::Torn(record) } else { Tail::Damaged(at) };
            }
        }
    }
}

/// Whether a sector from `from` on is all zeros.
fn never_written(log: &[u8], from: usize) -> bool {
    let mut at = from;
    while at < log.len() {
        let end = (at / SECTOR * SECTOR + SECTOR).min(log.len());
        if end - at >= ZEROS_MIN && zeros(&log[at..end]) {
            return true;
        }
        at = end;
    }
    false
}

fn zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether a whole record, or the first fragment of one, lies anywhere behind a bad fragment.
fn a_record_begins_after(log: &[u8], bad: usize) -> bool {
    (bad + 1..log.len().saturating_sub(HEADER)).any(|at| {
        // Most places are told apart by the type alone.
        matches!(log[at + 6], 1 | 2) && matches!(fragment(log, at), At::Good(_))
    })
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
        mend_log(log, Some(at) == last)?;
    }
    match std::fs::read_to_string(folder.join("CURRENT")) {
        Ok(manifest) => mend_log(&folder.join(manifest.trim_end()), true),
        Err(_) => Ok(()),
    }
}

/// Cuts off a torn end, if this is a log whose end may be.
fn mend_log(path: &Path, may_be_torn: bool) -> Result<()> {
    let failed = |error| {
        Error::unavailable(format!("{} can't be looked at", path.display())).with_source(error)
    };
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let mut log = Vec::new();
    file.read_to_end(&mut log).map_err(failed)?;
    match tail(&log) {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A log of these records, as RocksDB writes it, and where each of them ends.
    fn log(records: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut log, mut ends) = (Vec::new(), Vec::new());
        for record in records {
            let mut rest = &record[..];
            let mut first = true;
            loop {
                log.resize(next(log.len()), 0);
                let room = BLOCK - log.len() % BLOCK - HEADER;
                let (piece, left) = rest.split_at(rest.len().min(room));
                let kind = match (first, left.is_empty()) {
                    (true, true) => 1,
                    (true, false) => 2,
                    (false, false) => 3,
                    (false, true) => 4,
                };
                let covered = [&[kind], piece].concat();
                let crc =
                    crc_fast::crc32_iscsi(&covered).rotate_right(15).wrapping_add(0xa282_ead8);
                log.extend_from_slice(&crc.to_le_bytes());
                log.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_le_bytes());
                log.extend_from_slice(&covered);
                (rest, first) = (left, false);
                if rest.is_empty() {
                    break;
                }
            }
            ends.push(log.len());
        }
        (log, ends)
    }

    fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let record = (1..100_000_usize, 1..=255_u8).prop_map(|(length, byte)| vec![byte; length]);
        proptest::collection::vec(record, 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_log_that_ends_anywhere_is_sound(records in records(), cut in 0.0..1.0_f64) {
            let (log, _) = log(&records);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in it")]
            let cut = (log.len() as f64 * cut) as usize;
            prop_assert_eq!(tail(&log), Tail::Sound);
            prop_assert_eq!(tail(&log[..cut]), Tail::Sound);
        }

        #[test]
        fn lost_sectors_of_the_last_record_are_a_torn_end(
            records in records(),
            lost in proptest::collection::vec(any::<proptest::sample::Index>(), 1..9),
        ) {
            let (mut log, ends) = log(&records);
            let start = next(if ends.len() > 1 { ends[ends.len() - 2] } else { 0 });
            let sectors: Vec<_> = (start / SECTOR..log.len().div_ceil(SECTOR)).collect();
            let mut bytes_lost = 0;
            for index in lost {
                let sector = *index.get(&sectors);
                let from = (sector * SECTOR).max(start);
                let to = (sector * SECTOR + SECTOR).min(log.len());
                log[from..to].fill(0);
                bytes_lost = bytes_lost.max(to - from);
            }
            match tail(&log) {
                Tail::Torn(at) => prop_assert_eq!(next(at), start),
                other => prop_assert!(bytes_lost < ZEROS_MIN, "{other:?}"),
            }
        }

        #[test]
        fn a_flipped_byte_is_damage_wherever_it_is(
            records in records(),
            at in any::<proptest::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let (mut log, _) = log(&records);
            let at = at.index(log.len());
            log[at] ^= 1 << bit;
            // What is flipped in the unused end of a block is nobody's.
            if tail(&log) == Tail::Sound {
                let unused = at % BLOCK + HEADER > BLOCK;
                prop_assert!(unused, "byte {} of {} was skipped over", at, log.len());
            } else {
                prop_assert!(matches!(tail(&log), Tail::Damaged(_)));
            }
        }
    }
}

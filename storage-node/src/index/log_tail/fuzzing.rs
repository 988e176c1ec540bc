//! Logs for tests and the fuzz target, encoded like RocksDB's, and the properties of their ends.

use martlet_protocol::testing::fuzz_target::InputReader;

use super::{
    BLOCK, CRC_BYTES_LOST_MAX, FragmentRead, HEADER, Log, LogEnd, SECTOR, TRAILER_IN_BATCH,
    ZEROS_MIN, fragment, masked, next, tail, zeros,
};

/// Most whole records of a log.
const RECORDS_MAX: usize = 4;

/// Encodes a log of these records like RocksDB; returns the end of each record.
pub(super) fn log(records: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
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
            let length = u16::try_from(piece.len()).expect("a block is shorter than 64 KiB");
            log.extend_from_slice(&masked(&covered).to_le_bytes());
            log.extend_from_slice(&length.to_le_bytes());
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

/// Encodes a batch like RocksDB does in its log: one put into a named family.
pub(super) fn batch(sequence: u64, value: &[u8], trailer: bool) -> Vec<u8> {
    let mut batch = [&sequence.to_le_bytes()[..], &1_u32.to_le_bytes(), &[5, 2, 1, b'k']].concat();
    let mut length = value.len();
    while length >= 128 {
        batch.push(u8::try_from(length % 128).expect("a remainder of 128 is small") | 128);
        length /= 128;
    }
    batch.push(u8::try_from(length).expect("the loop ends below 128"));
    batch.extend_from_slice(value);
    if trailer {
        batch.extend_from_slice(&TRAILER_IN_BATCH);
    }
    batch
}

/// Returns the records that RocksDB reads from a log: the whole ones before the first bad fragment.
fn records(log: &[u8]) -> Vec<Vec<u8>> {
    let (mut found, mut open, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        at = next(at);
        if at >= log.len() {
            return found;
        }
        let FragmentRead::Good(fragment) = fragment(log, at) else { return found };
        if fragment.begins_record() {
            open.clear();
        }
        open.extend_from_slice(&log[at + HEADER..fragment.end]);
        if fragment.ends_record() {
            found.push(std::mem::take(&mut open));
        }
        at = fragment.end;
    }
}

/// Returns the records after a recovery; none if the log is refused as damaged.
fn recovered(log: &[u8]) -> Option<Vec<Vec<u8>>> {
    match tail(log, Log::Writes) {
        LogEnd::Sound => Some(records(log)),
        LogEnd::Torn(at) => Some(records(&log[..at])),
        LogEnd::Damaged(_) => None,
    }
}

/// Batches with values of one byte each, of lengths that the input chooses.
fn batches(reader: &mut InputReader<'_>, trailer: bool) -> Vec<Vec<u8>> {
    let count = usize::from(reader.byte()) % (RECORDS_MAX + 1);
    let mut sequence = 1000;
    let mut batch_of = |_| {
        let (length, byte) = (usize::from(reader.number()), reader.byte());
        sequence += 3;
        batch(sequence, &vec![byte; length], trailer)
    };
    (0..count).map(&mut batch_of).collect()
}

/// Any bytes are judged.
pub(crate) fn any_bytes(bytes: &[u8]) -> bool {
    let [writes, _] = [Log::Writes, Log::Manifest].map(|kind| tail(bytes, kind));
    writes == LogEnd::Sound
}

/// Any bytes after whole records: those records are recovered, or the log is refused.
pub(crate) fn any_tail(mut reader: InputReader<'_>) -> bool {
    let trailer = reader.byte() % 2 == 1;
    let whole = batches(&mut reader, trailer);
    let (mut bytes, _) = log(&whole);
    bytes.extend_from_slice(reader.rest());
    let found = recovered(&bytes);
    let Some(found) = found else { return false };
    assert!(found.starts_with(&whole), "a record before the damage is lost");
    true
}

/// A power cut within the last record: the records before are recovered and nothing else.
pub(crate) fn power_cut(mut reader: InputReader<'_>) -> bool {
    let trailer = reader.byte() % 2 == 1;
    let cut = usize::from(reader.number());
    let mut all = batches(&mut reader, trailer);
    let planted = reader.block();
    let filler = vec![9; usize::from(reader.number())];
    let last = batch(2000, &[&filler[..], planted].concat(), trailer);
    all.push(last);
    let (whole, ends) = log(&all);
    let start = next(if ends.len() > 1 { ends[ends.len() - 2] } else { 0 });
    let mut bytes = whole.clone();
    let sectors = bytes.len().div_ceil(SECTOR) - start / SECTOR;
    let mut lost_max = 0;
    for number in reader.rest() {
        let sector = start / SECTOR + usize::from(*number) % sectors;
        let end = (sector * SECTOR + SECTOR).min(bytes.len());
        let from = (sector * SECTOR).max(start);
        bytes[from..end].fill(0);
        lost_max = lost_max.max(end - from);
    }
    let is_cut = cut > 0;
    bytes.truncate(bytes.len().saturating_sub(cut).max(start));
    let before = &all[..all.len() - 1];
    match recovered(&bytes) {
        Some(found) if bytes == whole => assert_eq!(found, all),
        Some(found) => assert_eq!(found, before, "a record of which a part is lost came back"),
        // Without an earlier record with its trailer, the last few bytes prove nothing. Planted
        // bytes may be a record that follows.
        None => {
            let is_unproven = lost_max < ZEROS_MIN && (!trailer || before.is_empty());
            assert!(is_cut || !planted.is_empty() || is_unproven, "a torn end is refused");
        }
    }
    true
}

/// A flipped bit of a log that was synced: the log is refused.
///
/// Two cases are not covered, and may pass as a torn end, because written zeros can't be told from a
/// sector that was never written. An aligned sector of the flipped record, or behind it, consists of
/// zeros. Or the flip makes a zero of one of the last three bytes of a sector, with which a checksum
/// begins.
pub(crate) fn flipped_bit(mut reader: InputReader<'_>) -> bool {
    let (at, bit) = (usize::from(reader.number()), reader.byte() % 8);
    let at = at + (usize::from(reader.byte()) << 16);
    let all = batches(&mut reader, true);
    let (mut bytes, ends) = log(&all);
    if bytes.is_empty() {
        return false;
    }
    let at = at % bytes.len();
    bytes[at] ^= 1 << bit;
    let record = ends.iter().rposition(|end| *end <= at);
    let start = record.map_or(0, |record| ends[record]);
    let may_be_checksum = at % SECTOR >= SECTOR - CRC_BYTES_LOST_MAX && bytes[at] == 0;
    if may_be_checksum || has_zero_sector(&bytes[start / SECTOR * SECTOR..]) {
        return false;
    }
    let is_unused = at % BLOCK + HEADER > BLOCK;
    match tail(&bytes, Log::Writes) {
        LogEnd::Damaged(_) => {}
        LogEnd::Sound if is_unused => assert_eq!(records(&bytes), all),
        found => panic!("byte {at} of {} changed, and the log is {found:?}", bytes.len()),
    }
    true
}

/// Returns true if a sector is all zeros. `bytes` begin at the start of a sector.
fn has_zero_sector(bytes: &[u8]) -> bool {
    bytes.chunks_exact(SECTOR).any(zeros)
}

//! Torn logs, and damaged logs.

use proptest::prelude::*;

use super::fuzzing::{batch, log};
use super::*;

fn numbered(values: &[Vec<u8>], trailer: bool) -> Vec<Vec<u8>> {
    (1000..).zip(values).map(|(number, value)| batch(number * 3, value, trailer)).collect()
}

/// Generates values that end in zeros, as the count of a sum does.
fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let value = (1..60_000_usize, 1..=255_u8, 0..8_usize)
        .prop_map(|(length, byte, zeros)| [vec![byte; length], vec![0; zeros]].concat());
    proptest::collection::vec(value, 1..6)
}

/// Returns a log as a browser stores it: batches whose families have no names.
pub(in crate::index) fn leveldb_log(records: u64) -> Vec<u8> {
    let record = |number: u64| {
        [&(number + 1).to_le_bytes()[..], &1_u32.to_le_bytes(), &[1, 3], b"key", &[4], b"seen"]
            .concat()
    };
    log(&(0..records).map(record).collect::<Vec<_>>()).0
}

/// Zeroes the bytes of a sector from `start` on; returns the number of bytes lost.
fn lose(log: &mut [u8], start: usize, sector: usize) -> usize {
    let (from, to) = ((sector * SECTOR).max(start), (sector * SECTOR + SECTOR).min(log.len()));
    log[from..to].fill(0);
    to - from
}

fn last_start(ends: &[usize]) -> usize {
    next(if ends.len() > 1 { ends[ends.len() - 2] } else { 0 })
}

#[test]
fn a_stored_log_in_a_torn_record_is_no_record_of_the_index() {
    let planted = leveldb_log(150);
    for before in 1..40_usize {
        let values =
            [vec![vec![7; before * 97]], vec![[vec![8; 600], planted.clone()].concat()]].concat();
        let (whole, ends) = log(&numbered(&values, true));
        let start = last_start(&ends);
        for sector in start / SECTOR..whole.len().div_ceil(SECTOR) {
            let mut log = whole.clone();
            lose(&mut log, start, sector);
            assert_eq!(tail(&log, Log::Writes), LogEnd::Torn(start), "without sector {sector}");
        }
    }
}

#[test]
fn zeros_that_were_written_do_not_pass_for_a_sector_that_was_not() {
    // The last sector holds one to seven bytes of the count that ends a record.
    for zeros in 1..=7_usize {
        for trailer in [false, true] {
            let trailer_bytes = if trailer { TRAILER_IN_BATCH.len() } else { 0 };
            let overhead = HEADER + batch(0, &[0; 1000], false).len() - 1000;
            let length = 2 * SECTOR - overhead + zeros;
            let value = [vec![9; length - 8], vec![1, 0, 0, 0, 0, 0, 0, 0]].concat();
            let (mut log, _) = log(&[batch(5, &value, trailer)]);
            assert_eq!(log.len(), 2 * SECTOR + zeros + trailer_bytes);
            log[700] ^= 4;
            assert_eq!(tail(&log, Log::Writes), LogEnd::Damaged(0), "{zeros} zeros, {trailer}");
        }
    }
}

#[test]
fn a_record_that_fills_its_block_is_found_behind_one_that_does() {
    let filling = |blocks: usize, sequence: u64| {
        let mut record = batch(sequence, &[1; 100], false);
        record.resize(blocks * (BLOCK - HEADER), 1);
        record
    };
    for blocks in 1..4 {
        let (whole, ends) = log(&[filling(blocks, 5), filling(1, 6)]);
        assert_eq!(ends, [blocks * BLOCK, (blocks + 1) * BLOCK]);
        for sector in [0, 3, blocks * BLOCK / SECTOR - 1] {
            let mut log = whole.clone();
            lose(&mut log, 0, sector);
            let found = tail(&log, Log::Writes);
            assert!(matches!(found, LogEnd::Damaged(_)), "{blocks} blocks: {found:?}");
        }
    }
}

#[test]
fn every_kind_of_record_behind_a_lost_header_is_found() {
    for first in (0..40_usize).map(|step| 100 + 61 * step) {
        let values = [vec![1; first], vec![2; 300], vec![3; 20], vec![0; 2000]];
        let (whole, ends) = log(&numbered(&values, true));
        // A sector of the second record is lost, with or without its header.
        for sector in ends[0] / SECTOR..=(ends[1] - 1) / SECTOR {
            if sector * SECTOR + SECTOR > ends[2] {
                // No following record stays whole.
                continue;
            }
            let mut log = whole.clone();
            lose(&mut log, ends[0], sector);
            let found = tail(&log, Log::Writes);
            assert!(matches!(found, LogEnd::Damaged(_)), "sector {sector}: {found:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_that_ends_anywhere_is_sound(
        values in values(),
        trailer in any::<bool>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let (log, _) = log(&numbered(&values, trailer));
        prop_assert_eq!(tail(&log, Log::Writes), LogEnd::Sound);
        let cut = cut.index(log.len());
        prop_assert_eq!(tail(&log[..cut], Log::Writes), LogEnd::Sound);
    }

    #[test]
    fn lost_sectors_of_the_last_record_are_a_torn_end(
        values in values(),
        planted in 0..200_u64,
        trailer in any::<bool>(),
        lost in proptest::collection::vec(any::<proptest::sample::Index>(), 1..9),
    ) {
        let mut values = values;
        values.last_mut().unwrap().extend(leveldb_log(planted));
        let (mut log, ends) = log(&numbered(&values, trailer));
        let start = last_start(&ends);
        let sectors: Vec<_> = (start / SECTOR..log.len().div_ceil(SECTOR)).collect();
        let mut bytes_lost = 0;
        for index in lost {
            bytes_lost = bytes_lost.max(lose(&mut log, start, *index.get(&sectors)));
        }
        match tail(&log, Log::Writes) {
            LogEnd::Torn(at) => prop_assert_eq!(next(at), start),
            // Without an earlier record with its trailer, the last few bytes prove nothing.
            other => prop_assert!(
                bytes_lost < ZEROS_MIN && (!trailer || ends.len() == 1),
                "{other:?}"
            ),
        }
    }

    #[test]
    fn a_lost_sector_before_the_last_record_is_damage(
        values in values(),
        trailer in any::<bool>(),
        sector in any::<proptest::sample::Index>(),
    ) {
        let (mut log, ends) = log(&numbered(&values, trailer));
        prop_assume!(ends.len() > 1);
        let sector = sector.index(last_start(&ends).div_ceil(SECTOR));
        let end = last_start(&ends).min(sector * SECTOR + SECTOR);
        // Unused ends of blocks are zeros already.
        prop_assume!(!zeros(&log[sector * SECTOR..end]));
        log[sector * SECTOR..end].fill(0);
        let found = tail(&log, Log::Writes);
        prop_assert!(matches!(found, LogEnd::Damaged(_)), "{found:?}");
    }

    #[test]
    fn a_flipped_byte_is_damage_wherever_it_is(
        values in values(),
        trailer in any::<bool>(),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let (mut log, _) = log(&numbered(&values, trailer));
        let at = at.index(log.len());
        log[at] ^= 1 << bit;
        // A flipped bit in the unused end of a block changes no record.
        if tail(&log, Log::Writes) == LogEnd::Sound {
            let unused = at % BLOCK + HEADER > BLOCK;
            prop_assert!(unused, "byte {} of {} was skipped over", at, log.len());
        } else {
            prop_assert!(matches!(tail(&log, Log::Writes), LogEnd::Damaged(_)));
        }
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        values in values(),
        at in any::<proptest::sample::Index>(),
    ) {
        for kind in [Log::Writes, Log::Manifest] {
            let _ = tail(&bytes, kind);
            let (mut log, _) = log(&numbered(&values, true));
            let at = at.index(log.len());
            let end = log.len().min(at + bytes.len());
            log[at..end].copy_from_slice(&bytes[..end - at]);
            let _ = tail(&log, kind);
        }
    }
}

#[test]
fn a_flipped_bit_beside_zeros_that_were_written_is_damage() {
    let value = [vec![9; 300], vec![0; 3 * SECTOR], vec![9; 300]].concat();
    let (whole, ends) = log(&[batch(5, &[1; 50], true), batch(8, &value, true)]);
    assert_eq!(tail(&whole, Log::Writes), LogEnd::Sound);
    for byte in last_start(&ends)..whole.len() {
        for bit in [0, 6] {
            let mut log = whole.clone();
            log[byte] ^= 1 << bit;
            let end = tail(&log, Log::Writes);
            assert!(matches!(end, LogEnd::Damaged(_)), "bit {bit} of byte {byte}: {end:?}");
        }
    }
}

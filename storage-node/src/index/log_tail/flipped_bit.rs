//! Single flipped bits in the last record of a log.
//!
//! A record that was synced may hold whole sectors of zeros: a client's bytes do. If a bit of such a
//! record flips, the record looks like one that was never completely written. CRC32C is linear, so the
//! difference of two checksums shows the one bit that explains it, if there is one. A torn record has
//! such a difference by chance in 1 of 16,000 cases at most, and then lacks its trailer.

use super::{FragmentRead, HEADER, TRAILER_IN_BATCH, fragment, masked, next};

/// Polynomial of CRC32C, least significant bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Bits of a fragment's length.
const LENGTH_BITS: u32 = 16;

/// Returns true if the record with the bad fragment at `at` is whole but for one flipped bit of this
/// fragment: with the bit corrected, the record goes on to its trailer.
pub(super) fn explains(log: &[u8], at: usize) -> bool {
    let Some(corrected) = corrected(log, at) else { return false };
    let kind = corrected[6];
    let mut end = at + corrected.len();
    let mut payload = &corrected[HEADER..];
    let mut is_last = matches!(kind, 1 | 4);
    if !matches!(kind, 1..=4) {
        return false;
    }
    while !is_last {
        let start = next(end);
        let FragmentRead::Good(found) = fragment(log, start) else { return false };
        if found.begins_record() {
            return false;
        }
        (payload, end) = (&log[start + HEADER..found.end], found.end);
        is_last = found.ends_record();
    }
    payload.ends_with(&TRAILER_IN_BATCH)
}

/// Returns the bytes of a bad fragment with one bit corrected, if one bit explains its checksum.
fn corrected(log: &[u8], at: usize) -> Option<Vec<u8>> {
    let header = log.get(at..at + HEADER)?;
    let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let length = u16::from_le_bytes([header[4], header[5]]);
    let bytes = |length: u16| {
        let end = at + HEADER + usize::from(length);
        let fits = end <= at / super::BLOCK * super::BLOCK + super::BLOCK;
        log.get(at..end).filter(|_| fits)
    };
    for bit in 0..LENGTH_BITS {
        let other = length ^ (1 << bit);
        if let Some(found) = bytes(other).filter(|found| masked(&found[6..]) == stored) {
            let mut found = found.to_vec();
            found[4..6].copy_from_slice(&other.to_le_bytes());
            return Some(found);
        }
    }
    let mut found = bytes(length)?.to_vec();
    let actual = masked(&found[6..]);
    if (stored ^ actual).is_power_of_two() {
        found[..4].copy_from_slice(&actual.to_le_bytes());
        return Some(found);
    }
    let bit = flipped_bit(unmasked(stored) ^ unmasked(actual), (found.len() - 6) * 8)?;
    let byte = found.len() - 1 - bit / 8;
    // Bits are counted from the last one processed, the most significant of the last byte.
    found[byte] ^= 0x80 >> (bit % 8);
    Some(found)
}

/// Position of the one bit whose flip changes a checksum by `difference`, among `bits` bits, counted
/// from the last one processed. None if no single bit does.
fn flipped_bit(difference: u32, bits: usize) -> Option<usize> {
    let mut effect = 1;
    (0..bits).find(|_| {
        effect = (effect >> 1) ^ (POLYNOMIAL * (effect & 1));
        effect == difference
    })
}

fn unmasked(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fragment of this kind.
    fn fragment_of(kind: u8, payload: &[u8]) -> Vec<u8> {
        let covered = [&[kind][..], payload].concat();
        let length = u16::try_from(payload.len()).unwrap();
        [&masked(&covered).to_le_bytes()[..], &length.to_le_bytes(), &covered].concat()
    }

    /// Payload of a batch with sectors of zeros.
    fn batch() -> Vec<u8> {
        let mut payload = vec![7; 40];
        payload.resize(2000, 0);
        payload.extend(b"more of the value");
        payload.extend(TRAILER_IN_BATCH);
        payload
    }

    #[test]
    fn every_single_bit_of_a_whole_record_is_found() {
        let record = fragment_of(1, &batch());
        for bit in 0..record.len() * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let corrected = corrected(&flipped, 0);
            assert_eq!(corrected.as_deref(), Some(&record[..]), "bit {bit}");
            assert!(explains(&flipped, 0), "bit {bit}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_in_each_fragment_of_a_record() {
        let payload = batch();
        let (first, last) = payload.split_at(900);
        let record = [fragment_of(2, first), fragment_of(4, last)].concat();
        for (at, byte) in [(0, 500), (HEADER + 900, HEADER + 950)] {
            let mut flipped = record.clone();
            flipped[byte] ^= 0x10;
            assert!(explains(&flipped, at), "byte {byte}");
        }
        let cut = &record[..record.len() - TRAILER_IN_BATCH.len()];
        let mut flipped = cut.to_vec();
        flipped[500] ^= 0x10;
        assert!(!explains(&flipped, 0), "the record goes on behind the end of the log");
    }

    #[test]
    fn records_that_were_never_whole_are_not_explained() {
        let record = fragment_of(1, &batch());
        for lost in [0..512, 512..1024, 1536..record.len(), 1024..record.len()] {
            let mut torn = record.clone();
            let changes = torn[lost.clone()].iter().any(|byte| *byte != 0);
            torn[lost.clone()].fill(0);
            assert!(!changes || !explains(&torn, 0), "{lost:?}");
        }
        let without_trailer = fragment_of(1, &[1; 100]);
        let mut flipped = without_trailer.clone();
        flipped[50] ^= 1;
        assert!(!explains(&flipped, 0), "nothing shows that the record was complete");
    }

    /// The trailer of the next record shows nothing about a record without a last fragment.
    #[test]
    fn a_record_does_not_go_on_to_the_trailer_of_the_next_one() {
        let payload = batch();
        let (first, last) = payload.split_at(900);
        for next in
            [fragment_of(1, &payload), [fragment_of(2, first), fragment_of(4, last)].concat()]
        {
            let mut flipped = [fragment_of(2, first), next].concat();
            flipped[500] ^= 0x10;
            assert!(corrected(&flipped, 0).is_some());
            assert!(!explains(&flipped, 0));
        }
    }
}

//! Blocks of volumes that are in use, while a store is opened: a bit for each block.
//!
//! Memory: 1/32,768 of the bytes of all volumes, regardless of the number of records; 488 MiB for
//! volumes of 16 TB.

use std::collections::BTreeMap;
use std::ops::Range;

use martlet_protocol::limits::ALIGN_BYTES;

use super::record::BlockRun;

const WORD_BITS: u64 = 64;

/// Used blocks of one volume.
#[derive(Debug, Default)]
pub(super) struct UsedBlocks {
    words: Vec<u64>,
    blocks: u64,
}

impl UsedBlocks {
    /// Returns the blocks of a volume of `bytes`; only its head is in use.
    pub(super) fn of_volume(bytes: u64) -> Self {
        let blocks = bytes / ALIGN_BYTES;
        let mut used = Self { words: vec![0; position(blocks.div_ceil(WORD_BITS))], blocks };
        used.mark(0..1);
        used
    }

    /// Returns true if the block at `offset` is in use, or lies behind the volume's end.
    pub(super) fn is_used(&self, offset: u64) -> bool {
        let block = offset / ALIGN_BYTES;
        block >= self.blocks
            || (self.words[position(block / WORD_BITS)] >> (block % WORD_BITS)) & 1 == 1
    }

    fn mark(&mut self, blocks: Range<u64>) {
        let mut at = blocks.start;
        let end = blocks.end.min(self.blocks);
        while at < end {
            let (word, bit) = (position(at / WORD_BITS), at % WORD_BITS);
            let bits = (WORD_BITS - bit).min(end - at);
            self.words[word] |= (u64::MAX >> (WORD_BITS - bits)) << bit;
            at += bits;
        }
    }

    /// Returns the first offset from `offset` on that is in use, or not in use. The end of the
    /// volume is the last answer.
    fn next(&self, offset: u64, used: bool) -> u64 {
        let mut at = offset / ALIGN_BYTES;
        while at < self.blocks {
            let word = self.words[position(at / WORD_BITS)];
            let word = if used { word } else { !word };
            let bits = word >> (at % WORD_BITS);
            if bits != 0 {
                at += u64::from(bits.trailing_zeros());
                break;
            }
            at = (at / WORD_BITS + 1) * WORD_BITS;
        }
        at.min(self.blocks) * ALIGN_BYTES
    }

    /// Returns the first run of unused blocks at or behind `offset`; none at the volume's end.
    pub(super) fn next_unused(&self, offset: u64) -> Option<Range<u64>> {
        let start = self.next(offset, false);
        let unused = start..self.next(start, true);
        (!unused.is_empty()).then_some(unused)
    }
}

/// Used blocks of all volumes.
#[derive(Debug, Default)]
pub(super) struct UsedSpace {
    volumes: BTreeMap<u32, UsedBlocks>,
}

impl UsedSpace {
    /// Adds a volume of `bytes`.
    pub(super) fn add(&mut self, volume: u32, bytes: u64) {
        self.volumes.insert(volume, UsedBlocks::of_volume(bytes));
    }

    /// Returns the blocks of a volume that was added.
    pub(super) fn volume(&self, volume: u32) -> Option<&UsedBlocks> {
        self.volumes.get(&volume)
    }

    /// Marks the part of a run that lies in a volume as used.
    pub(super) fn mark(&mut self, run: BlockRun) {
        if let Some(used) = self.volumes.get_mut(&run.volume) {
            let end = run.offset.saturating_add(run.bytes).div_ceil(ALIGN_BYTES);
            used.mark(run.offset / ALIGN_BYTES..end);
        }
    }

    /// Marks a record's run as used. False if its volume is missing or shorter, or if another
    /// record has its first block.
    pub(super) fn mark_record(&mut self, run: BlockRun) -> bool {
        let Some(used) = self.volumes.get_mut(&run.volume) else { return false };
        let Some(end) = run.offset.checked_add(run.bytes) else { return false };
        if end > used.blocks * ALIGN_BYTES || used.is_used(run.offset) {
            return false;
        }
        used.mark(run.offset / ALIGN_BYTES..end / ALIGN_BYTES);
        true
    }
}

fn position(number: u64) -> usize {
    usize::try_from(number).expect("the bits of a volume fit in memory")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn run(block: u64, blocks: u64) -> BlockRun {
        BlockRun { volume: 2, offset: block * ALIGN_BYTES, bytes: blocks * ALIGN_BYTES }
    }

    #[test]
    fn a_record_has_blocks_that_no_other_record_has() {
        let mut used = UsedSpace::default();
        used.add(2, 100 * ALIGN_BYTES + 17);
        assert!(!used.mark_record(run(0, 2)), "the head of the volume");
        assert!(used.mark_record(run(1, 70)) && !used.mark_record(run(5, 2)));
        assert!(!used.mark_record(run(99, 2)), "behind the end");
        assert!(!used.mark_record(BlockRun { offset: u64::MAX - 4095, ..run(0, 1) }));
        assert!(!used.mark_record(BlockRun { volume: 3, ..run(80, 1) }));
        assert!(used.mark_record(run(99, 1)));
        let blocks = used.volume(2).unwrap();
        assert_eq!(blocks.next_unused(0), Some(71 * ALIGN_BYTES..99 * ALIGN_BYTES));
        assert_eq!(blocks.next_unused(99 * ALIGN_BYTES), None);
        // A run without bounds, as a name in quarantine may have.
        used.mark(BlockRun { bytes: u64::MAX, ..run(90, 0) });
        let rest = used.volume(2).unwrap().next_unused(0);
        assert_eq!(rest, Some(71 * ALIGN_BYTES..90 * ALIGN_BYTES));
    }

    proptest! {
        #[test]
        fn the_unused_runs_are_those_of_a_set(
            runs in proptest::collection::vec((0..300_u64, 0..90_u64), 0..12),
        ) {
            let mut used = UsedSpace::default();
            used.add(2, 257 * ALIGN_BYTES);
            let mut model: BTreeSet<u64> = [0].into();
            for (block, blocks) in runs {
                used.mark(run(block, blocks));
                model.extend((block..block + blocks).filter(|it| *it < 257));
            }
            let blocks = used.volume(2).unwrap();
            let (mut at, mut unused) = (0, Vec::new());
            while let Some(found) = blocks.next_unused(at) {
                unused.extend(found.start / ALIGN_BYTES..found.end / ALIGN_BYTES);
                at = found.end;
            }
            let expected: Vec<u64> = (0..257).filter(|it| !model.contains(it)).collect();
            prop_assert_eq!(unused, expected);
            for block in 0..260 {
                let is_used = block >= 257 || model.contains(&block);
                prop_assert_eq!(blocks.is_used(block * ALIGN_BYTES), is_used);
            }
        }
    }
}

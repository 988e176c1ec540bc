//! Layout of encrypted bytes. Pure.
//!
//! ```text
//! segment: salt (16), for parts only | chunk 0 | chunk 1 | … | last chunk
//! chunk:   ciphertext (64 KiB; the last one 1 byte up to 64 KiB) | tag (16)
//! ```
//!
//! An empty segment has no stored bytes. Segments are stored back to back.

use std::collections::VecDeque;
use std::ops::Range;

/// Plain bytes of each chunk but the last.
pub(super) const CHUNK: usize = 64 * 1024;
/// Bytes that encryption adds to a chunk.
pub(super) const TAG: usize = 16;
/// Bytes of the salt before a part.
pub(super) const SALT: usize = 16;
const CHUNK_BYTES: u64 = CHUNK as u64;
pub(super) const TAG_BYTES: u64 = TAG as u64;
pub(super) const SALT_BYTES: u64 = SALT as u64;

/// Bytes under one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Plain bytes.
    pub(crate) bytes: u64,
    /// True if its key is salted; the salt is stored before the first chunk.
    pub(crate) salted: bool,
}

impl Segment {
    /// Stored bytes.
    pub(crate) fn stored(self) -> u64 {
        match self.bytes {
            0 => 0,
            bytes => self.head() + bytes + self.chunks() * TAG_BYTES,
        }
    }

    /// Number of chunks.
    pub(crate) fn chunks(self) -> u64 {
        self.bytes.div_ceil(CHUNK_BYTES)
    }

    /// Plain bytes of a chunk.
    pub(crate) fn chunk_bytes(self, index: u64) -> u64 {
        (self.bytes - index * CHUNK_BYTES).min(CHUNK_BYTES)
    }

    fn head(self) -> u64 {
        if self.salted { SALT_BYTES } else { 0 }
    }

    /// Stored offset of a chunk, or of the segment's end.
    fn chunk_start(self, index: u64) -> u64 {
        (self.head() + index * (CHUNK_BYTES + TAG_BYTES)).min(self.stored())
    }
}

/// Chunks of one segment to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) segment: Segment,
    /// Position of the segment in the object, from 0.
    pub(crate) at: usize,
    pub(crate) chunks: Range<u64>,
    /// True if the salt is stored right before the chunks of this run.
    pub(crate) has_salt: bool,
}

/// Stored bytes to read for a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The chunks, in stored order.
    pub(crate) runs: VecDeque<Run>,
    /// Contiguous stored range of the chunks.
    pub(crate) stored: Range<u64>,
    /// Stored range of the first run's salt, if it is not part of `stored`.
    pub(crate) salt: Option<Range<u64>>,
    /// Plain bytes to skip before the range.
    pub(crate) skip: u64,
    /// Plain bytes of the range.
    pub(crate) length: u64,
}

impl Plan {
    /// Plan for a non-empty range of the concatenated segments.
    pub(crate) fn new(segments: impl IntoIterator<Item = Segment>, range: &Range<u64>) -> Self {
        let length = range.end - range.start;
        let mut plan = Self { runs: VecDeque::new(), stored: 0..0, salt: None, skip: 0, length };
        let (mut start, mut stored_start) = (0, 0);
        for (at, segment) in segments.into_iter().enumerate() {
            let end = start + segment.bytes;
            if segment.bytes > 0 && start < range.end && range.start < end {
                plan.add(at, segment, start, stored_start, range);
            }
            stored_start += segment.stored();
            start = end;
        }
        plan
    }

    fn add(
        &mut self,
        at: usize,
        segment: Segment,
        start: u64,
        stored_start: u64,
        range: &Range<u64>,
    ) {
        let first = range.start.saturating_sub(start) / CHUNK_BYTES;
        let end = (range.end - start).min(segment.bytes).div_ceil(CHUNK_BYTES);
        let has_salt = segment.salted && first == 0;
        if self.runs.is_empty() {
            self.skip = range.start - start - first * CHUNK_BYTES;
            let before = if first == 0 { 0 } else { segment.chunk_start(first) };
            self.stored.start = stored_start + before;
            let is_apart = segment.salted && !has_salt;
            self.salt = is_apart.then_some(stored_start..stored_start + SALT_BYTES);
        }
        self.stored.end = stored_start + segment.chunk_start(end);
        self.runs.push_back(Run { segment, at, chunks: first..end, has_salt });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const C: u64 = CHUNK_BYTES;
    const S: u64 = CHUNK_BYTES + TAG_BYTES;

    fn plain(bytes: u64) -> Segment {
        Segment { bytes, salted: false }
    }

    fn part(bytes: u64) -> Segment {
        Segment { bytes, salted: true }
    }

    #[test]
    fn every_chunk_has_a_tag_and_every_part_a_salt() {
        for (bytes, stored) in
            [(0, 0), (1, 17), (C - 1, S - 1), (C, S), (C + 1, S + 17), (3 * C, 3 * S)]
        {
            assert_eq!(plain(bytes).stored(), stored);
            assert_eq!(part(bytes).stored(), if bytes == 0 { 0 } else { stored + SALT_BYTES });
        }
    }

    #[test]
    fn a_range_needs_the_chunks_under_it_and_no_others() {
        let plan = Plan::new([plain(5 * C + 7)], &(C + 3..2 * C));
        assert_eq!((plan.stored, plan.skip, plan.length), (S..2 * S, 3, C - 3));
        assert_eq!((plan.salt, plan.runs[0].chunks.clone()), (None, 1..2));
        let plan = Plan::new([plain(5 * C + 7)], &(5 * C..5 * C + 7));
        assert_eq!(plan.stored, 5 * S..5 * S + 7 + TAG_BYTES);
    }

    #[test]
    fn a_range_across_parts_reads_the_salts_between_and_that_before_it() {
        let parts = [part(2 * C), part(0), part(10), part(3 * C)];
        let plan = Plan::new(parts, &(C + 1..2 * C + 11));
        assert_eq!(plan.salt, Some(0..SALT_BYTES));
        let first = SALT_BYTES + S;
        assert_eq!(plan.stored, first..parts[0].stored() + parts[2].stored() + SALT_BYTES + S);
        let runs: Vec<_> = plan.runs.iter().map(|run| (run.chunks.clone(), run.has_salt)).collect();
        assert_eq!(runs, [(1..2, false), (0..1, true), (0..1, true)]);
        let places: Vec<_> = plan.runs.iter().map(|run| run.at).collect();
        assert_eq!(places, [0, 2, 3], "a part without bytes has its place, too");
        let whole = Plan::new(parts, &(0..5 * C + 10));
        assert_eq!(whole.stored, 0..parts.iter().map(|part| part.stored()).sum());
        assert_eq!(whole.salt, None);
    }

    proptest! {
        #[test]
        fn planned_segments_equal_stored_ones_and_cover_the_range(
            parts in proptest::collection::vec(0..4 * C, 1..6),
            cut in (0u64..1000, 0u64..1000),
            salted: bool,
        ) {
            let size: u64 = parts.iter().sum();
            prop_assume!(size > 0);
            let at = |share: u64| size * share / 1000;
            let (first, second) = (at(cut.0), at(cut.1));
            let range = first.min(second)..first.max(second) + 1;
            let segments = parts.iter().map(|&bytes| Segment { bytes, salted });
            let plan = Plan::new(segments, &range);
            let chunks = plan.runs.iter().flat_map(|run| {
                run.chunks.clone().map(|index| run.segment.chunk_bytes(index))
            });
            let (count, held) = chunks.fold((0, 0), |(count, sum), it| (count + 1, sum + it));
            let salts = plan.runs.iter().filter(|run| run.has_salt).count() as u64;
            let stored = held + count * TAG_BYTES + salts * SALT_BYTES;
            prop_assert_eq!(plan.stored.end - plan.stored.start, stored);
            prop_assert!(plan.skip < CHUNK_BYTES && held >= plan.skip + plan.length);
            prop_assert!(held < plan.skip + plan.length + CHUNK_BYTES);
        }
    }
}

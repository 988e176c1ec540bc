//! Where the chunks of encrypted bytes lie. Pure.
//!
//! ```text
//! segment: salt (16), of a part only | chunk 0 | chunk 1 | … | last chunk
//! chunk:   ciphertext (64 KiB, of the last one 1 byte up to that) | tag (16)
//! ```
//!
//! A segment of no bytes is stored as none at all. Segments stand one behind the other.

use std::collections::VecDeque;
use std::ops::Range;

use martlet_protocol::entry::{Mark, Object};

use super::keys::is_salted;

/// Plain bytes of every chunk but the last.
pub(super) const CHUNK: usize = 64 * 1024;
/// Bytes that a chunk has more when it is stored.
pub(super) const TAG: usize = 16;
/// Bytes that a part begins with.
pub(super) const SALT: usize = 16;
const CHUNK_BYTES: u64 = CHUNK as u64;
pub(super) const TAG_BYTES: u64 = TAG as u64;
pub(super) const SALT_BYTES: u64 = SALT as u64;

/// Bytes under one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// How many, as the client sent them.
    pub(crate) bytes: u64,
    /// Whether its key is made with a salt, which stands before it.
    pub(crate) salted: bool,
}

impl Segment {
    /// How many are stored.
    pub(crate) fn stored(self) -> u64 {
        match self.bytes {
            0 => 0,
            bytes => self.head() + bytes + self.chunks() * TAG_BYTES,
        }
    }

    /// Its chunks.
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

    /// Where a chunk begins, or the segment ends.
    fn chunk_start(self, index: u64) -> u64 {
        (self.head() + index * (CHUNK_BYTES + TAG_BYTES)).min(self.stored())
    }
}

/// Chunks of one segment that are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) segment: Segment,
    /// Which of the segments it is, from 0.
    pub(crate) at: usize,
    pub(crate) chunks: Range<u64>,
    /// Whether its salt stands right before them.
    pub(crate) has_salt: bool,
}

/// What has to be read for a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The chunks, in the order in which they are stored.
    pub(crate) runs: VecDeque<Run>,
    /// Where they are stored, in one piece.
    pub(crate) stored: Range<u64>,
    /// Where the salt of the first run stands, if that is apart.
    pub(crate) salt: Option<Range<u64>>,
    /// Plain bytes before the range.
    pub(crate) skip: u64,
    /// Plain bytes of the range.
    pub(crate) length: u64,
}

impl Plan {
    /// What is under a range, which is not empty, of these segments.
    pub(crate) fn new(segments: impl IntoIterator<Item = Segment>, range: &Range<u64>) -> Self {
        let length = range.end - range.start;
        let mut plan = Self { runs: VecDeque::new(), stored: 0..0, salt: None, skip: 0, length };
        let (mut start, mut stored_start) = (0, 0);
        for (at, segment) in segments.into_iter().enumerate() {
            let end = start + segment.bytes;
            if segment.bytes > 0 && start < range.end && range.start < end {
                plan.add((at, segment), (start, stored_start), range);
            }
            stored_start += segment.stored();
            start = end;
        }
        plan
    }

    fn add(
        &mut self,
        (at, segment): (usize, Segment),
        (start, stored_start): (u64, u64),
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

/// How many bytes are stored of each piece of an object that can be told apart: its parts, or all of it.
pub(crate) fn stored_pieces(object: &Object, parts: &[u64]) -> Vec<u64> {
    let is_whole = parts.iter().sum::<u64>() != object.size || parts.is_empty();
    let pieces = if is_whole { std::slice::from_ref(&object.size) } else { parts };
    match object.attributes.marks.get(Mark::Encryption) {
        None => pieces.to_vec(),
        Some(document) => {
            let salted = is_salted(document);
            pieces.iter().map(|&bytes| Segment { bytes, salted }.stored()).collect()
        }
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
        fn what_is_planned_is_what_is_stored_and_holds_the_range(
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

//! Sets of numbers as ranges, for the document of a loss.
//!
//! A text such as `7-9,12-12` or `-` names a set. A whole ring of 2²⁴ partitions is one range.

use std::collections::BTreeMap;
use std::fmt;

/// Set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Last number of each range, by the first. Ranges neither overlap nor touch.
    last_of: BTreeMap<u32, u32>,
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.last_of.is_empty()
    }

    /// Number of numbers.
    pub(super) fn count(&self) -> u64 {
        self.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// First and last number of each range, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.last_of.iter().map(|(first, last)| (*first, *last))
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.last_of.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// Adds a range, and joins it with those that it overlaps or touches.
    pub(super) fn insert(&mut self, mut first: u32, mut last: u32) {
        while let Some((&start, &end)) = self.last_of.range(..=last.saturating_add(1)).next_back()
            && end.saturating_add(1) >= first
        {
            self.last_of.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.last_of.insert(first, last);
    }

    /// Joins the ranges with the smallest gaps, until there are at most `ranges_max` of them.
    pub(super) fn coarsen(&mut self, ranges_max: usize) {
        let excess = self.last_of.len().saturating_sub(ranges_max.max(1));
        let mut gaps: Vec<(u32, u32)> = self
            .iter()
            .zip(self.iter().skip(1))
            .map(|((_, end), (start, _))| (start - end, end))
            .collect();
        gaps.sort_unstable();
        for (gap, end) in &gaps[..excess] {
            self.insert(*end, end + gap);
        }
    }

    /// Decodes a text; none if it is none of a set.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut ranges = Self::default();
        for range in text.split(',').filter(|range| *range != "-") {
            let (first, last) = range.split_once('-')?;
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last {
                return None;
            }
            ranges.insert(first, last);
        }
        Some(ranges)
    }
}

impl FromIterator<u32> for Ranges {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Self {
        let mut ranges = Self::default();
        for number in numbers {
            ranges.insert(number, number);
        }
        ranges
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        for (at, (first, last)) in self.iter().enumerate() {
            write!(f, "{}{first}-{last}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_in_any_order() {
        for numbers in [[9, 2, 1, 0, 3, 11], [0, 1, 3, 2, 11, 9], [3, 1, 11, 9, 0, 2]] {
            let ranges = Ranges::from_iter(numbers);
            assert_eq!((ranges.to_string().as_str(), ranges.count()), ("0-3,9-9,11-11", 6));
            let held: Vec<u32> = (0..20).filter(|number| ranges.contains(*number)).collect();
            assert_eq!(held, [0, 1, 2, 3, 9, 11]);
        }
        let mut all = Ranges::from_iter([2, 15]);
        all.insert(0, u32::MAX);
        assert_eq!((all.to_string(), all.count()), ("0-4294967295".to_owned(), 1 << 32));
    }

    #[test]
    fn a_text_is_read_back_and_an_unknown_one_is_none() {
        for ranges in [Ranges::default(), Ranges::from_iter([0, 1, 2, 9, u32::MAX])] {
            assert_eq!(Ranges::parse(&ranges.to_string()), Some(ranges));
        }
        for unknown in ["", "3", "3-2", "a-b", "1-2;", "1-2,,"] {
            assert_eq!(Ranges::parse(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn the_smallest_gaps_go_first_and_no_number_is_lost() {
        let ranges = Ranges::from_iter([0, 2, 10, 13, 30]);
        for (ranges_max, expected) in [
            (9, "0-0,2-2,10-10,13-13,30-30"),
            (5, "0-0,2-2,10-10,13-13,30-30"),
            (4, "0-2,10-10,13-13,30-30"),
            (3, "0-2,10-13,30-30"),
            (2, "0-13,30-30"),
            (0, "0-30"),
        ] {
            let mut coarse = ranges.clone();
            coarse.coarsen(ranges_max);
            assert_eq!(coarse.to_string(), expected);
        }
        let mut none = Ranges::default();
        none.coarsen(3);
        assert!(none.is_empty());
    }
}

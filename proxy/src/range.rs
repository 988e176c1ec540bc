//! Byte ranges of selections. Pure.

use std::ops::Range;

use martlet_protocol::entry::Checksum;

use crate::api::Selection;
use crate::error::{Error, Result};

/// A selection applied to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    /// The selected bytes.
    pub(crate) range: Range<u64>,
    /// True if the selection is a range or part.
    pub(crate) partial: bool,
    /// Number of the object's parts, if a part of a multipart object was selected.
    pub(crate) parts: Option<u32>,
    /// Checksum of the selected part, if it was stored.
    pub(crate) checksum: Option<Checksum>,
}

impl Selected {
    fn new(range: Range<u64>, partial: bool, parts: Option<u32>) -> Self {
        Self { range, partial, parts, checksum: None }
    }
}

impl Selection {
    /// Applies the selection to an object of `size` bytes with `parts` of these lengths.
    ///
    /// # Errors
    /// [`Error::InvalidRange`] for an empty range; [`Error::InvalidPartNumber`].
    pub(crate) fn resolve(self, size: u64, parts: &[u64]) -> Result<Selected> {
        let range = match self {
            Self::Whole => return Ok(Selected::new(0..size, false, None)),
            Self::From { first, last } => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                first..end
            }
            // A suffix of an empty object is the whole object.
            Self::Suffix { length: 1.. } if size == 0 => return Self::Whole.resolve(size, parts),
            Self::Suffix { length } => size.saturating_sub(length)..size,
            Self::Part { number } => return part(number, size, parts),
        };
        if range.is_empty() {
            return Err(Error::InvalidRange { size });
        }
        Ok(Selected::new(range, true, None))
    }
}

/// The range of a part. An object of a single PUT is its own first part.
fn part(number: u32, size: u64, parts: &[u64]) -> Result<Selected> {
    let wrong = Error::InvalidPartNumber { number, parts: parts.len().max(1) };
    let Some(at) = number.checked_sub(1).and_then(|at| usize::try_from(at).ok()) else {
        return Err(wrong);
    };
    if parts.is_empty() && at == 0 {
        return Ok(Selected::new(0..size, size > 0, None));
    }
    let length = *parts.get(at).ok_or(wrong)?;
    let start: u64 = parts[..at].iter().sum();
    let count = u32::try_from(parts.len()).expect("an upload has at most 10,000 parts");
    Ok(Selected::new(start..start + length, true, Some(count)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(selection: Selection, size: u64) -> Option<Range<u64>> {
        selection.resolve(size, &[]).ok().map(|selected| selected.range)
    }

    #[test]
    fn ranges_are_cut_at_the_end_of_the_object() {
        assert_eq!(bytes(Selection::From { first: 0, last: Some(0) }, 10), Some(0..1));
        assert_eq!(bytes(Selection::From { first: 5, last: None }, 10), Some(5..10));
        assert_eq!(bytes(Selection::From { first: 5, last: Some(u64::MAX) }, 10), Some(5..10));
        assert_eq!(bytes(Selection::From { first: 10, last: None }, 10), None);
        assert_eq!(bytes(Selection::From { first: 5, last: Some(4) }, 10), None);
        assert_eq!(bytes(Selection::Suffix { length: 3 }, 10), Some(7..10));
        assert_eq!(bytes(Selection::Suffix { length: 30 }, 10), Some(0..10));
        assert_eq!(bytes(Selection::Suffix { length: 0 }, 10), None);
    }

    #[test]
    fn an_empty_object_has_no_ranges_but_all_of_it() {
        assert_eq!(bytes(Selection::Whole, 0), Some(0..0));
        assert_eq!(bytes(Selection::From { first: 0, last: None }, 0), None);
        assert_eq!(bytes(Selection::Suffix { length: 0 }, 0), None);
        let whole = Some(Selected::new(0..0, false, None));
        for all in [Selection::Suffix { length: 5 }, Selection::Part { number: 1 }] {
            assert_eq!(all.resolve(0, &[]).ok(), whole);
        }
    }

    #[test]
    fn parts_follow_one_another() {
        let part = |number| Selection::Part { number }.resolve(12, &[5, 4, 3]).ok();
        assert_eq!(part(2), Some(Selected::new(5..9, true, Some(3))));
        assert_eq!(part(3).map(|selected| selected.range), Some(9..12));
        assert_eq!((part(0), part(4)), (None, None));
        assert_eq!(bytes(Selection::Part { number: 2 }, 12), None);
    }

    proptest! {
        #[test]
        fn a_range_is_the_bytes_that_it_names(
            size in 0u64..50,
            first in 0u64..60,
            last in proptest::option::of(0u64..60),
        ) {
            let named: Vec<u64> =
                (0..size).filter(|at| *at >= first && last.is_none_or(|last| *at <= last)).collect();
            match (Selection::From { first, last }).resolve(size, &[]) {
                Ok(selected) => prop_assert_eq!(selected.range.collect::<Vec<_>>(), named),
                Err(_) => prop_assert!(named.is_empty()),
            }
        }
    }
}

//! Choice of an object's parts at the target. The source's parts are kept where they are known, so
//! that the object keeps its ETag.

use crate::etag::ETagKind;
use crate::plan::{PART_BYTES_MAX, PART_BYTES_MIN, PARTS_MAX};

/// Form of an object at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Put at once.
    Whole,
    /// Uploaded in parts of this many bytes; the last part may be smaller.
    Parts(u64),
}

/// Part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number, from 1 on.
    pub(crate) number: u32,
    /// First byte.
    pub(crate) first: u64,
    /// Byte behind the last one.
    pub(crate) end: u64,
}

/// Object whose form is to be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes.
    pub(crate) size: u64,
    /// Kind of the source's ETag.
    pub(crate) etag: ETagKind,
    /// Bytes of the source's first part, if known.
    pub(crate) first_part: Option<u64>,
}

impl Layout {
    /// Chooses a form. `part_bytes` is the size of parts where the source's can't be kept.
    pub(crate) fn choose(shape: Shape, part_bytes: u64) -> Self {
        let Shape { size, etag, first_part } = shape;
        let own = || Self::Parts(own_part_bytes(size, part_bytes));
        if size == 0 {
            return Self::Whole;
        }
        match etag {
            ETagKind::Md5(_) if size <= PART_BYTES_MAX => Self::Whole,
            ETagKind::Parts { parts, .. } => match first_part {
                Some(first) if is_kept(size, first, parts) => Self::Parts(first),
                _ if size <= part_bytes => Self::Whole,
                _ => own(),
            },
            _ if size <= part_bytes => Self::Whole,
            _ => own(),
        }
    }

    /// Returns true if the source's first part decides the form.
    pub(crate) fn needs_first_part(size: u64, etag: ETagKind) -> bool {
        size > 0 && matches!(etag, ETagKind::Parts { .. })
    }
}

/// Returns true if parts of `first` bytes make `parts` parts that the target accepts.
fn is_kept(size: u64, first: u64, parts: u64) -> bool {
    let is_valid = first > 0 && first <= PART_BYTES_MAX && first <= size && parts <= PARTS_MAX;
    is_valid && size.div_ceil(first) == parts && (parts == 1 || first >= PART_BYTES_MIN)
}

/// Sizes of parts that common tools choose by default, in MiB, the most common first.
const COMMON_PART_MIB: [u64; 12] = [8, 16, 5, 15, 10, 64, 32, 50, 100, 128, 256, 512];

/// Returns a common size of parts that makes `parts` parts; `None` if no common size does.
pub(crate) fn guessed_part_bytes(size: u64, parts: u64) -> Option<u64> {
    let mut common = COMMON_PART_MIB.into_iter().map(|mib| mib << 20);
    common.find(|bytes| is_kept(size, *bytes, parts))
}

/// Returns the size of parts: `part_bytes`, or more in whole MiB where 10,000 parts don't suffice.
fn own_part_bytes(size: u64, part_bytes: u64) -> u64 {
    let needed = size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20);
    part_bytes.max(needed)
}

/// Returns the parts of an object of `size` bytes, at least 1.
pub(crate) fn parts(size: u64, part_bytes: u64) -> impl Iterator<Item = Part> {
    let count = u32::try_from(size.div_ceil(part_bytes)).expect("parts are at most 10,000");
    (0..count).map(move |at| {
        let first = u64::from(at) * part_bytes;
        Part { number: at + 1, first, end: size.min(first + part_bytes) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const OWN: u64 = 64 * MIB;
    const TIB: u64 = 1 << 40;

    fn choose(size: u64, etag: ETagKind, first_part: Option<u64>) -> Layout {
        Layout::choose(Shape { size, etag, first_part }, OWN)
    }

    fn of_parts(parts: u64) -> ETagKind {
        ETagKind::Parts { md5: [0; 16], parts }
    }

    #[test]
    fn objects_that_were_put_at_once_stay_whole() {
        let plain = ETagKind::Md5([0; 16]);
        for size in [0, 1, OWN + 1, PART_BYTES_MAX] {
            assert_eq!(choose(size, plain, None), Layout::Whole);
        }
        assert_eq!(choose(PART_BYTES_MAX + 1, plain, None), Layout::Parts(OWN));
        assert_eq!(choose(OWN, ETagKind::Opaque, None), Layout::Whole);
        assert_eq!(choose(OWN + 1, ETagKind::Opaque, None), Layout::Parts(OWN));
    }

    #[test]
    fn parts_of_the_source_are_kept_if_they_fit() {
        let kept = |size, parts, first| choose(size, of_parts(parts), Some(first));
        assert_eq!(kept(17 * MIB, 3, 8 * MIB), Layout::Parts(8 * MIB));
        assert_eq!(kept(3, 1, 3), Layout::Parts(3));
        // Parts of several sizes, parts below the minimum, a part that is no part.
        assert_eq!(kept(17 * MIB, 4, 8 * MIB), Layout::Whole);
        assert_eq!(kept(9 * MIB, 3, 3 * MIB), Layout::Whole);
        assert_eq!(kept(17 * MIB, 3, 17 * MIB), Layout::Whole);
        assert_eq!(kept(170 * MIB, 3, 0), Layout::Parts(OWN));
        assert_eq!(choose(170 * MIB, of_parts(3), None), Layout::Parts(OWN));
    }

    #[test]
    fn parts_are_guessed_by_their_number() {
        assert_eq!(guessed_part_bytes(20 * MIB, 3), Some(8 * MIB));
        assert_eq!(guessed_part_bytes(20 * MIB, 2), Some(16 * MIB));
        assert_eq!(guessed_part_bytes(1000 * MIB + 1, 11), Some(100 * MIB));
        assert_eq!(guessed_part_bytes(20 * MIB, 19), None);
    }

    #[test]
    fn the_largest_object_fits_into_the_largest_number_of_parts() {
        let Layout::Parts(bytes) = choose(5 * TIB, ETagKind::Opaque, None) else {
            panic!("5 TiB at once")
        };
        assert!(bytes <= PART_BYTES_MAX && bytes.is_multiple_of(MIB));
        let all: Vec<_> = parts(5 * TIB, bytes).collect();
        assert!(all.len() as u64 <= PARTS_MAX);
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].first));
        assert_eq!((all[0].first, all.last().unwrap().end), (0, 5 * TIB));
    }
}

//! Extents: immutable runs of object bytes.
//!
//! An extent never changes, so any copy of it is right, any two can be compared by hash, and a lost
//! delete leaves garbage but never a wrong answer. It has one owner for ever (rule X1), written
//! beside its bytes, so that a sweep can ask whether anyone still wants it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::id::{BucketId, ExtentId, UploadId, WriteId};

/// The one owner of an extent, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The bucket that its object lives in.
    pub bucket: BucketId,
    /// The key of the object.
    pub key: String,
    /// The write that brought it; for a part, the part's write.
    pub write_id: WriteId,
    /// The upload, if it came as a part.
    pub upload: Option<UploadId>,
    /// Which bytes these are.
    pub role: ExtentRole,
    /// Where the extent begins within the written object or part.
    pub offset: u64,
}

/// What the bytes of an extent are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentRole {
    /// Bytes of an object.
    Data,
    /// A piece of a manifest that was too long for its entry.
    Manifest,
}

/// One extent as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentRef {
    /// Its id, which also places it on the data ring.
    pub id: ExtentId,
    /// Its length in bytes: 1 up to [`EXTENT_BYTES_MAX`](crate::limits::EXTENT_BYTES_MAX).
    pub length: u32,
    /// BLAKE3 of its bytes.
    pub blake3: [u8; 32],
}

/// What a node says of an extent that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentRecord {
    /// Id, length and hash.
    pub extent: ExtentRef,
    /// Whose it is.
    pub owner: Owner,
    /// When its first copy was written, in milliseconds since 1970.
    pub birth_ms: u64,
}

/// Where an extent lies on a device, for those who read it in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentLocation {
    /// The file.
    pub path: std::path::PathBuf,
    /// Offset of the first byte in it: a multiple of 4 KiB.
    pub offset: u64,
    /// Bytes; the file goes on with zeros up to a multiple of 4 KiB.
    pub length: u64,
}

/// The part of `range` (of an object) that falls into an extent that begins at `start`, relative to
/// the extent.
pub fn overlap(range: &Range<u64>, start: u64, length: u64) -> Option<Range<u64>> {
    let from = range.start.max(start);
    let to = range.end.min(start + length);
    (from < to).then(|| from - start..to - start)
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn overlap_is_relative_to_the_extent() {
        assert_eq!(overlap(&(0..10), 0, 10), Some(0..10));
        assert_eq!(overlap(&(5..25), 10, 10), Some(0..10));
        assert_eq!(overlap(&(12..15), 10, 10), Some(2..5));
        assert_eq!(overlap(&(0..10), 10, 10), None);
        assert_eq!(overlap(&(20..30), 10, 10), None);
        assert_eq!(overlap(&(15..15), 10, 10), None);
    }
}

//! Extents: immutable runs of object bytes.
//!
//! An extent never changes. So every copy is valid, any two copies can be compared by hash, and a
//! lost delete leaves garbage but never a wrong reply. An extent has one permanent owner (rule X1),
//! written beside its bytes, so that a sweep can look up its owner.
//!
//! Under a policy of copies a device holds a whole extent. Under an erasure code it holds a
//! fragment, which the device treats as an extent: immutable, verified, moved and deleted like any
//! other. A fragment has a fragment id ([`ExtentId::fragment`]) and a stripe in its [`Layout`].
//! Manifests name the whole extent only. The replica number of an extent's partition on the ring is
//! the number of the fragment that the device should hold.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::id::{BucketId, ExtentId, PolicyId, UploadId, WriteId};

/// The permanent owner of an extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Bucket of the object.
    pub bucket: BucketId,
    /// Key of the object.
    pub key: String,
    /// Write that created the extent; for a part, the part's write.
    pub write_id: WriteId,
    /// The multipart upload, if the extent belongs to a part.
    pub upload: Option<UploadId>,
    /// Role of the bytes.
    pub role: ExtentRole,
    /// Offset of the extent in the written object or part, in bytes, with the facts of
    /// [`BodyFacts`] in the upper 18 bits.
    pub offset: u64,
}

/// Facts about the body of an extent, from which a lost index is rebuilt (rule X8).
///
/// They are stored in the bits of [`Owner::offset`] that no offset uses:
///
/// ```text
/// 63 known | 62 encrypted | 61 last | 60..47 number of the part, or 0 | 46 moved | 45..0 offset
/// ```
///
/// Extents of releases without facts have zeros there. Those releases don't read the offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyFacts {
    /// True if the stored bytes are encrypted: they can't be read without the mark of their entry.
    pub is_encrypted: bool,
    /// True if the body ends with this extent. False if its end was not known when the extent began.
    pub is_last: bool,
    /// True if a move to another policy wrote the extent: its birth is that of the move, and tells
    /// nothing of the order of versions.
    pub is_moved: bool,
    /// Number of the part that the body is: 1 to 10,000. [`BodyFacts::PIECE`] marks a piece of a moved
    /// object of several parts, whose end is not that of the object.
    pub part: Option<u16>,
}

/// Number of bits of an offset; objects have at most 5 TiB.
const OFFSET_BITS: u32 = 46;
/// Position of the number of the part.
const PART_AT: u32 = 47;
const KNOWN: u64 = 1 << 63;
const ENCRYPTED: u64 = 1 << 62;
const LAST: u64 = 1 << 61;
const MOVED: u64 = 1 << 46;
const PART_MAX: u64 = (1 << 14) - 1;

impl BodyFacts {
    /// Number above those of parts.
    pub const PIECE: u16 = (1 << 14) - 1;

    /// Returns an offset with these facts, for [`Owner::offset`].
    pub fn at(self, offset: u64) -> u64 {
        let part = u64::from(self.part.unwrap_or(0)) & PART_MAX;
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let flags = flag(self.is_encrypted, ENCRYPTED)
            | flag(self.is_last, LAST)
            | flag(self.is_moved, MOVED);
        KNOWN | flags | part << PART_AT | offset
    }
}

impl Owner {
    /// Returns the offset of the extent in the written object or part, in bytes.
    pub fn body_offset(&self) -> u64 {
        self.offset & ((1 << OFFSET_BITS) - 1)
    }

    /// Returns the facts about the body; none of an extent of an earlier release.
    pub fn facts(&self) -> Option<BodyFacts> {
        let part = u16::try_from(self.offset >> PART_AT & PART_MAX).unwrap_or(0);
        (self.offset & KNOWN != 0).then_some(BodyFacts {
            is_encrypted: self.offset & ENCRYPTED != 0,
            is_last: self.offset & LAST != 0,
            is_moved: self.offset & MOVED != 0,
            part: Some(part).filter(|part| *part > 0),
        })
    }
}

/// Role of an extent's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentRole {
    /// Bytes of an object.
    Data,
    /// Piece of a manifest that was too long for its entry.
    Manifest,
}

/// An extent as named by a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentRef {
    /// Extent id, which also places the extent on the data ring. Manifests have ids of whole
    /// extents.
    pub id: ExtentId,
    /// Length in bytes: 1 up to [`EXTENT_BYTES_MAX`](crate::limits::EXTENT_BYTES_MAX).
    pub length: u32,
    /// BLAKE3 of the bytes.
    pub blake3: [u8; 32],
}

/// Layout of an extent: written beside its bytes, so that a holder of any fragment can locate the
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Storage policy whose ring places the extent.
    pub policy: PolicyId,
    /// Stripe of a fragment; none for a copy of a whole extent.
    pub stripe: Option<Stripe>,
}

/// An extent that is stored as fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stripe {
    /// Number of data fragments.
    pub k: u8,
    /// Number of parity fragments.
    pub m: u8,
    /// Length of the whole extent in bytes, known before its first fragment is written.
    pub length: u32,
}

/// Record of an extent that a node holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentRecord {
    /// Id, length and hash.
    pub extent: ExtentRef,
    /// Owner of the extent.
    pub owner: Owner,
    /// Write time of the first copy, in milliseconds since 1970.
    pub birth_ms: u64,
    /// Layout of the extent.
    pub layout: Layout,
}

impl ExtentRecord {
    /// Returns the id in manifests: for a fragment, the id of its whole extent.
    pub fn named(&self) -> ExtentId {
        if self.layout.stripe.is_some() { self.extent.id.whole() } else { self.extent.id }
    }

    /// Returns the fragment's replica number in its partition; none for a whole copy, which may be
    /// any replica.
    pub fn replica(&self) -> Option<u8> {
        self.layout.stripe.map(|_| self.extent.id.fragment_number())
    }

    /// Decodes a record from postcard. A record from before layouts is a copy under policy 0.
    ///
    /// # Errors
    /// When the bytes are not a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes).or_else(|error| {
            // Bytes after the birth are a damaged layout, and not the end of an old record.
            let before = postcard::take_from_bytes::<(ExtentRef, Owner, u64)>(bytes);
            match before {
                Ok(((extent, owner, birth_ms), [])) => {
                    Ok(Self { extent, owner, birth_ms, layout: Layout::default() })
                }
                _ => Err(error),
            }
        })
    }
}

/// Location of an extent on a device, for readers in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentLocation {
    /// The file.
    pub path: std::path::PathBuf,
    /// Offset of the first byte in the file: a multiple of 4 KiB.
    pub offset: u64,
    /// Length in bytes; zeros follow in the file up to a multiple of 4 KiB.
    pub length: u64,
}

/// Intersection of `range` (of an object) with the extent that begins at `start`, relative to the
/// extent.
pub fn overlap(range: &Range<u64>, start: u64, length: u64) -> Option<Range<u64>> {
    let from = range.start.max(start);
    let to = range.end.min(start + length);
    (from < to).then(|| from - start..to - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_before_layouts_is_a_copy() {
        let owner = Owner {
            bucket: BucketId::random(),
            key: "k".into(),
            write_id: WriteId::random(),
            upload: None,
            role: ExtentRole::Data,
            offset: 7,
        };
        let extent = ExtentRef { id: ExtentId([0xff; 16]), length: 9, blake3: [1; 32] };
        let before = postcard::to_stdvec(&(extent, &owner, 5_u64)).unwrap();
        let mut record = ExtentRecord::decode(&before).unwrap();
        assert_eq!(record, ExtentRecord { extent, owner, birth_ms: 5, layout: Layout::default() });
        assert_eq!((record.named(), record.replica()), (extent.id, None));
        let stripe = Stripe { k: 4, m: 2, length: 9 };
        record.layout = Layout { policy: PolicyId(3), stripe: Some(stripe) };
        assert_eq!((record.named(), record.replica()), (extent.id.whole(), Some(31)));
        let bytes = postcard::to_stdvec(&record).unwrap();
        assert_eq!(ExtentRecord::decode(&bytes).unwrap(), record);
        assert!(ExtentRecord::decode(&bytes[..40]).is_err());
        let damaged = [&before[..], &[0xff; 8]].concat();
        assert!(ExtentRecord::decode(&damaged).is_err(), "its layout is unreadable, not missing");
    }

    #[test]
    fn facts_lie_above_the_offset_and_earlier_extents_have_none() {
        let owner = |offset| Owner {
            bucket: BucketId::random(),
            key: "k".into(),
            write_id: WriteId::random(),
            upload: None,
            role: ExtentRole::Data,
            offset,
        };
        let most = (5 << 40) - 1;
        for offset in [0, 1, 64 << 20, most] {
            assert_eq!((owner(offset).facts(), owner(offset).body_offset()), (None, offset));
            for bits in 0..8_u16 {
                for part in [None, Some(1), Some(10_000), Some(BodyFacts::PIECE)] {
                    let (is_encrypted, is_last) = (bits & 1 != 0, bits & 2 != 0);
                    let facts = BodyFacts { is_encrypted, is_last, is_moved: bits & 4 != 0, part };
                    let owner = owner(facts.at(offset));
                    assert_eq!((owner.facts(), owner.body_offset()), (Some(facts), offset));
                }
            }
        }
    }

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

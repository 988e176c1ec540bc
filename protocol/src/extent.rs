//! Extents: immutable runs of object bytes.
//!
//! An extent never changes, so any copy of it is right, any two can be compared by hash, and a lost
//! delete leaves garbage but never a wrong answer. It has one owner for ever (rule X1), written
//! beside its bytes, so that a sweep can ask whether anyone still wants it.
//!
//! Under a policy of copies a device holds an extent as it is. Under an erasure code it holds a
//! fragment, which is an extent of its own to it: immutable, verified, moved and deleted like any
//! other. What makes it a fragment are its id ([`ExtentId::fragment`]) and its [`Layout`]; manifests
//! name the extent only, and the ring's replica number of an extent's partition is the number of the
//! fragment that the device should hold.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::id::{BucketId, ExtentId, PolicyId, UploadId, WriteId};

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
    /// Its id, which also places it on the data ring. In a manifest that of a whole extent.
    pub id: ExtentId,
    /// Its length in bytes: 1 up to [`EXTENT_BYTES_MAX`](crate::limits::EXTENT_BYTES_MAX).
    pub length: u32,
    /// BLAKE3 of its bytes.
    pub blake3: [u8; 32],
}

/// How the bytes of an extent are kept: written beside them, so that whoever holds any of them can
/// tell where the others belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// The policy whose ring places it.
    pub policy: PolicyId,
    /// What these bytes are a fragment of; none for a copy of a whole extent.
    pub stripe: Option<Stripe>,
}

/// An extent that is kept as fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stripe {
    /// Fragments of data.
    pub k: u8,
    /// Fragments of parity.
    pub m: u8,
    /// Bytes of the extent, known before its first fragment is written.
    pub length: u32,
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
    /// How it is kept.
    pub layout: Layout,
}

impl ExtentRecord {
    /// What a manifest calls it: for a fragment, the extent that it is a fragment of.
    pub fn named(&self) -> ExtentId {
        if self.layout.stripe.is_some() { self.extent.id.whole() } else { self.extent.id }
    }

    /// The number of the replica that it is of its partition, if that matters: any copy of an extent
    /// may take any replica's place, a fragment only its own.
    pub fn replica(&self) -> Option<u8> {
        self.layout.stripe.map(|_| self.extent.id.fragment_number())
    }

    /// A record as postcard; one that was written before there were layouts is a copy under policy 0.
    ///
    /// # Errors
    /// When the bytes are no record.
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes).or_else(|error| {
            let before: Result<(ExtentRef, Owner, u64), _> = postcard::from_bytes(bytes);
            let (extent, owner, birth_ms) = before.map_err(|_| error)?;
            Ok(Self { extent, owner, birth_ms, layout: Layout::default() })
        })
    }
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

//! How much buckets hold, how much they may hold, and the seam between the worker that counts and the
//! object layer that knows what there is.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::entry::{Attributes, Body, Bucket, Object, Part};
use crate::error::{Error, Result};
use crate::id::{BucketId, Shard, UploadId};
use crate::version::VersionId;

/// Bytes of the index that are charged for an entry beside its key and what it says: for its register, its
/// place in the trees over it, and the tombstone that it may leave.
pub const ENTRY_BYTES: u64 = 512;
/// Bytes of the index that a quota allows beside its other bounds, where it has no bound for the index.
pub const INDEX_BYTES_FREE: u64 = 1024 * 1024 * 1024;
/// Bytes of the index that such a quota allows for each object: as many as the longest entry has.
pub const INDEX_BYTES_OF_OBJECT: u64 = 64 * 1024;

/// What is held: bytes as clients sent them, versions of objects, and what they take of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of all versions, and of the parts of uploads that are open.
    pub bytes: u64,
    /// Versions of objects; neither delete markers nor parts.
    pub objects: u64,
    /// Bytes of the index, for versions, delete markers, open uploads and their parts, and buckets with
    /// their settings: [`ENTRY_BYTES`] each, their keys, and what they say. Inline bytes count as bytes.
    #[serde(default)]
    pub index: u64,
}

/// Bytes of a value as the index has it.
fn encoded(value: &impl Serialize) -> u64 {
    let size = postcard::experimental::serialized_size(value);
    size.expect("a value in memory can be measured") as u64
}

fn of_index(key: &str, bytes: u64) -> Usage {
    Usage { index: ENTRY_BYTES + key.len() as u64 + bytes, ..Usage::default() }
}

impl Usage {
    /// A version of an object.
    pub fn of_object(key: &str, object: &Object) -> Self {
        let mut bytes = encoded(object) + encoded(&object.attributes.marks);
        if let Body::Extents(manifest) = &object.body {
            bytes += encoded(&manifest.part_checksums);
        }
        Self { bytes: object.size, objects: 1, ..of_index(key, bytes) }
    }

    /// An entry that says this about its key: an upload, or an object of whose bytes nothing is known.
    pub fn of_attributes(key: &str, attributes: &Attributes) -> Self {
        of_index(key, encoded(attributes) + encoded(&attributes.marks))
    }

    /// A delete marker.
    pub fn of_marker(key: &str) -> Self {
        of_index(key, 0)
    }

    /// A part of an upload.
    pub fn of_part(part: &Part) -> Self {
        Self { bytes: part.size, ..of_index("", encoded(part)) }
    }

    /// A part of which nothing but its size is known.
    pub fn of_new_part(size: u64) -> Self {
        Self { bytes: size, ..of_index("", 0) }
    }

    /// A bucket that holds nothing.
    pub fn of_bucket(name: &str, bucket: &Bucket) -> Self {
        of_index(name, encoded(bucket))
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
            index: self.index.saturating_add(other.index),
        }
    }

    /// What is left without the other; never less than nothing.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
            index: self.index.saturating_sub(other.index),
        }
    }
}

/// How much may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes at most.
    pub bytes: Option<u64>,
    /// Versions of objects at most.
    pub objects: Option<u64>,
    /// Bytes of the index at most; without it, those of [`Quota::index_max`].
    #[serde(default)]
    pub index: Option<u64>,
}

/// What there would be too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// More bytes than these.
    Bytes(u64),
    /// More objects than these.
    Objects(u64),
    /// More bytes of the index than these.
    Index(u64),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bound) => write!(f, "{bound} bytes"),
            Self::Objects(bound) => write!(f, "{bound} objects"),
            Self::Index(bound) => write!(f, "{bound} bytes of the index"),
        }
    }
}

/// The first byte of a document.
const VERSION: u8 = 2;
/// In which there was no bound for the index.
const VERSION_BEFORE_INDEX: u8 = 1;

impl Quota {
    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes of the index at most: as it was set, or else so many that whoever keeps within the other
    /// bounds doesn't meet it, but by millions of empty objects, delete markers or uploads. None where
    /// nothing is limited.
    pub fn index_max(&self) -> Option<u64> {
        if self.is_none() {
            return None;
        }
        let (bytes, objects) = (self.bytes.unwrap_or(0), self.objects.unwrap_or(0));
        let of_objects = objects.saturating_mul(INDEX_BYTES_OF_OBJECT);
        let allowed = INDEX_BYTES_FREE.saturating_add(bytes).saturating_add(of_objects);
        Some(self.index.unwrap_or(allowed))
    }

    /// What is wrong with `asked` on top of `used`. Whoever asks for nothing of a kind is never refused
    /// for it.
    ///
    /// # Errors
    /// The bound that would be passed.
    pub fn check(&self, used: Usage, asked: Usage) -> Result<(), Excess> {
        let passes = |bound: &u64, used: u64, asked: u64| {
            asked > 0 && used.checked_add(asked).is_none_or(|sum| sum > *bound)
        };
        if let Some(bound) = self.bytes.filter(|it| passes(it, used.bytes, asked.bytes)) {
            return Err(Excess::Bytes(bound));
        }
        if let Some(bound) = self.objects.filter(|it| passes(it, used.objects, asked.objects)) {
            return Err(Excess::Objects(bound));
        }
        match self.index_max().filter(|it| passes(it, used.index, asked.index)) {
            Some(bound) => Err(Excess::Index(bound)),
            None => Ok(()),
        }
    }

    /// As a document of a bucket. One without a bound for the index is readable for earlier versions.
    pub fn encode(&self) -> Vec<u8> {
        let (version, document) = match self.index {
            None => (VERSION_BEFORE_INDEX, postcard::to_stdvec(&(self.bytes, self.objects))),
            Some(_) => (VERSION, postcard::to_stdvec(self)),
        };
        [&[version], &document.expect("numbers in memory can be written")[..]].concat()
    }

    /// The inverse.
    ///
    /// # Errors
    /// When it is none, or a later version wrote it.
    pub fn decode(document: &[u8]) -> Result<Self> {
        let unread = || Error::corrupt("the quota of a bucket can't be read");
        match document.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|_| unread()),
            Some((&VERSION_BEFORE_INDEX, rest)) => {
                let (bytes, objects) = postcard::from_bytes(rest).map_err(|_| unread())?;
                Ok(Self { bytes, objects, index: None })
            }
            _ => Err(unread()),
        }
    }
}

/// A bucket that is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Countable {
    /// The bucket.
    pub id: BucketId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: String,
    /// When the last count of it was begun and how long that took, in milliseconds; none before the
    /// first.
    pub counted: Option<(u64, u64)>,
}

/// A count on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// What is counted.
    pub bucket: Countable,
    /// When it was begun, in milliseconds since 1970: what was written later may be in it or not.
    pub began_ms: u64,
    /// What was counted so far.
    pub usage: Usage,
    /// Things that the last stretch looked at.
    pub seen: u64,
    /// Where it goes on.
    pub at: CountAt,
}

/// Where a count goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountAt {
    /// Among the versions of a shard, behind a key and one of its versions.
    Versions(Shard, Option<(String, Option<VersionId>)>),
    /// Among the open uploads, behind a key and one of its uploads.
    Uploads(Option<(String, Option<UploadId>)>),
    /// Nowhere: it is done.
    Done,
}

impl Count {
    /// A count that begins now.
    pub fn begin(bucket: Countable, now_ms: u64) -> Self {
        let at = CountAt::Versions(Shard(0), None);
        Self { bucket, began_ms: now_ms, usage: Usage::default(), seen: 0, at }
    }
}

/// Counts what buckets hold. Any number may be at it: the last report counts.
#[async_trait]
pub trait UsageCounter: Send + Sync {
    /// The buckets that a quota speaks of, with their last counts. Counts of others are deleted.
    ///
    /// # Errors
    /// When too few nodes answer.
    async fn countable(&self) -> Result<Vec<Countable>>;

    /// Counts a stretch more.
    ///
    /// # Errors
    /// When it can't be listed, or the bucket is gone. The count is the same as before then.
    async fn count(&self, count: &mut Count) -> Result<()>;

    /// Tells everybody what a count has come to that is done.
    ///
    /// # Errors
    /// When too few nodes answer.
    async fn report(&self, count: &Count) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(bytes: u64, objects: u64) -> Usage {
        Usage { bytes, objects, index: 0 }
    }

    fn quota(bytes: Option<u64>, objects: Option<u64>) -> Quota {
        Quota { bytes, objects, index: None }
    }

    #[test]
    fn a_quota_is_a_bound_that_may_be_reached_and_not_passed() {
        let bound = quota(Some(10), Some(2));
        assert_eq!(bound.check(usage(9, 0), usage(1, 1)), Ok(()));
        assert_eq!(bound.check(usage(9, 0), usage(2, 1)), Err(Excess::Bytes(10)));
        assert_eq!(bound.check(usage(0, 2), usage(0, 1)), Err(Excess::Objects(2)));
        assert_eq!(bound.check(usage(20, 1), usage(0, 1)), Ok(()), "it asks for no bytes");
        assert_eq!(bound.check(usage(1, 9), usage(1, 0)), Ok(()), "nor this one for objects");
        assert_eq!(bound.check(usage(1, 0), usage(u64::MAX, 1)), Err(Excess::Bytes(10)));
        let nothing = quota(Some(0), None);
        assert_eq!(nothing.check(usage(0, 0), usage(1, 1)), Err(Excess::Bytes(0)));
        assert_eq!(Quota::default().check(usage(u64::MAX, 7), usage(u64::MAX, 7)), Ok(()));
    }

    #[test]
    fn a_quota_bounds_the_index_whatever_it_was_set_for() {
        let of_index = |index| Usage { index, ..Usage::default() };
        let set = Quota { index: Some(1000), ..quota(Some(10), None) };
        assert_eq!(set.check(of_index(488), of_index(512)), Ok(()));
        assert_eq!(set.check(of_index(489), of_index(512)), Err(Excess::Index(1000)));
        assert_eq!(set.check(of_index(2000), usage(1, 0)), Ok(()), "it asks for none");
        let derived = quota(Some(5), Some(2)).index_max().unwrap();
        assert_eq!(derived, INDEX_BYTES_FREE + 5 + 2 * INDEX_BYTES_OF_OBJECT);
        let vast = quota(Some(u64::MAX), Some(u64::MAX));
        assert_eq!(vast.index_max(), Some(u64::MAX));
        assert_eq!(Quota::default().index_max(), None);
    }

    #[test]
    fn an_entry_takes_of_the_index_what_it_says_and_more() {
        let attributes = Attributes {
            user_metadata: vec![("a".repeat(1000), "b".repeat(500))],
            ..Attributes::default()
        };
        let said = Usage::of_attributes("key", &attributes).index;
        assert!((ENTRY_BYTES + 1503..ENTRY_BYTES + 1600).contains(&said), "{said}");
        assert_eq!(Usage::of_marker("key"), Usage { index: ENTRY_BYTES + 3, ..Usage::default() });
        assert_eq!(Usage::of_new_part(7).bytes, 7);
    }

    #[test]
    fn documents_are_read_as_they_are_written() {
        for quota in [
            quota(Some(u64::MAX), None),
            quota(None, Some(0)),
            Quota { index: Some(7), ..quota(Some(9), None) },
            Quota::default(),
        ] {
            assert_eq!(Quota::decode(&quota.encode()).unwrap(), quota);
        }
        assert_eq!(quota(Some(5), None).encode(), [1, 1, 5, 0], "for good");
        let of_index = Quota { index: Some(7), ..Quota::default() };
        assert_eq!(of_index.encode(), [2, 0, 0, 1, 7], "for good");
        for wrong in [&b""[..], &[9, 0, 0], &[1, 7], &[2, 0, 0]] {
            assert!(Quota::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sums_end_at_the_largest_number_and_differences_at_nothing() {
        assert_eq!(usage(u64::MAX, 1).plus(usage(1, 1)), usage(u64::MAX, 2));
        assert_eq!(usage(1, 5).less(usage(2, 1)), usage(0, 4));
    }
}

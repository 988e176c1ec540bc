//! Usage and quotas of buckets, and the trait between the counting worker and the object layer.

use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::entry::{Attributes, Body, Bucket, Object, Part};
use crate::error::{Error, Result};
use crate::id::{BucketId, Shard, UploadId};
use crate::version::VersionId;

/// Index bytes charged for each entry besides its key and value: for its register, its share of the
/// tree, and the tombstone that it may leave.
pub const ENTRY_BYTES: u64 = 512;
/// Base of the derived index bound, in bytes, for a quota without an explicit one.
pub const INDEX_BYTES_FREE: u64 = 1024 * 1024 * 1024;
/// Index bytes per allowed object in the derived index bound: the length of the longest entry.
pub const INDEX_BYTES_OF_OBJECT: u64 = 64 * 1024;

/// Usage: bytes as sent by clients, versions of objects, and bytes of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of all versions, and of the parts of open uploads.
    pub bytes: u64,
    /// Number of object versions, without delete markers and parts.
    pub objects: u64,
    /// Index bytes of versions, delete markers, open uploads with their parts, and buckets with
    /// their settings: [`ENTRY_BYTES`] each, their keys and their values. Inline bytes count as
    /// `bytes`.
    #[serde(default)]
    pub index: u64,
}

/// Length of a value in the index, in bytes.
fn encoded(value: &impl Serialize) -> u64 {
    let size = postcard::experimental::serialized_size(value);
    size.expect("a value in memory can be measured") as u64
}

fn of_index(key: &str, bytes: u64) -> Usage {
    Usage { index: ENTRY_BYTES + key.len() as u64 + bytes, ..Usage::default() }
}

impl Usage {
    /// Usage of an object version.
    pub fn of_object(key: &str, object: &Object) -> Self {
        let mut bytes = encoded(object) + encoded(&object.attributes.marks);
        if let Body::Extents(manifest) = &object.body {
            bytes += encoded(&manifest.part_checksums);
        }
        Self { bytes: object.size, objects: 1, ..of_index(key, bytes) }
    }

    /// Usage of an entry with these attributes: an upload, or an object with unknown body.
    pub fn of_attributes(key: &str, attributes: &Attributes) -> Self {
        of_index(key, encoded(attributes) + encoded(&attributes.marks))
    }

    /// Usage of a delete marker.
    pub fn of_marker(key: &str) -> Self {
        of_index(key, 0)
    }

    /// Usage of a part of an upload.
    pub fn of_part(part: &Part) -> Self {
        Self { bytes: part.size, ..of_index("", encoded(part)) }
    }

    /// Usage of a part with only its size known.
    pub fn of_new_part(size: u64) -> Self {
        Self { bytes: size, ..of_index("", 0) }
    }

    /// Usage of an empty bucket.
    pub fn of_bucket(name: &str, bucket: &Bucket) -> Self {
        of_index(name, encoded(bucket))
    }

    /// Returns the sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
            index: self.index.saturating_add(other.index),
        }
    }

    /// Returns the difference; saturates at zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
            index: self.index.saturating_sub(other.index),
        }
    }
}

/// Quota of a bucket or tenant; unset bounds are unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Most bytes.
    pub bytes: Option<u64>,
    /// Most object versions.
    pub objects: Option<u64>,
    /// Most index bytes; if unset, [`Quota::index_max`] derives the bound.
    #[serde(default)]
    pub index: Option<u64>,
}

/// Bound of a quota that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The bound on bytes.
    Bytes(u64),
    /// The bound on objects.
    Objects(u64),
    /// The bound on index bytes.
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

/// Format version of the document, in its first byte.
const VERSION: u8 = 2;
/// Format without a bound for the index.
const VERSION_BEFORE_INDEX: u8 = 1;

impl Quota {
    /// True if nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the bound on index bytes: the explicit one, or a derived one. Only millions of empty
    /// objects, delete markers or uploads exceed the derived bound before the others. None if
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

    /// Checks that `used` plus `requested` stays within the bounds. A bound applies only if
    /// `requested` adds to it.
    ///
    /// # Errors
    /// The bound that would be exceeded.
    pub fn check(&self, used: Usage, requested: Usage) -> Result<(), Excess> {
        let passes = |bound: &u64, used: u64, requested: u64| {
            requested > 0 && used.checked_add(requested).is_none_or(|sum| sum > *bound)
        };
        if let Some(bound) = self.bytes.filter(|it| passes(it, used.bytes, requested.bytes)) {
            return Err(Excess::Bytes(bound));
        }
        if let Some(bound) = self.objects.filter(|it| passes(it, used.objects, requested.objects)) {
            return Err(Excess::Objects(bound));
        }
        match self.index_max().filter(|it| passes(it, used.index, requested.index)) {
            Some(bound) => Err(Excess::Index(bound)),
            None => Ok(()),
        }
    }

    /// Encodes the quota as a bucket's document. Without a bound for the index, earlier versions
    /// can read the document.
    pub fn encode(&self) -> Vec<u8> {
        let (version, document) = match self.index {
            None => (VERSION_BEFORE_INDEX, postcard::to_stdvec(&(self.bytes, self.objects))),
            Some(_) => (VERSION, postcard::to_stdvec(self)),
        };
        [&[version], &document.expect("numbers in memory can be written")[..]].concat()
    }

    /// Decodes a document of [`Quota::encode`].
    ///
    /// # Errors
    /// When the bytes are not a quota, or have a later version.
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

/// A bucket whose usage is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Countable {
    /// Bucket id.
    pub id: BucketId,
    /// Name of the bucket.
    pub name: String,
    /// Canonical id of the owning tenant.
    pub owner: String,
    /// Number of shards of its index.
    pub index_shards: u16,
    /// True if a quota of the bucket or of its owner applies.
    pub limited: bool,
    /// Usage of the bucket itself, without its contents.
    pub own: Usage,
    /// The last count; none before the first one.
    pub counted: Option<Counted>,
}

/// Result of the last count of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Usage of the bucket.
    pub usage: Usage,
    /// Start of the count, in milliseconds since 1970.
    pub began_ms: u64,
    /// Duration of the count, in milliseconds.
    pub took_ms: u64,
}

/// A count in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Bucket that is counted.
    pub bucket: Countable,
    /// Start of the count, in milliseconds since 1970: later writes may be counted or not.
    pub began_ms: u64,
    /// Usage counted so far.
    pub usage: Usage,
    /// Number of items examined by the last run.
    pub seen: u64,
    /// Cursor of the next run.
    pub at: CountAt,
}

/// Cursor of a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountAt {
    /// Among the versions of a shard, after a key and one of its versions.
    Versions(Shard, Option<(String, Option<VersionId>)>),
    /// Among the open uploads, after a key and one of its uploads.
    Uploads(Option<(String, Option<UploadId>)>),
    /// Finished.
    Done,
}

impl Count {
    /// Starts a count at `now_ms`.
    pub fn begin(bucket: Countable, now_ms: u64) -> Self {
        let at = CountAt::Versions(Shard(0), None);
        Self { bucket, began_ms: now_ms, usage: Usage::default(), seen: 0, at }
    }

    /// Returns a finished count with this usage.
    pub fn done(bucket: Countable, began_ms: u64, usage: Usage) -> Self {
        Self { bucket, began_ms, usage, seen: 0, at: CountAt::Done }
    }
}

/// Counts the usage of buckets. Any number of workers may count at once: the last report is used.
#[async_trait]
pub trait UsageCounter: Send + Sync {
    /// Returns the buckets in some shards of the list of buckets, with their last counts. Deletes
    /// counts of deleted buckets, a bounded number of those that fall to these shards by the hash of
    /// their id, or are old. A count that can't be deleted stays for the next call.
    ///
    /// # Errors
    /// When too few nodes answer.
    async fn countable(&self, shards: &BTreeSet<Shard>) -> Result<Vec<Countable>>;

    /// Returns the last published count of a bucket.
    ///
    /// # Errors
    /// When too few nodes answer.
    async fn last_count(&self, bucket: &Countable) -> Result<Option<Counted>>;

    /// Adds up the usage that devices keep, for each bucket in their order. None for a bucket if too
    /// few holders of one of its shards answer, or keep usage. Costs a look-up for each shard and
    /// replica, whatever the buckets contain.
    ///
    /// # Errors
    /// When no device can be asked.
    async fn add_up(&self, buckets: &[Countable]) -> Result<Vec<Option<Usage>>>;

    /// Continues a count by one run: for buckets whose usage devices don't keep yet.
    ///
    /// # Errors
    /// When the bucket can't be listed, or was deleted. Then the count is unchanged.
    async fn count(&self, count: &mut Count) -> Result<()>;

    /// Publishes the result of a finished count.
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
    fn every_quota_bounds_the_index() {
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
    fn an_entry_takes_at_least_its_stated_index_bytes() {
        let attributes = Attributes {
            user_metadata: vec![("a".repeat(1000), "b".repeat(500))],
            ..Attributes::default()
        };
        let counted = Usage::of_attributes("key", &attributes).index;
        assert!((ENTRY_BYTES + 1503..ENTRY_BYTES + 1600).contains(&counted), "{counted}");
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

//! How much buckets hold, how much they may hold, and the seam between the worker that counts and the
//! object layer that knows what there is.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{BucketId, Shard, UploadId};
use crate::version::VersionId;

/// What is held: bytes as clients sent them, and versions of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of all versions, and of the parts of uploads that are open.
    pub bytes: u64,
    /// Versions of objects; neither delete markers nor parts.
    pub objects: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
        }
    }

    /// What is left without the other; never less than nothing.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
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
}

/// What there would be too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// More bytes than these.
    Bytes(u64),
    /// More objects than these.
    Objects(u64),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bound) => write!(f, "{bound} bytes"),
            Self::Objects(bound) => write!(f, "{bound} objects"),
        }
    }
}

/// The first byte of a document.
const VERSION: u8 = 1;

impl Quota {
    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
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
        match self.objects.filter(|it| passes(it, used.objects, asked.objects)) {
            Some(bound) => Err(Excess::Objects(bound)),
            None => Ok(()),
        }
    }

    /// As a document of a bucket.
    pub fn encode(&self) -> Vec<u8> {
        let document = postcard::to_stdvec(self).expect("numbers in memory can be written");
        [&[VERSION], &document[..]].concat()
    }

    /// The inverse.
    ///
    /// # Errors
    /// When it is none, or a later version wrote it.
    pub fn decode(document: &[u8]) -> Result<Self> {
        let unread = || Error::corrupt("the quota of a bucket can't be read");
        match document.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|_| unread()),
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
        Usage { bytes, objects }
    }

    #[test]
    fn a_quota_is_a_bound_that_may_be_reached_and_not_passed() {
        let quota = Quota { bytes: Some(10), objects: Some(2) };
        assert_eq!(quota.check(usage(9, 0), usage(1, 1)), Ok(()));
        assert_eq!(quota.check(usage(9, 0), usage(2, 1)), Err(Excess::Bytes(10)));
        assert_eq!(quota.check(usage(0, 2), usage(0, 1)), Err(Excess::Objects(2)));
        assert_eq!(quota.check(usage(20, 1), usage(0, 1)), Ok(()), "it asks for no bytes");
        assert_eq!(quota.check(usage(1, 9), usage(1, 0)), Ok(()), "nor this one for objects");
        assert_eq!(quota.check(usage(1, 0), usage(u64::MAX, 1)), Err(Excess::Bytes(10)));
        let nothing = Quota { bytes: Some(0), objects: None };
        assert_eq!(nothing.check(usage(0, 0), usage(1, 1)), Err(Excess::Bytes(0)));
        assert_eq!(Quota::default().check(usage(u64::MAX, 7), usage(u64::MAX, 7)), Ok(()));
    }

    #[test]
    fn documents_are_read_as_they_are_written() {
        for quota in [
            Quota { bytes: Some(u64::MAX), objects: None },
            Quota { bytes: None, objects: Some(0) },
            Quota::default(),
        ] {
            assert_eq!(Quota::decode(&quota.encode()).unwrap(), quota);
        }
        assert_eq!(Quota { bytes: Some(5), objects: None }.encode(), [1, 1, 5, 0], "for good");
        for wrong in [&b""[..], &[9, 0, 0], &[1, 7]] {
            assert!(Quota::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sums_end_at_the_largest_number_and_differences_at_nothing() {
        assert_eq!(usage(u64::MAX, 1).plus(usage(1, 1)), usage(u64::MAX, 2));
        assert_eq!(usage(1, 5).less(usage(2, 1)), usage(0, 4));
    }
}

//! State of the model: buckets, versions and uploads.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::expected::{Outcome, VersionId};
use crate::operation::{Bucket, Conditions, Description, Lock, Object, Since, Step, Tag, Version};

/// S3's codes with their statuses (<https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>).
pub(crate) const NO_BUCKET: Outcome = (404, "NoSuchBucket");
pub(crate) const NO_KEY: Outcome = (404, "NoSuchKey");
pub(crate) const NO_VERSION: Outcome = (404, "NoSuchVersion");
pub(crate) const NO_UPLOAD: Outcome = (404, "NoSuchUpload");
pub(crate) const FAILED: Outcome = (412, "PreconditionFailed");
pub(crate) const ARGUMENT: Outcome = (400, "InvalidArgument");
pub(crate) const REQUEST: Outcome = (400, "InvalidRequest");
pub(crate) const MALFORMED: Outcome = (400, "MalformedXML");
pub(crate) const DENIED: Outcome = (403, "AccessDenied");
pub(crate) const NOT_ALLOWED: Outcome = (405, "MethodNotAllowed");

/// Longest key, in bytes.
pub(crate) const KEY_MAX: usize = 1024;
const TAGS_MAX: usize = 10;

/// Versioning of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Versioning {
    #[default]
    Off,
    Enabled,
    Suspended,
}

/// A bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct BucketState {
    pub(crate) versioning: Versioning,
    pub(crate) lock: bool,
    /// New versions are retained until tomorrow unless their requests name a retention.
    pub(crate) default_retention: bool,
    /// Versions of each key, newest first.
    pub(crate) keys: BTreeMap<String, Vec<Stored>>,
    pub(crate) uploads: BTreeMap<Step, UploadState>,
    /// Documents by kind, as they were put.
    pub(crate) documents: BTreeMap<usize, usize>,
}

/// A version or a delete marker.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) id: VersionId,
    /// Position among all writes of the sequence. Times follow it: a multipart object has the time
    /// of its completion (docs/S3.md, Conditions).
    pub(crate) order: u64,
    /// None for a delete marker.
    pub(crate) data: Option<Data>,
}

/// An object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) bytes: Bytes,
    pub(crate) etag: String,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) lock: Lock,
    /// Algorithm and value of a checksum that the request named.
    pub(crate) checksum: Option<(usize, String)>,
    /// Ends of the parts of a multipart object.
    pub(crate) part_ends: Vec<usize>,
}

/// An upload.
#[derive(Clone, Debug)]
pub(crate) struct UploadState {
    pub(crate) key: String,
    pub(crate) description: Description,
    pub(crate) parts: BTreeMap<i32, Bytes>,
    /// Numbers and ETags of the parts that completed the upload, and the version that it made.
    pub(crate) completed: Option<Completion>,
}

/// Completion of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) parts: Vec<(i32, String)>,
    pub(crate) etag: String,
    pub(crate) version: Option<VersionId>,
}

impl BucketState {
    pub(crate) fn current(&self, key: &str) -> Option<&Stored> {
        self.keys.get(key)?.first()
    }

    /// The current object, unless it is a delete marker.
    pub(crate) fn current_data(&self, key: &str) -> Option<&Data> {
        self.current(key)?.data.as_ref()
    }

    /// Finds the version that a request names, or the error of a read.
    pub(crate) fn find(&self, key: &str, version: Version) -> Result<&Stored, Outcome> {
        let versions = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let id = match version {
            Version::Current => return versions.first().ok_or(NO_KEY),
            Version::Malformed => return Err(ARGUMENT),
            Version::Missing => return Err(NO_VERSION),
            Version::Null => VersionId::Null,
            Version::Of(made) => VersionId::Made(made),
        };
        versions.iter().find(|it| it.id == id).ok_or(NO_VERSION)
    }

    pub(crate) fn find_mut(&mut self, key: &str, version: Version) -> Option<&mut Data> {
        let id = self.find(key, version).ok()?.id;
        self.keys.get_mut(key)?.iter_mut().find(|it| it.id == id)?.data.as_mut()
    }

    /// Returns true if nothing keeps the bucket from being deleted. Uploads don't.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Id that replies name: of each version once versions were enabled.
    pub(crate) fn shown(&self, id: VersionId) -> Option<VersionId> {
        (self.versioning != Versioning::Off).then_some(id)
    }
}

/// Buckets of a sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    buckets: BTreeMap<Bucket, BucketState>,
    writes: u64,
}

impl State {
    pub(crate) fn bucket(&self, bucket: Bucket) -> Result<&BucketState, Outcome> {
        self.buckets.get(&bucket).ok_or(NO_BUCKET)
    }

    pub(crate) fn bucket_mut(&mut self, bucket: Bucket) -> Result<&mut BucketState, Outcome> {
        self.buckets.get_mut(&bucket).ok_or(NO_BUCKET)
    }

    pub(crate) fn insert(&mut self, bucket: Bucket, state: BucketState) {
        self.buckets.insert(bucket, state);
    }

    pub(crate) fn remove(&mut self, bucket: Bucket) {
        self.buckets.remove(&bucket);
    }

    pub(crate) fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// Data that a condition or copy is about, if there is an object.
    pub(crate) fn data(&self, object: &Object, version: Version) -> Option<&Data> {
        self.bucket(object.bucket).ok()?.find(&object.key, version).ok()?.data.as_ref()
    }
}

/// Faults of a key.
pub(crate) fn key_faults(object: &Object) -> Vec<Outcome> {
    if object.key.len() > KEY_MAX { vec![(400, "KeyTooLongError")] } else { Vec::new() }
}

/// Faults of tags in a header or a document. Two tags with one key are of their own code in a
/// header (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_Tag.html>).
pub(crate) fn tag_faults(tags: &[(String, String)], in_header: bool) -> Vec<Outcome> {
    let mut faults = Vec::new();
    let allowed =
        |text: &str| text.chars().all(|it| it.is_alphanumeric() || " +-=._:/@".contains(it));
    let is_good = |(key, value): &(String, String)| {
        (1..=128).contains(&key.chars().count())
            && value.chars().count() <= 256
            && allowed(key)
            && allowed(value)
    };
    if !tags.iter().all(is_good) {
        faults.push((400, "InvalidTag"));
        faults.extend(in_header.then_some(ARGUMENT));
    }
    if tags.len() > TAGS_MAX {
        faults.extend([(400, "BadRequest"), (400, "InvalidTag")]);
    }
    let twice = |at: usize| tags[..at].iter().any(|it| it.0 == tags[at].0);
    if (0..tags.len()).any(twice) {
        faults.push(if in_header { ARGUMENT } else { (400, "InvalidTag") });
    }
    faults
}

/// Faults of a new object's lock.
pub(crate) fn lock_faults(description: &Description, bucket: &BucketState) -> Vec<Outcome> {
    if description.lock.is_some() && !bucket.lock { vec![REQUEST] } else { Vec::new() }
}

/// Judges conditions of a read on an object
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html>): dates count only without
/// an ETag of their kind, and what is no date is ignored. Returns the failed condition's status.
pub(crate) fn read_conditions(conditions: Conditions) -> Option<u16> {
    match (conditions.matches, conditions.unmodified) {
        (Some(Tag::Wrong | Tag::Empty), _) | (None, Some(Since::LongAgo)) => return Some(412),
        _ => {}
    }
    match (conditions.none_match, conditions.modified) {
        (Some(Tag::Any | Tag::Right | Tag::List), _) | (None, Some(Since::Then)) => Some(304),
        _ => None,
    }
}

/// Judges conditions of a write on the current object
/// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html>). `If-Match` of
/// an absent object is 404, and a condition that can't be read is never taken for none.
pub(crate) fn write_conditions(conditions: Conditions, current: Option<&Data>) -> Vec<Outcome> {
    let mut faults = Vec::new();
    match (conditions.matches, current) {
        (Some(Tag::Wrong | Tag::Right | Tag::List | Tag::Any), None) => faults.push(NO_KEY),
        (Some(Tag::Wrong), Some(_)) => faults.push(FAILED),
        _ => {}
    }
    let refuses = matches!(conditions.none_match, Some(Tag::Any | Tag::Right | Tag::List));
    if refuses && current.is_some() {
        faults.push(FAILED);
    }
    if conditions.modified.is_some() || conditions.unmodified.is_some() {
        faults.push((501, "NotImplemented"));
    }
    faults
}

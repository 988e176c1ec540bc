//! Requests of the object layer and their replies.

use std::ops::Range;
use std::sync::Arc;

use martlet_protocol::backend::{ByteStream, Detail};
use martlet_protocol::entry::{
    Attributes, Bucket, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, ETagKind, Marks, Object,
    Part,
};
use martlet_protocol::extent::{ExtentLocation, ExtentRef};
use martlet_protocol::{DeviceId, Settings, Stamp, UploadId, Version, VersionId};

use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::Result;

/// Returns the checksums that the client sent. Trailers are known only after the body.
pub type ExpectedChecksums = dyn FnOnce() -> Result<Vec<(ChecksumAlgorithm, Vec<u8>)>> + Send;

/// A request body, and the size and checksums that are verified before its commit.
pub struct NewBody {
    /// The bytes. A client's own error is passed on as [`Error::Body`](crate::Error::Body).
    pub bytes: ByteStream,
    /// Declared number of bytes, if known; a body of another length is refused.
    pub size: Option<u64>,
    /// MD5 from the request headers.
    pub md5: Option<[u8; 16]>,
    /// Checksums to compute, store and compare with those of [`NewBody::expected`].
    pub compute: Vec<ChecksumAlgorithm>,
    /// Called after the body's end: checksums that the client sent in headers or trailers.
    pub expected: Box<ExpectedChecksums>,
}

/// Condition on an ETag: any object, or one of a list of tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ETagCondition {
    /// `*`
    Any,
    /// Quoted or unquoted tags, without their quotes.
    OneOf(Vec<String>),
}

/// Conditions of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadConditions {
    /// If-Match.
    pub if_match: Option<ETagCondition>,
    /// If-None-Match.
    pub if_none_match: Option<ETagCondition>,
    /// If-Modified-Since, in milliseconds since 1970.
    pub if_modified_since_ms: Option<u64>,
    /// If-Unmodified-Since, in milliseconds since 1970.
    pub if_unmodified_since_ms: Option<u64>,
}

/// Conditions of a write, exact under concurrent writes (rule R7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// If-Match: the object must exist and have this tag.
    pub if_match: Option<ETagCondition>,
    /// If-None-Match: no object with this tag (`*`: no object at all) may exist.
    pub if_none_match: Option<ETagCondition>,
}

/// Conditions of a delete, exact under concurrent writes (rule R7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteConditions {
    /// If-Match: ETag of the object to delete.
    pub if_match: Option<ETagCondition>,
    /// Second since 1970 of the object's last modification.
    pub modified_s: Option<u64>,
    /// Size of the object in bytes.
    pub size: Option<u64>,
}

/// Parameters of a new bucket.
#[derive(Clone, Debug)]
pub struct NewBucket {
    /// Canonical id of its owner.
    pub owner: String,
    /// Shards of its index; a power of two.
    pub index_shards: u16,
    /// Name of its storage policy; none for the default.
    pub policy: Option<String>,
    /// Its first settings.
    pub settings: Settings,
}

/// Parameters of an object to write.
pub struct PutObject {
    /// Its attributes.
    pub attributes: Attributes,
    /// Its bytes.
    pub body: NewBody,
    /// Conditions on the current object.
    pub conditions: WriteConditions,
}

/// Result of a write.
#[derive(Clone, Debug)]
pub struct WrittenObject {
    /// The object.
    pub object: Object,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// For a copy: the source's version, if the source bucket is versioned.
    pub source_version: Option<Version>,
    /// State of the checkpoint generation that the object made as a marker; none for other objects.
    pub checkpoint: Option<CheckpointOutcome>,
    /// True for a repeated completion whose object was overwritten or deleted since.
    pub is_gone: bool,
}

impl WrittenObject {
    /// An object that is there, and no checkpoint marker or copy.
    pub fn new(object: Object, stamp: Stamp) -> Self {
        Self { object, stamp, source_version: None, checkpoint: None, is_gone: false }
    }
}

/// Bytes of an object to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All bytes.
    Whole,
    /// `bytes=first-` or `bytes=first-last` (last inclusive).
    From {
        /// First byte.
        first: u64,
        /// Last byte, inclusive; none for all bytes after `first`.
        last: Option<u64>,
    },
    /// `bytes=-length`.
    Suffix {
        /// Number of bytes from the end.
        length: u64,
    },
    /// Part `number` of a multipart object.
    Part {
        /// Part number, from 1.
        number: u32,
    },
}

/// An object, with a body on a GET.
pub struct ObjectRead {
    /// The object.
    pub object: Arc<Object>,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// Range of the selected bytes.
    pub range: Range<u64>,
    /// True if the request selected a range or part (status 206).
    pub partial: bool,
    /// Number of its parts, if the request selected a part of a multipart object.
    pub parts: Option<u32>,
    /// Checksum of the selected part by the object's algorithm, if it was stored.
    pub checksum: Option<Checksum>,
    /// The body; none on a HEAD.
    pub body: Option<ByteStream>,
}

/// An object and its parts.
#[derive(Clone, Debug)]
pub struct ObjectParts {
    /// The object.
    pub object: Arc<Object>,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// Its parts in order; empty for an object of a single PUT.
    pub parts: Vec<ObjectPart>,
}

/// A part of a completed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPart {
    /// Size in bytes.
    pub size: u64,
    /// Its checksum by the object's algorithm, if checksums of parts were stored.
    pub checksum: Option<Checksum>,
}

/// A copy within the store.
pub struct CopyObject {
    /// Bucket and key of the source.
    pub source: (String, String),
    /// Version of the source; none for the current one.
    pub source_version: Option<VersionId>,
    /// Conditions on the source.
    pub source_conditions: ReadConditions,
    /// New attributes, or none to keep the source's.
    pub attributes: Option<Attributes>,
    /// New tags, or none to keep the source's.
    pub tags: Option<Vec<(String, String)>>,
    /// Metadata documents of the destination; never taken from the source.
    pub marks: Marks,
    /// Storage class of the destination; never taken from the source, as in S3.
    pub storage_class: Option<String>,
    /// Checksum algorithm to apply during the copy.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Conditions on the destination.
    pub conditions: WriteConditions,
}

/// An object named by a request: the current version of a key, or a given version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// The key.
    pub key: &'a str,
    /// The version; none for the current one.
    pub version: Option<VersionId>,
}

impl<'a> From<&'a str> for ObjectName<'a> {
    fn from(key: &'a str) -> Self {
        Self { key, version: None }
    }
}

impl<'a> From<&'a String> for ObjectName<'a> {
    fn from(key: &'a String) -> Self {
        Self { key, version: None }
    }
}

/// Result of one delete.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Order of the entry that was written, if any.
    pub stamp: Option<Stamp>,
    /// The delete marker that was created, or the version that was removed.
    pub version: Option<VersionId>,
    /// True if `version` is a delete marker.
    pub is_marker: bool,
}

/// Parameters of a listing page.
#[derive(Clone, Debug, Default)]
pub struct ListObjects {
    /// Prefix of the listed keys.
    pub prefix: String,
    /// Delimiter: keys that are equal up to it after the prefix are folded into one prefix.
    pub delimiter: Option<String>,
    /// Start: only keys above this. Skips folded prefixes that equal this or that it begins with,
    /// except at a [position within a prefix](crate::is_within_prefix).
    pub after: Option<String>,
    /// Maximum number of keys and folded prefixes together.
    pub limit: usize,
    /// Parts of the objects that the page contains.
    pub detail: Detail,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ObjectPage {
    /// Keys and objects, in order of key.
    pub objects: Vec<(String, Box<Object>)>,
    /// Folded prefixes, in order.
    pub prefixes: Vec<String>,
    /// Start of the next page, if more may follow: usually the last key or folded prefix of this
    /// page. After many deleted names a page ends short or empty, at a position of its own.
    pub next: Option<String>,
}

/// Parameters of a page of versions.
#[derive(Clone, Debug, Default)]
pub struct ListVersions {
    /// Prefix of the listed keys.
    pub prefix: String,
    /// Delimiter: keys that are equal up to it after the prefix are folded into one prefix.
    pub delimiter: Option<String>,
    /// Start: only keys above this. With [`ListVersions::after_version`], also older versions of
    /// this key.
    pub after_key: Option<String>,
    /// Only versions of `after_key` that are older than this one.
    pub after_version: Option<VersionId>,
    /// Maximum number of versions and folded prefixes together.
    pub limit: usize,
    /// Parts of the objects that the page contains.
    pub detail: Detail,
}

/// A version in a listing.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: VersionId,
    /// True if it is the current version.
    pub is_latest: bool,
    /// The object; none for a delete marker.
    pub object: Option<Box<Object>>,
    /// Time of its write, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// A page of a listing of versions.
#[derive(Clone, Debug, Default)]
pub struct VersionPage {
    /// Versions in order of key, the latest of each key first.
    pub versions: Vec<ListedVersion>,
    /// Folded prefixes, in order.
    pub prefixes: Vec<String>,
    /// Start of the next page, if more may follow: a key and a version, a folded prefix, or a
    /// position as in [`ObjectPage::next`].
    pub next: Option<(String, Option<VersionId>)>,
}

/// Parameters of a new upload.
#[derive(Clone, Debug)]
pub struct NewUpload {
    /// Attributes of the future object.
    pub attributes: Attributes,
    /// Checksum algorithm and kind that the client announced.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// A copy into a part.
#[derive(Clone, Debug)]
pub struct CopyPart {
    /// Bucket and key of the source.
    pub source: (String, String),
    /// Version of the source; none for the current one.
    pub source_version: Option<VersionId>,
    /// Conditions on the source.
    pub source_conditions: ReadConditions,
    /// Bytes of the source to copy.
    pub selection: Selection,
}

/// A part in a CompleteMultipartUpload request.
#[derive(Clone, Debug)]
pub struct NamedPart {
    /// Its number, 1 to 10,000.
    pub number: u32,
    /// Its ETag without quotes.
    pub etag: String,
    /// Checksums that the request gives for the part.
    pub checksums: Vec<(ChecksumAlgorithm, Vec<u8>)>,
}

/// Parameters of a CompleteMultipartUpload request.
#[derive(Clone, Debug, Default)]
pub struct CompleteUpload {
    /// The parts, in ascending order.
    pub parts: Vec<NamedPart>,
    /// Conditions on the key.
    pub conditions: WriteConditions,
    /// Checksum of the whole object from the client.
    pub checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
    /// Kind of that checksum from the client: of the whole object, or a composite of its parts'.
    pub checksum_kind: Option<ChecksumKind>,
    /// Size of the whole object from the client, in bytes.
    pub object_size: Option<u64>,
}

/// An upload in listings of parts and of uploads.
#[derive(Clone, Debug)]
pub struct UploadInfo {
    /// The key.
    pub key: String,
    /// Its id.
    pub id: UploadId,
    /// Start of the upload, in milliseconds since 1970.
    pub initiated_ms: u64,
    /// Storage class as the client sent it.
    pub storage_class: Option<String>,
    /// Metadata documents of the future object.
    pub marks: Marks,
    /// Kind of the ETags of its parts.
    pub etags: ETagKind,
    /// Checksum algorithm and kind that the client announced.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Index bytes that quotas count for the upload, without its parts.
    pub index_bytes: u64,
}

/// A page of the parts of an upload.
#[derive(Clone, Debug)]
pub struct PartPage {
    /// The upload.
    pub upload: UploadInfo,
    /// Part numbers and parts.
    pub parts: Vec<(u32, Box<Part>)>,
    /// True if more parts follow.
    pub truncated: bool,
}

/// Parameters of a page of the open uploads of a bucket.
#[derive(Clone, Debug, Default)]
pub struct ListUploads {
    /// Prefix of the listed keys.
    pub prefix: String,
    /// Delimiter: keys that are equal up to it after the prefix are folded into one prefix.
    pub delimiter: Option<String>,
    /// Start: only keys above this, and uploads of this key with ids above
    /// [`ListUploads::after_id`].
    pub after_key: Option<String>,
    /// Start among the uploads of [`ListUploads::after_key`].
    pub after_id: Option<UploadId>,
    /// Maximum number of uploads and folded prefixes together.
    pub limit: usize,
}

/// A page of the open uploads of a bucket.
#[derive(Clone, Debug, Default)]
pub struct UploadPage {
    /// The uploads, in order of key and id.
    pub uploads: Vec<UploadInfo>,
    /// Folded prefixes.
    pub prefixes: Vec<String>,
    /// Start of the next page, if more may follow: a key, and an id unless the key is a folded
    /// prefix. The upload itself may have ended.
    pub next: Option<(String, Option<UploadId>)>,
}

/// Location of an extent of an object, for clients that read it in place.
#[derive(Clone, Debug)]
pub struct ExtentPlace {
    /// The extent.
    pub extent: ExtentRef,
    /// Its first byte's offset in the object.
    pub object_offset: u64,
    /// Device that holds it.
    pub device: DeviceId,
    /// Location on that device.
    pub location: ExtentLocation,
}

/// A bucket and its name in a listing.
#[derive(Clone, Debug)]
pub struct NamedBucket {
    /// Its name.
    pub name: String,
    /// The bucket.
    pub bucket: Bucket,
}

/// Result of a part upload.
#[derive(Clone, Debug)]
pub struct WrittenPart {
    /// ETag of the part.
    pub etag: ETag,
    /// Time of the write, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Its checksums.
    pub checksums: Vec<Checksum>,
    /// Checksum algorithm and kind that its upload announced.
    pub announced: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// For a copy: the source's version, if the source bucket is versioned.
    pub source_version: Option<Version>,
}

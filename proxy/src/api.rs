//! The requests of the object layer and their answers.

use std::ops::Range;
use std::sync::Arc;

use martlet_protocol::backend::ByteStream;
use martlet_protocol::entry::{
    Attributes, Bucket, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, Marks, Object, Part,
};
use martlet_protocol::extent::{ExtentLocation, ExtentRef};
use martlet_protocol::{DeviceId, Settings, Stamp, UploadId, Version, VersionId};

use crate::error::Result;

/// Says which checksums the client gave; trailers are known only after the body.
pub type ExpectedChecksums = dyn FnOnce() -> Result<Vec<(ChecksumAlgorithm, Vec<u8>)>> + Send;

/// A body on its way in, and what must be true of it before it may be committed.
pub struct Incoming {
    /// The bytes. An error of the client's own making is passed on as
    /// [`Error::Body`](crate::Error::Body).
    pub bytes: ByteStream,
    /// How many, if that is known; a body that differs is refused.
    pub size: Option<u64>,
    /// MD5 that the client gave in its headers.
    pub md5: Option<[u8; 16]>,
    /// Checksums to compute, store and compare with what [`Incoming::expected`] says.
    pub compute: Vec<ChecksumAlgorithm>,
    /// Asked once the body has ended: the checksums that the client gave, in headers or trailers.
    pub expected: Box<ExpectedChecksums>,
}

/// Conditions on an ETag: any object at all, or one of a list.
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

/// Conditions of a write, exact among all racers (rule R7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// If-Match: the object must exist and have this tag.
    pub if_match: Option<ETagCondition>,
    /// If-None-Match: no object with this tag (`*`: no object at all) may exist.
    pub if_none_match: Option<ETagCondition>,
}

/// Conditions of a delete, exact among all racers (rule R7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteConditions {
    /// If-Match: what is deleted has this tag.
    pub if_match: Option<ETagCondition>,
    /// It was last modified in this second since 1970.
    pub modified_s: Option<u64>,
    /// It has so many bytes.
    pub size: Option<u64>,
}

/// A bucket to be made.
#[derive(Clone, Debug)]
pub struct NewBucket {
    /// Who makes it.
    pub owner: String,
    /// Shards of its index; a power of two.
    pub index_shards: u16,
    /// The name of its storage policy; none for the default.
    pub policy: Option<String>,
    /// What is set about it from its beginning.
    pub settings: Settings,
}

/// An object to be written.
pub struct PutObject {
    /// What it says of itself.
    pub attributes: Attributes,
    /// Its bytes.
    pub body: Incoming,
    /// What must hold.
    pub conditions: WriteConditions,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object.
    pub object: Object,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// Of a copy: the version that was copied, where the source's bucket has versions.
    pub source_version: Option<Version>,
}

/// Which bytes of an object are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it.
    Whole,
    /// `bytes=first-` or `bytes=first-last` (last inclusive).
    From {
        /// First byte.
        first: u64,
        /// Last byte, if there is one.
        last: Option<u64>,
    },
    /// `bytes=-length`.
    Suffix {
        /// So many bytes from the end.
        length: u64,
    },
    /// Part `number` of a multipart object.
    Part {
        /// From 1.
        number: u32,
    },
}

/// An object and, on a GET, bytes of it.
pub struct ObjectRead {
    /// The object.
    pub object: Arc<Object>,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// Which of its bytes were selected.
    pub range: Range<u64>,
    /// Whether only a part of it was asked for (206).
    pub partial: bool,
    /// How many parts it was completed from, if it was and a part was asked for.
    pub parts: Option<u32>,
    /// The checksum of the part that was asked for, by the algorithm of the object's, where it was kept.
    pub checksum: Option<Checksum>,
    /// The bytes; none on a HEAD.
    pub body: Option<ByteStream>,
}

/// An object, and the parts that it was completed from.
#[derive(Clone, Debug)]
pub struct ObjectParts {
    /// The object.
    pub object: Arc<Object>,
    /// Its place in the order of writes.
    pub stamp: Stamp,
    /// Its parts in order; none of an object that was put at once.
    pub parts: Vec<ObjectPart>,
}

/// A part of a completed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPart {
    /// Bytes.
    pub size: u64,
    /// Its checksum, by the algorithm of the object's, where the parts' were kept.
    pub checksum: Option<Checksum>,
}

/// A copy within the store.
pub struct CopyObject {
    /// Bucket and key of the source.
    pub source: (String, String),
    /// Which version of the source; none for the current one.
    pub source_version: Option<VersionId>,
    /// What must hold of the source.
    pub source_conditions: ReadConditions,
    /// New attributes, or none to keep the source's.
    pub attributes: Option<Attributes>,
    /// New tags, or none to keep the source's.
    pub tags: Option<Vec<(String, String)>>,
    /// Its documents: never the source's.
    pub marks: Marks,
    /// Its storage class: never the source's, as in S3.
    pub storage_class: Option<String>,
    /// A checksum to compute on the way.
    pub checksum: Option<ChecksumAlgorithm>,
    /// What must hold of the destination.
    pub conditions: WriteConditions,
}

/// An object that a request names: the current version of a key, or one of its others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// The key.
    pub key: &'a str,
    /// Which version; none for the current one.
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

/// What became of one delete.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The place in the order of writes of what was written, if anything was.
    pub stamp: Option<Stamp>,
    /// The delete marker that was put in front, or the version that was removed.
    pub version: Option<VersionId>,
    /// Whether that is a delete marker.
    pub is_marker: bool,
}

/// A page of a listing, wanted.
#[derive(Clone, Debug, Default)]
pub struct ListObjects {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Fold keys that share the bytes up to this after the prefix.
    pub delimiter: Option<String>,
    /// Only keys above this; a folded prefix that equals it or that it begins with is passed over too.
    pub after: Option<String>,
    /// At most so many keys and folded prefixes together.
    pub limit: usize,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ObjectPage {
    /// Keys and objects, by key.
    pub objects: Vec<(String, Box<Object>)>,
    /// Folded prefixes, in order.
    pub prefixes: Vec<String>,
    /// Where to go on, if there is more: the last key or folded prefix of this page.
    pub next: Option<String>,
}

/// A page of a listing of versions, wanted.
#[derive(Clone, Debug, Default)]
pub struct ListVersions {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Fold keys that share the bytes up to this after the prefix.
    pub delimiter: Option<String>,
    /// Only keys above this; with [`ListVersions::after_version`] also what is left of this key.
    pub after_key: Option<String>,
    /// Only versions of that key that are older than this one.
    pub after_version: Option<VersionId>,
    /// At most so many versions and folded prefixes together.
    pub limit: usize,
}

/// A version, as listed.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: VersionId,
    /// Whether it is the current one.
    pub is_latest: bool,
    /// The object; none of a delete marker.
    pub object: Option<Box<Object>>,
    /// When it was written, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// A page of a listing of versions.
#[derive(Clone, Debug, Default)]
pub struct VersionPage {
    /// By key, of each the latest first.
    pub versions: Vec<ListedVersion>,
    /// Folded prefixes, in order.
    pub prefixes: Vec<String>,
    /// Where to go on, if there is more: a key and a place among its versions, or a folded prefix.
    pub next: Option<(String, Option<VersionId>)>,
}

/// An upload to be begun.
#[derive(Clone, Debug)]
pub struct NewUpload {
    /// What the object will say of itself.
    pub attributes: Attributes,
    /// The checksum that the client announced.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// A copy into a part.
#[derive(Clone, Debug)]
pub struct CopyPart {
    /// Bucket and key of the source.
    pub source: (String, String),
    /// Which version of the source; none for the current one.
    pub source_version: Option<VersionId>,
    /// What must hold of the source.
    pub source_conditions: ReadConditions,
    /// Which bytes of it.
    pub selection: Selection,
}

/// A part as Complete names it.
#[derive(Clone, Debug)]
pub struct NamedPart {
    /// Its number, 1 to 10,000.
    pub number: u32,
    /// Its ETag without quotes.
    pub etag: String,
    /// Checksums that Complete gave for it.
    pub checksums: Vec<(ChecksumAlgorithm, Vec<u8>)>,
}

/// The end of an upload.
#[derive(Clone, Debug, Default)]
pub struct CompleteUpload {
    /// The parts, in ascending order.
    pub parts: Vec<NamedPart>,
    /// What must hold of the key.
    pub conditions: WriteConditions,
    /// Checksum of the whole object that the client gave.
    pub checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
    /// What it covers, as the client said.
    pub checksum_kind: Option<ChecksumKind>,
    /// Size of the whole object that the client gave.
    pub object_size: Option<u64>,
}

/// What an upload is, for listings of parts and of uploads.
#[derive(Clone, Debug)]
pub struct UploadInfo {
    /// The key.
    pub key: String,
    /// Its id.
    pub id: UploadId,
    /// When it began, in milliseconds since 1970.
    pub initiated_ms: u64,
    /// Storage class as it was sent.
    pub storage_class: Option<String>,
    /// What will be set about the object.
    pub marks: Marks,
    /// The checksum that was announced.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Bytes of the index that quotas count for it, without its parts.
    pub index_bytes: u64,
}

/// A page of the parts of an upload.
#[derive(Clone, Debug)]
pub struct PartPage {
    /// The upload.
    pub upload: UploadInfo,
    /// Numbers and parts.
    pub parts: Vec<(u32, Box<Part>)>,
    /// Whether there are more.
    pub truncated: bool,
}

/// A page of the open uploads of a bucket, wanted.
#[derive(Clone, Debug, Default)]
pub struct ListUploads {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Fold keys that share the bytes up to this after the prefix.
    pub delimiter: Option<String>,
    /// Only uploads of keys above this, or of this key with ids above [`ListUploads::after_id`].
    pub after_key: Option<String>,
    /// With [`ListUploads::after_key`].
    pub after_id: Option<UploadId>,
    /// At most so many.
    pub limit: usize,
}

/// A page of the open uploads of a bucket.
#[derive(Clone, Debug, Default)]
pub struct UploadPage {
    /// The uploads, by key and id.
    pub uploads: Vec<UploadInfo>,
    /// Folded prefixes.
    pub prefixes: Vec<String>,
    /// Where to go on, if there is more: key and, unless it is a folded prefix, id.
    pub next: Option<(String, Option<UploadId>)>,
}

/// Where an object's bytes are, for those who read them in place.
#[derive(Clone, Debug)]
pub struct ExtentPlace {
    /// The extent.
    pub extent: ExtentRef,
    /// Where it begins in the object.
    pub object_offset: u64,
    /// The device that answered for it.
    pub device: DeviceId,
    /// Where it lies there.
    pub location: ExtentLocation,
}

/// A bucket by name, as listed.
#[derive(Clone, Debug)]
pub struct NamedBucket {
    /// Its name.
    pub name: String,
    /// What it is.
    pub bucket: Bucket,
}

/// What a part upload answers.
#[derive(Clone, Debug)]
pub struct WrittenPart {
    /// MD5 of the part, its ETag.
    pub etag: ETag,
    /// When it was written, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Its checksums.
    pub checksums: Vec<Checksum>,
    /// The checksum that its upload announced.
    pub announced: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Of a copy: the version that was copied, where the source's bucket has versions.
    pub source_version: Option<Version>,
}

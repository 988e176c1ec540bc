//! Operations of a sequence. An operation names versions, uploads and ETags by the operation that
//! made them, so that a sequence means the same in each bucket and after a part of it was removed.

use std::fmt::Write as _;

use bytes::Bytes;
use md5::{Digest, Md5};

/// Number of an operation in its sequence. Operations keep their numbers when others are removed.
pub(crate) type Step = usize;

/// A version that an operation made. DeleteObjects makes one for each of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Made {
    pub(crate) step: Step,
    pub(crate) index: usize,
}

/// Version that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Current,
    Null,
    Of(Made),
    /// An id that no version has.
    Missing,
    /// A text that is no id.
    Malformed,
}

/// The buckets of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bucket {
    First,
    Second,
    /// A bucket that no operation makes.
    Absent,
}

/// Key in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) bucket: Bucket,
    pub(crate) key: String,
}

/// Bytes of an object or a part, by their first byte and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) first: u8,
    pub(crate) length: usize,
}

impl Body {
    pub(crate) fn bytes(self) -> Bytes {
        let first = usize::from(self.first);
        let byte = |at: usize| u8::try_from((first + at * 7 + at / 251) % 256).unwrap();
        (0..self.length).map(byte).collect()
    }
}

/// Returns the ETag of bytes that were put at once, without quotes.
pub(crate) fn etag(bytes: &[u8]) -> String {
    hex::encode(Md5::digest(bytes))
}

/// ETag of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Any,
    /// The ETag of the object that the condition is about, when the request is sent.
    Right,
    Wrong,
    /// A list with a wrong and the right ETag.
    List,
    /// An empty value.
    Empty,
}

/// Date of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    LongAgo,
    /// `Last-Modified` of the object that the condition is about.
    Then,
    /// A text that is no date.
    Malformed,
}

/// Conditions of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) matches: Option<Tag>,
    pub(crate) none_match: Option<Tag>,
    pub(crate) modified: Option<Since>,
    pub(crate) unmodified: Option<Since>,
}

/// Headers that describe a new object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) content_type: Option<&'static str>,
    /// Value of `x-amz-tagging`.
    pub(crate) tags: Option<Vec<(String, String)>>,
    pub(crate) lock: Option<Lock>,
}

/// Retention and legal hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) retention: Option<Retention>,
    pub(crate) hold: Option<bool>,
}

/// Retention of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) compliance: bool,
    pub(crate) until: Until,
}

/// End of a retention, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    Past,
    /// End of a default retention, which is no text of a request.
    Tomorrow,
    Soon,
    Late,
}

impl Until {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Past => "2001-02-03T04:05:06.000Z",
            Self::Tomorrow => unreachable!("no request names it"),
            Self::Soon => "2097-01-01T00:00:00.000Z",
            Self::Late => "2098-01-01T00:00:00.000Z",
        }
    }
}

/// Checksum that a request announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) algorithm: usize,
    pub(crate) value: Digested,
    pub(crate) in_trailer: bool,
}

/// Value of a digest or checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digested {
    Right,
    Wrong,
    Malformed,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    CreateBucket {
        bucket: Bucket,
        lock: bool,
    },
    /// A bucket by a literal name.
    CreateNamed {
        name: &'static str,
        valid: bool,
    },
    HeadBucket {
        bucket: Bucket,
    },
    DeleteBucket {
        bucket: Bucket,
    },
    Put(Put),
    Read(Read),
    Delete(Delete),
    DeleteMany(DeleteMany),
    Copy(Copy),
    CreateUpload {
        object: Object,
        description: Description,
    },
    UploadPart {
        upload: Upload,
        number: i32,
        body: Body,
        md5: Option<Digested>,
    },
    CopyPart(CopyPart),
    Complete {
        upload: Upload,
        parts: Vec<(i32, Tag)>,
        conditions: Conditions,
    },
    Abort {
        upload: Upload,
    },
    ListParts {
        upload: Upload,
        marker: Option<i32>,
        limit: Option<&'static str>,
    },
    List(List),
    SetVersioning {
        bucket: Bucket,
        status: &'static str,
    },
    GetVersioning {
        bucket: Bucket,
    },
    PutTags {
        object: Object,
        version: Version,
        tags: Vec<(String, String)>,
    },
    GetTags {
        object: Object,
        version: Version,
    },
    DeleteTags {
        object: Object,
        version: Version,
    },
    PutRetention {
        object: Object,
        version: Version,
        retention: Option<Retention>,
        bypass: bool,
    },
    GetRetention {
        object: Object,
        version: Version,
    },
    PutHold {
        object: Object,
        version: Version,
        on: bool,
    },
    GetHold {
        object: Object,
        version: Version,
    },
    PutLockConfiguration {
        bucket: Bucket,
        variant: usize,
    },
    GetLockConfiguration {
        bucket: Bucket,
    },
    PutDocument {
        bucket: Bucket,
        kind: usize,
        variant: usize,
    },
    GetDocument {
        bucket: Bucket,
        kind: usize,
    },
    DeleteDocument {
        bucket: Bucket,
        kind: usize,
    },
}

/// PutObject.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) object: Object,
    pub(crate) body: Body,
    pub(crate) description: Description,
    pub(crate) conditions: Conditions,
    pub(crate) md5: Option<Digested>,
    pub(crate) checksum: Option<Announced>,
}

/// GetObject or HeadObject.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) object: Object,
    pub(crate) version: Version,
    pub(crate) head: bool,
    pub(crate) range: Option<&'static str>,
    pub(crate) part: Option<i32>,
    pub(crate) conditions: Conditions,
}

/// DeleteObject.
#[derive(Clone, Debug)]
pub(crate) struct Delete {
    pub(crate) object: Object,
    pub(crate) version: Version,
    pub(crate) matches: Option<Tag>,
    pub(crate) bypass: bool,
}

/// DeleteObjects.
#[derive(Clone, Debug)]
pub(crate) struct DeleteMany {
    pub(crate) bucket: Bucket,
    pub(crate) objects: Vec<(String, Version)>,
    pub(crate) quiet: bool,
    pub(crate) bypass: bool,
    pub(crate) shape: Shape,
}

/// Form of the document of a DeleteObjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Good,
    /// 1,001 keys besides.
    TooMany,
    /// An end tag is missing.
    Malformed,
    /// Neither Content-MD5 nor a checksum comes along.
    Undigested,
}

/// CopyObject.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) source: Object,
    pub(crate) version: Version,
    pub(crate) source_conditions: Conditions,
    pub(crate) object: Object,
    pub(crate) conditions: Conditions,
    /// New metadata, with `x-amz-metadata-directive: REPLACE`.
    pub(crate) replace: Option<Description>,
    /// New tags, with `x-amz-tagging-directive: REPLACE`.
    pub(crate) tags: Option<Vec<(String, String)>>,
}

/// `UploadPartCopy`.
#[derive(Clone, Debug)]
pub(crate) struct CopyPart {
    pub(crate) upload: Upload,
    pub(crate) number: i32,
    pub(crate) source: Object,
    pub(crate) version: Version,
    pub(crate) range: Option<&'static str>,
}

/// Upload that a request names: the operation that began the upload, and the object of the request.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) begun: Option<Step>,
    pub(crate) object: Object,
}

/// Kind of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Objects,
    ObjectsV2,
    Versions,
    Uploads,
}

/// A listing of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) bucket: Bucket,
    pub(crate) listed: Listed,
    pub(crate) prefix: String,
    pub(crate) delimiter: String,
    /// Key after which the listing begins.
    pub(crate) marker: Option<String>,
    pub(crate) limit: Option<&'static str>,
    /// Value of `encoding-type`.
    pub(crate) encoding: Option<&'static str>,
    /// True if all pages are read, each from the end of the one before.
    pub(crate) pages: bool,
}

/// An operation with its number.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) step: Step,
    pub(crate) operation: Operation,
}

/// Shows a sequence, one operation on a line. Long runs of a character are shortened.
pub(crate) fn shown(sequence: &[Numbered]) -> String {
    let none = format!("{:?}", Conditions::default());
    let plain = format!("{:?}", Description::default());
    sequence.iter().fold(String::new(), |mut text, it| {
        let operation =
            format!("{:?}", it.operation).replace(&none, "none").replace(&plain, "plain");
        let _ = writeln!(text, "  {:3} {}", it.step, shortened(&operation));
        text
    })
}

fn shortened(text: &str) -> String {
    let mut short = String::new();
    for run in text.chars().collect::<Vec<_>>().chunk_by(|one, next| one == next) {
        match run {
            [char, ..] if run.len() > 40 => {
                let _ = write!(short, "{char}×{}", run.len());
            }
            _ => short.extend(run),
        }
    }
    short
}

//! The tail of an entry: fields that earlier formats lacked, stored after the value if any is set.
//!
//! ```text
//! version (1) | order (16) | write id (16) | postcard of value | postcard of tail, or nothing
//! ```
//!
//! In memory each field is part of its object, part, upload, marker or manifest. Code that copies
//! such a value copies its tail fields with it.

use serde::{Deserialize, Serialize};

use super::{Body, Marks, UploadState, Value};
use crate::id::WriteId;
use crate::version::Version;

/// Fields stored after a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tail {
    /// Version of the object or the marker. For an upload that is completing, its id is the write that the decision follows.
    version: Option<Version>,
    part_checksums: Vec<Vec<u8>>,
    /// Marks of the object or the upload.
    marks: Marks,
    /// Marks of the object that an upload is completing.
    made_marks: Marks,
}

/// A tail of format 3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TailFormat3 {
    version: Option<Version>,
    part_checksums: Vec<Vec<u8>>,
}

impl From<TailFormat3> for Tail {
    fn from(before: TailFormat3) -> Self {
        let TailFormat3 { version, part_checksums } = before;
        Self { version, part_checksums, ..Self::default() }
    }
}

impl Tail {
    pub(super) fn of(value: &Value) -> Self {
        let mut tail = Self::default();
        match value {
            Value::Object(object) => {
                tail.version = object.version;
                tail.marks = object.attributes.marks.clone();
            }
            Value::DeleteMarker(marker) => tail.version = marker.version,
            Value::Upload(upload) => {
                tail.marks = upload.attributes.marks.clone();
                if let UploadState::Completing { object, follows, .. } = &upload.state {
                    tail.version = follows.map(followed);
                    tail.made_marks = object.attributes.marks.clone();
                }
            }
            Value::Tombstone | Value::Bucket(_) | Value::Part(_) | Value::Account(_) => {}
        }
        if let Some(Body::Extents(manifest)) = body(value) {
            tail.part_checksums.clone_from(&manifest.part_checksums);
        }
        tail
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Moves the tail's fields into the value.
    pub(super) fn join(self, value: &mut Value) {
        if let Some(Body::Extents(manifest)) = body_mut(value) {
            manifest.part_checksums = self.part_checksums;
        }
        match value {
            Value::Object(object) => {
                object.version = self.version;
                object.attributes.marks = self.marks;
            }
            Value::DeleteMarker(marker) => marker.version = self.version,
            Value::Upload(upload) => {
                upload.attributes.marks = self.marks;
                if let UploadState::Completing { object, follows, .. } = &mut upload.state {
                    *follows = self.version.and_then(|version| version.id);
                    object.attributes.marks = self.made_marks;
                }
            }
            Value::Tombstone | Value::Bucket(_) | Value::Part(_) | Value::Account(_) => {}
        }
    }
}

/// Returns the form of a write that a decision follows. Releases without this field read over a version of an upload.
fn followed(write: WriteId) -> Version {
    Version { position: 0, id: Some(write) }
}

/// Returns the body of a value, or of the object that an upload is completing.
fn body(value: &Value) -> Option<&Body> {
    match value {
        Value::Upload(upload) => match &upload.state {
            UploadState::Completing { object, .. } => Some(&object.body),
            _ => None,
        },
        _ => value.body(),
    }
}

fn body_mut(value: &mut Value) -> Option<&mut Body> {
    match value {
        Value::Object(object) => Some(&mut object.body),
        Value::Part(part) => Some(&mut part.body),
        Value::Upload(upload) => match &mut upload.state {
            UploadState::Completing { object, .. } => Some(&mut object.body),
            _ => None,
        },
        Value::Tombstone | Value::Bucket(_) | Value::DeleteMarker(_) | Value::Account(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{
        Attributes, DeleteMarker, ETag, Entry, KeyCondition, Manifest, Mark, Object, Part, Upload,
        VERSION_BEFORE_MARKS, VERSION_BEFORE_SETTINGS,
    };
    use crate::id::{PolicyId, UploadId, WriteId};
    use crate::stamp::Stamp;

    const VERSION: Version = Version { position: 9, id: Some(WriteId([5; 16])) };

    fn entry(value: Value) -> Entry {
        Entry { order: Stamp::at_ms(7), write_id: WriteId([3; 16]), value }
    }

    fn body(part_checksums: Vec<Vec<u8>>) -> Body {
        let (policy, extents, parts) = (PolicyId(1), Vec::new(), vec![4, 5]);
        Body::Extents(Manifest { policy, extents, parts, part_checksums })
    }

    fn object(version: Option<Version>, part_checksums: Vec<Vec<u8>>) -> Box<Object> {
        Box::new(Object {
            size: 9,
            etag: ETag::Md5([9; 16]),
            modified_ms: 5,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: body(part_checksums),
            version,
        })
    }

    fn marks(document: u8) -> Marks {
        let mut marks = Marks::default();
        marks.set(Mark::Retention, vec![document]);
        marks
    }

    fn marked(mut object: Box<Object>, marks: Marks) -> Box<Object> {
        object.attributes.marks = marks;
        object
    }

    fn completing(object: Box<Object>, follows: Option<WriteId>) -> Value {
        let (write_id, order) = (WriteId([1; 16]), Stamp::at_ms(3));
        let condition = KeyCondition::default();
        Value::Upload(Box::new(Upload {
            key: "k".into(),
            id: UploadId([2; 16]),
            initiated_ms: 1,
            policy: PolicyId(1),
            attributes: Attributes { marks: marks(9), ..Attributes::default() },
            checksum: None,
            state: UploadState::Completing { write_id, order, object, condition, follows },
        }))
    }

    #[test]
    fn facts_are_decoded_from_the_tails_of_entries() {
        let sums = || vec![vec![1, 2], vec![3]];
        let marker =
            |version| Value::DeleteMarker(Box::new(DeleteMarker { modified_ms: 4, version }));
        let (size, tag, modified_ms, checksums) = (9, [1; 16], 2, Vec::new());
        let values = [
            Value::Object(object(Some(VERSION), sums())),
            Value::Object(object(Some(Version::UNVERSIONED), Vec::new())),
            Value::Object(object(None, sums())),
            Value::Object(object(None, Vec::new())),
            Value::Part(Box::new(Part { size, tag, modified_ms, checksums, body: body(sums()) })),
            completing(object(None, sums()), None),
            completing(object(None, Vec::new()), Some(WriteId([4; 16]))),
            completing(marked(object(None, Vec::new()), marks(1)), None),
            Value::Object(marked(object(Some(VERSION), sums()), marks(2))),
            marker(Some(VERSION)),
            marker(None),
        ];
        for value in values {
            let entry = entry(value);
            assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
            let wire = postcard::to_stdvec(&entry).unwrap();
            assert_eq!(postcard::from_bytes::<Entry>(&wire).unwrap(), entry);
        }
    }

    #[test]
    fn entries_with_nothing_new_are_as_they_were_in_format_2() {
        let now = entry(Value::Object(object(None, Vec::new())));
        let mut before = now.encode();
        before[0] = VERSION_BEFORE_SETTINGS;
        assert_eq!(Entry::decode(&before).unwrap(), now);
    }

    #[test]
    fn entries_of_format_3_keep_what_stands_behind_them() {
        let now = entry(Value::Object(object(Some(VERSION), vec![vec![1, 2]])));
        let (version, part_checksums) = (Some(VERSION), vec![vec![1, 2]]);
        let tail = postcard::to_stdvec(&TailFormat3 { version, part_checksums }).unwrap();
        let value = postcard::to_stdvec(&now.value).unwrap();
        let before = [&now.encode()[..super::super::HEAD_BYTES], &value, &tail].concat();
        let mut before_marks = before.clone();
        before_marks[0] = VERSION_BEFORE_MARKS;
        assert_eq!(Entry::decode(&before_marks).unwrap(), now);
        assert!(Entry::decode(&before).is_err(), "this format has more of a tail");
    }

    #[test]
    fn spilled_manifests_keep_the_checksums_of_parts_and_old_ones_are_read() {
        let Body::Extents(mut manifest) = body(vec![vec![7; 8], vec![8; 8]]) else {
            unreachable!()
        };
        let with = manifest.encode();
        assert_eq!(Manifest::decode(&with).unwrap(), manifest);
        manifest.part_checksums.clear();
        let without = manifest.encode();
        assert!(with.starts_with(&without), "the checksums stand last");
        assert_eq!(Manifest::decode(&without).unwrap(), manifest);
        assert!(Manifest::decode(&with[..with.len() - 1]).is_err());
    }
}

//! Summaries: entries reduced to the facts that a listing of a bucket shows.
//!
//! A summary has the order, write id and kind of its entry. An object keeps its size, ETag, time,
//! storage class, version, access control list, and the algorithms of its checksums. It loses its
//! body and everything else, so it must never be written to a register.
//!
//! A manifest may take 7 KB, and a listing has a thousand entries. So a summary is decoded from an
//! encoded entry without the manifest, whose bytes are passed over.

use serde::Deserialize;

use super::{
    Attributes, Body, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, Entry, HEAD_BYTES, Mark,
    Marks, Object, VERSION, VERSION_BEFORE_MARKS, Value,
};
use crate::error::{Error, Result};
use crate::id::UploadId;
use crate::version::Version;

/// Number of [`Value::Tombstone`] at the start of an encoded value.
const TOMBSTONE: u8 = 0;
/// Number of [`Value::Object`] at the start of an encoded value.
const OBJECT: u8 = 1;
/// Bytes of an extent's id and of its hash, which have a fixed length in a manifest.
const EXTENT_ID_BYTES: usize = 16;
const EXTENT_HASH_BYTES: usize = 32;

/// The fields of [`Object`] before its body, in their order.
#[derive(Deserialize)]
struct ListedFields<'a> {
    size: u64,
    etag: ETag,
    modified_ms: u64,
    #[serde(borrow)]
    attributes: ListedAttributes<'a>,
    #[serde(borrow)]
    checksums: Vec<ListedChecksum<'a>>,
    _upload: Option<UploadId>,
}

/// The fields of [`Attributes`] in their order.
#[derive(Deserialize)]
struct ListedAttributes<'a> {
    #[serde(borrow)]
    _headers: [Option<&'a str>; 7],
    #[serde(borrow)]
    storage_class: Option<&'a str>,
    #[serde(borrow)]
    _user_metadata: Vec<(&'a str, &'a str)>,
    #[serde(borrow)]
    _tags: Vec<(&'a str, &'a str)>,
}

/// The fields of [`Checksum`] in their order.
#[derive(Deserialize)]
struct ListedChecksum<'a> {
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    #[serde(borrow)]
    _value: &'a [u8],
}

impl Entry {
    /// Returns the summary of the entry. Values other than objects are returned unchanged.
    #[must_use]
    pub fn into_summary(mut self) -> Self {
        if let Value::Object(object) = &mut self.value {
            summarize(object);
        }
        self
    }

    /// Decodes the summary of an encoded entry: equal to [`Entry::into_summary`] of
    /// [`Entry::decode`], without an allocation for the manifest.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not an entry, or have a
    /// later format. Damage within a manifest may stay unnoticed.
    pub fn decode_summary(bytes: &[u8]) -> Result<Self> {
        let (order, write_id) = Self::peek(bytes)?;
        let has_tail = matches!(bytes[0], VERSION | VERSION_BEFORE_MARKS);
        if !has_tail || bytes.get(HEAD_BYTES) != Some(&OBJECT) {
            return Self::decode(bytes).map(Self::into_summary);
        }
        let object = decode_object(&bytes[HEAD_BYTES + 1..], bytes[0] == VERSION)?;
        Ok(Self { order, write_id, value: Value::Object(Box::new(object)) })
    }

    /// Returns true if an encoded entry holds a tombstone.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the head is too short or has an
    /// unknown format.
    pub fn is_tombstone(bytes: &[u8]) -> Result<bool> {
        Self::peek(bytes)?;
        Ok(bytes.get(HEAD_BYTES) == Some(&TOMBSTONE))
    }

    /// Returns true if an encoded entry holds an object.
    ///
    /// # Errors
    /// As [`Entry::is_tombstone`].
    pub fn is_object(bytes: &[u8]) -> Result<bool> {
        Self::peek(bytes)?;
        Ok(bytes.get(HEAD_BYTES) == Some(&OBJECT))
    }
}

fn summarize(object: &mut Object) {
    let attributes = std::mem::take(&mut object.attributes);
    let Attributes { storage_class, mut marks, .. } = attributes;
    marks.keep(Mark::Acl);
    object.attributes = Attributes { storage_class, marks, ..Attributes::default() };
    for checksum in &mut object.checksums {
        checksum.value = Vec::new();
    }
    object.upload = None;
    object.body = Body::Empty;
}

fn undecodable() -> Error {
    Error::corrupt("an index entry can't be decoded")
}

/// Decodes the summary of an object from the bytes after the number of its value.
fn decode_object(bytes: &[u8], has_marks: bool) -> Result<Object> {
    let malformed = |error| undecodable().with_source(error);
    let (fields, rest) = postcard::take_from_bytes::<ListedFields<'_>>(bytes).map_err(malformed)?;
    let tail = after_body(rest).ok_or_else(undecodable)?;
    let (mut version, mut marks) = (None, Marks::default());
    if !tail.is_empty() {
        let (found, rest) =
            postcard::take_from_bytes::<Option<Version>>(tail).map_err(malformed)?;
        version = found;
        if has_marks {
            let rest = after_list(rest, after_bytes).ok_or_else(undecodable)?;
            (marks, _) = postcard::take_from_bytes(rest).map_err(malformed)?;
            marks.keep(Mark::Acl);
        }
    }
    let storage_class = fields.attributes.storage_class.map(str::to_owned);
    let checksums = fields.checksums.iter().map(|of| {
        let (algorithm, kind) = (of.algorithm, of.kind);
        Checksum { algorithm, kind, value: Vec::new() }
    });
    Ok(Object {
        size: fields.size,
        etag: fields.etag,
        modified_ms: fields.modified_ms,
        attributes: Attributes { storage_class, marks, ..Attributes::default() },
        checksums: checksums.collect(),
        upload: None,
        body: Body::Empty,
        version,
    })
}

/// Returns the bytes after an encoded [`Body`].
fn after_body(bytes: &[u8]) -> Option<&[u8]> {
    let (variant, rest) = varint(bytes)?;
    match variant {
        0 => Some(rest),
        1 => after_varint(rest),
        2 => after_list(after_list(after_varint(rest)?, after_extent)?, after_varint),
        3 => after_list(after_varint(rest)?, after_extent),
        _ => None,
    }
}

/// Returns the bytes after an encoded list, whose items `after_item` passes over.
fn after_list(bytes: &[u8], after_item: impl Fn(&[u8]) -> Option<&[u8]>) -> Option<&[u8]> {
    let (count, mut rest) = varint(bytes)?;
    // Each item takes a byte at least, so a wrong count ends with the bytes.
    for _ in 0..count {
        rest = after_item(rest)?;
    }
    Some(rest)
}

fn after_extent(bytes: &[u8]) -> Option<&[u8]> {
    after_varint(bytes.get(EXTENT_ID_BYTES..)?)?.get(EXTENT_HASH_BYTES..)
}

fn after_bytes(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = varint(bytes)?;
    rest.get(usize::try_from(length).ok()?..)
}

fn after_varint(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    Some(&bytes[last + 1..])
}

/// Returns a number of postcard, and the bytes after it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let rest = after_varint(bytes)?;
    let digits = bytes[..bytes.len() - rest.len()].iter().rev();
    let number = digits.fold(0u64, |number, byte| (number << 7) | u64::from(byte & 0x7f));
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{DeleteMarker, Manifest};
    use crate::extent::ExtentRef;
    use crate::id::{ExtentId, PolicyId, WriteId};
    use crate::stamp::{Stamp, WriterId};

    fn entry(value: Value) -> Entry {
        let order = Stamp { time: 70_000, writer: WriterId(300) };
        Entry { order, write_id: WriteId([3; 16]), value }
    }

    fn extents(count: usize) -> Vec<ExtentRef> {
        let extent = |at: usize| ExtentRef {
            id: ExtentId([u8::try_from(at % 256).unwrap(); 16]),
            length: u32::try_from(at * 500_000).unwrap(),
            blake3: [0xff; 32],
        };
        (0..count).map(extent).collect()
    }

    fn any_body() -> impl Strategy<Value = Body> {
        let policy = any::<u16>().prop_map(PolicyId);
        let sums = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..70), 0..4);
        let parts = proptest::collection::vec(any::<u64>(), 0..5);
        let manifest = (policy, 0usize..130, parts, sums).prop_map(
            |(policy, count, parts, part_checksums)| {
                Body::Extents(Manifest { policy, extents: extents(count), parts, part_checksums })
            },
        );
        let spilled = (any::<u16>(), 0usize..4).prop_map(|(policy, count)| Body::Spilled {
            policy: PolicyId(policy),
            manifest: extents(count),
        });
        let inline = any::<u32>().prop_map(|crc32c| Body::Inline { crc32c });
        prop_oneof![Just(Body::Empty), inline, manifest, spilled]
    }

    fn any_marks() -> impl Strategy<Value = Marks> {
        let marked = proptest::collection::vec((0usize..5, "[a-z]{0,20}"), 0..4);
        marked.prop_map(|marked| {
            let mut marks = Marks::default();
            for (at, document) in marked {
                marks.set(Mark::ALL[at], document.into_bytes());
            }
            marks
        })
    }

    fn any_attributes() -> impl Strategy<Value = Attributes> {
        let text = || proptest::option::of("\\PC{0,9}");
        let pairs = || proptest::collection::vec(("[a-z]{1,5}", "\\PC{0,9}"), 0..3);
        (text(), text(), text(), pairs(), pairs(), any_marks()).prop_map(
            |(content_type, website_redirect, storage_class, user_metadata, tags, marks)| {
                let cache_control = content_type.clone();
                let none = Attributes::default();
                let named = Attributes { content_type, cache_control, website_redirect, ..none };
                Attributes { storage_class, user_metadata, tags, marks, ..named }
            },
        )
    }

    fn any_object() -> impl Strategy<Value = Object> {
        let etag = prop_oneof![
            any::<[u8; 16]>().prop_map(ETag::Md5),
            (any::<[u8; 16]>(), any::<u16>())
                .prop_map(|(md5, parts)| ETag::Multipart { md5, parts }),
            (any::<[u8; 16]>(), any::<Option<u16>>())
                .prop_map(|(value, parts)| ETag::Opaque { value, parts }),
        ];
        let checksum = (0usize..10, proptest::collection::vec(any::<u8>(), 0..64)).prop_map(
            |(algorithm, value)| Checksum {
                algorithm: ChecksumAlgorithm::ALL[algorithm],
                kind: ChecksumKind::Composite,
                value,
            },
        );
        let version = (any::<u64>(), proptest::option::of(any::<[u8; 16]>()))
            .prop_map(|(position, id)| Version { position, id: id.map(WriteId) });
        let upload = proptest::option::of(any::<[u8; 16]>().prop_map(UploadId));
        let checksums = proptest::collection::vec(checksum, 0..3);
        let version = proptest::option::of(version);
        let facts = (any::<u64>(), etag, any::<u64>());
        (facts, any_attributes(), checksums, upload, any_body(), version).prop_map(
            |((size, etag, modified_ms), attributes, checksums, upload, body, version)| Object {
                size,
                etag,
                modified_ms,
                attributes,
                checksums,
                upload,
                body,
                version,
            },
        )
    }

    proptest! {
        #[test]
        fn a_summary_is_the_same_with_and_without_the_manifest(object in any_object()) {
            let whole = entry(Value::Object(Box::new(object)));
            let bytes = whole.encode();
            prop_assert!(Entry::is_object(&bytes).unwrap());
            prop_assert!(!Entry::is_tombstone(&bytes).unwrap());
            let summary = Entry::decode_summary(&bytes).unwrap();
            prop_assert_eq!(&summary, &Entry::decode(&bytes).unwrap().into_summary());
            prop_assert_eq!(&summary, &whole.into_summary());
            prop_assert_eq!(&summary, &summary.clone().into_summary());
        }

        #[test]
        fn cut_and_foreign_bytes_are_corrupt_and_do_not_panic(
            object in any_object(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let bytes = entry(Value::Object(Box::new(object))).encode();
            let at = at.index(bytes.len());
            let _ = Entry::decode_summary(&bytes[..at]);
            let mut bytes = bytes;
            bytes[at] = byte;
            let _ = Entry::decode_summary(&bytes);
            let _ = (Entry::is_tombstone(&bytes), Entry::is_object(&bytes));
        }
    }

    #[test]
    fn entries_without_an_object_are_their_own_summary() {
        let marker = DeleteMarker { modified_ms: 4, version: Some(Version::UNVERSIONED) };
        for value in [Value::Tombstone, Value::DeleteMarker(Box::new(marker))] {
            let whole = entry(value);
            let bytes = whole.encode();
            assert_eq!(Entry::is_tombstone(&bytes).unwrap(), whole.value.is_tombstone());
            assert!(!Entry::is_object(&bytes).unwrap());
            assert_eq!(Entry::decode_summary(&bytes).unwrap(), whole);
            assert_eq!(whole.clone().into_summary(), whole);
        }
        assert!(Entry::is_tombstone(&[9; 60]).is_err() && Entry::decode_summary(&[]).is_err());
    }

    #[test]
    fn older_formats_have_summaries_too() {
        let object = Object {
            size: 9,
            etag: ETag::Md5([9; 16]),
            modified_ms: 5,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Inline { crc32c: 1 << 30 },
            version: None,
        };
        let mut bytes = entry(Value::Object(Box::new(object))).encode();
        for version in 1..=VERSION {
            bytes[0] = version;
            let whole = Entry::decode(&bytes).unwrap();
            assert_eq!(Entry::decode_summary(&bytes).unwrap(), whole.into_summary(), "{version}");
        }
    }

    /// A page of a thousand objects of 128 extents each takes some hundred bytes an object.
    #[test]
    fn a_summary_takes_no_bytes_for_extents() {
        let attributes = Attributes {
            content_type: Some("application/octet-stream".into()),
            user_metadata: vec![("name".into(), "x".repeat(1000))],
            ..Attributes::default()
        };
        let (policy, parts) = (PolicyId(1), vec![64 << 20; 128]);
        let manifest = Manifest { policy, extents: extents(128), parts, part_checksums: vec![] };
        let checksum = Checksum {
            algorithm: ChecksumAlgorithm::Sha256,
            kind: ChecksumKind::Composite,
            value: vec![7; 32],
        };
        let object = Object {
            size: 8 << 30,
            etag: ETag::Multipart { md5: [9; 16], parts: 128 },
            modified_ms: 1_795_262_400_000,
            attributes,
            checksums: vec![checksum],
            upload: Some(UploadId([4; 16])),
            body: Body::Extents(manifest),
            version: Some(Version { position: 1 << 40, id: Some(WriteId([3; 16])) }),
        };
        let whole = entry(Value::Object(Box::new(object)));
        let wire = |entry: &Entry| postcard::to_stdvec(entry).unwrap().len();
        assert!(wire(&whole) > 7000);
        let summary = Entry::decode_summary(&whole.encode()).unwrap();
        assert!(wire(&summary) < 120, "{} bytes", wire(&summary));
    }
}

//! Document of a listing, written entry by entry into one buffer.
//!
//! A listing of 1,000 objects is the longest document that clients often request. Types for each
//! entry and a serializer of events would cost as much as everything before them.

use std::fmt::Write as _;

use martlet_protocol::entry::Object;
use s3s::dto::Owner;

use super::super::encoding::{Encoding, percent_encoded};
use crate::attributes::STANDARD;
use crate::checksums::{kind_name, name};
use crate::date::Timestamp;

/// Start of the document.
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
    <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
const TAIL: &str = "</ListBucketResult>";
/// Usual bytes of an entry without its key.
const ENTRY_BYTES: usize = 320;

/// Document of a listing.
pub(super) struct ListDocument {
    text: String,
    encoding: Encoding,
    /// Text of the last entry's time, since many objects are of one second.
    last_time: (u64, String),
}

impl ListDocument {
    /// Begins a document with about this number of entries.
    pub(super) fn new(encoding: Encoding, entries: usize) -> Self {
        let mut text = String::with_capacity(HEAD.len() + (entries + 2) * ENTRY_BYTES);
        text.push_str(HEAD);
        Self { text, encoding, last_time: (0, stamp(0)) }
    }

    /// Writes an element with a text.
    pub(super) fn element(&mut self, name: &str, text: &str) {
        self.open(name);
        push_escaped(&mut self.text, text);
        self.close(name);
    }

    /// Writes an element, if it has a text.
    pub(super) fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.element(name, text);
        }
    }

    /// Writes an element whose text needs no escape.
    pub(super) fn plain(&mut self, name: &str, value: impl std::fmt::Display) {
        self.open(name);
        write!(self.text, "{value}").expect("writing to a String can't fail");
        self.close(name);
    }

    /// Writes the entry of an object.
    pub(super) fn object(&mut self, key: &str, object: &Object, owner: Option<&Owner>) {
        self.open("Contents");
        if let Some(checksum) = object.checksums.first() {
            self.plain("ChecksumAlgorithm", name(checksum.algorithm));
            self.plain("ChecksumType", kind_name(checksum.kind));
        }
        write!(self.text, "<ETag>\"{}\"</ETag><Key>", object.etag)
            .expect("writing to a String can't fail");
        self.encoded(key);
        self.text.push_str("</Key>");
        self.time(object.modified_ms);
        if let Some(owner) = owner {
            self.open("Owner");
            self.optional("DisplayName", owner.display_name.as_deref());
            self.optional("ID", owner.id.as_deref());
            self.close("Owner");
        }
        self.plain("Size", object.size);
        self.element(
            "StorageClass",
            object.attributes.storage_class.as_deref().unwrap_or(STANDARD),
        );
        self.close("Contents");
    }

    /// Writes the entry of a common prefix.
    pub(super) fn prefix(&mut self, prefix: &str) {
        self.text.push_str("<CommonPrefixes><Prefix>");
        self.encoded(prefix);
        self.text.push_str("</Prefix></CommonPrefixes>");
    }

    /// Ends the document.
    pub(super) fn end(mut self) -> String {
        self.text.push_str(TAIL);
        self.text
    }

    fn open(&mut self, name: &str) {
        self.text.push('<');
        self.text.push_str(name);
        self.text.push('>');
    }

    fn close(&mut self, name: &str) {
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    fn encoded(&mut self, name: &str) {
        match self.encoding {
            Encoding::Plain => push_escaped(&mut self.text, name),
            Encoding::Url => self.text.extend(percent_encoded(name)),
        }
    }

    fn time(&mut self, ms: u64) {
        let second = ms / 1000;
        if second != self.last_time.0 {
            self.last_time = (second, stamp(ms));
        }
        self.text.push_str("<LastModified>");
        self.text.push_str(&self.last_time.1);
        self.text.push_str("</LastModified>");
    }
}

/// Formats a time in whole seconds, with milliseconds as S3 shows them in listings.
fn stamp(ms: u64) -> String {
    let mut text = Timestamp::from_unix_ms(ms / 1000 * 1000).to_iso();
    text.truncate(text.len() - 1);
    text + ".000Z"
}

/// Appends a text. XML parsers read a bare carriage return as a line feed, so it is escaped too.
fn push_escaped(document: &mut String, text: &str) {
    let is_special = |byte: u8| matches!(byte, b'<' | b'>' | b'&' | b'\'' | b'"' | b'\r');
    // One pass without branches finds that nothing is to be escaped.
    if !text.bytes().fold(false, |so_far, byte| so_far | is_special(byte)) {
        document.push_str(text);
        return;
    }
    for char in text.chars() {
        match char {
            '<' => document.push_str("&lt;"),
            '>' => document.push_str("&gt;"),
            '&' => document.push_str("&amp;"),
            '\'' => document.push_str("&apos;"),
            '"' => document.push_str("&quot;"),
            '\r' => document.push_str("&#13;"),
            other => document.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::{
        Attributes, Body, Checksum, ChecksumAlgorithm, ChecksumKind, ETag,
    };
    use s3s::dto::{
        ChecksumType, CommonPrefix, ETag as WireETag, ListObjectsV2Output, Object as WireObject,
        Timestamp as WireTime,
    };
    use s3s::xml::{Serialize, Serializer};

    use super::*;

    const KEYS: [&str; 6] = ["a", "<b>&'\"", "\u{fc}/\r\n x", "%2F+", "\u{1}", "a\u{10ffff}b"];

    fn object(number: usize) -> Object {
        let parts = u16::try_from(number).unwrap();
        let etag = match number % 3 {
            0 => ETag::Md5([7; 16]),
            1 => ETag::Multipart { md5: [9; 16], parts },
            _ => ETag::Opaque { value: [1; 16], parts: None },
        };
        let storage_class = (number == 2).then(|| "COLD<".to_owned());
        let mut object = Object {
            size: number as u64 * 1_000_003,
            etag,
            modified_ms: 1_700_000_000_123 + number as u64 * 400,
            attributes: Attributes { storage_class, ..Attributes::default() },
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        };
        if number % 2 == 1 {
            let (algorithm, kind) = (ChecksumAlgorithm::Crc32c, ChecksumKind::FullObject);
            object.checksums = vec![Checksum { algorithm, kind, value: vec![1; 4] }];
        }
        object
    }

    fn owner(number: usize) -> Option<Owner> {
        let display_name = (number == 3).then(|| "Q & A".to_owned());
        (number > 2).then(|| Owner { display_name, id: Some("1d".to_owned()) })
    }

    /// Document of the types that S3's model generates.
    fn generated(objects: &[(&str, Object, Option<Owner>)], prefix: &str) -> String {
        let entry = |(key, object, owner): &(&str, Object, Option<Owner>)| WireObject {
            checksum_algorithm: object.checksums.first().map(|_| vec!["CRC32C".to_owned().into()]),
            checksum_type: object
                .checksums
                .first()
                .map(|_| ChecksumType::from_static(ChecksumType::FULL_OBJECT)),
            e_tag: Some(WireETag::Strong(object.etag.to_string())),
            key: Some((*key).to_owned()),
            last_modified: Some(WireTime::from(crate::header_values::whole_seconds(
                object.modified_ms,
            ))),
            owner: owner.clone(),
            restore_status: None,
            size: Some(i64::try_from(object.size).unwrap()),
            storage_class: Some(
                object.attributes.storage_class.clone().unwrap_or("STANDARD".into()).into(),
            ),
        };
        let document = ListObjectsV2Output {
            name: Some("b".to_owned()),
            is_truncated: Some(false),
            contents: Some(objects.iter().map(entry).collect()),
            common_prefixes: Some(vec![CommonPrefix { prefix: Some(prefix.to_owned()) }]),
            start_after: Some(prefix.to_owned()),
            ..ListObjectsV2Output::default()
        };
        let mut text = Vec::new();
        let mut serializer = Serializer::new(&mut text);
        serializer.decl().unwrap();
        document.serialize(&mut serializer).unwrap();
        String::from_utf8(text).unwrap().replace('\r', "&#13;")
    }

    #[test]
    fn a_document_is_the_one_of_the_generated_types() {
        for prefix in KEYS {
            let objects: Vec<_> = KEYS
                .iter()
                .enumerate()
                .map(|(number, key)| (*key, object(number), owner(number)))
                .collect();
            let mut document = ListDocument::new(Encoding::Plain, 1);
            document.element("Name", "b");
            document.plain("IsTruncated", false);
            for (key, object, owner) in &objects {
                document.object(key, object, owner.as_ref());
            }
            document.prefix(prefix);
            document.optional("Delimiter", None);
            document.optional("StartAfter", Some(prefix));
            assert_eq!(document.end(), generated(&objects, prefix));
        }
    }

    #[test]
    fn names_are_percent_encoded_on_request() {
        let mut document = ListDocument::new(Encoding::Url, 1);
        document.object("a <\u{1}/b", &object(0), None);
        document.prefix("c&/");
        let text = document.end();
        assert!(text.contains("<Key>a%20%3C%01/b</Key>"), "{text}");
        assert!(text.contains("<CommonPrefixes><Prefix>c%26/</Prefix></CommonPrefixes>"), "{text}");
    }
}

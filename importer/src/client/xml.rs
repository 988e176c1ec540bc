//! Documents of S3 that the importer reads and writes.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Page of a listing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ListPage {
    pub(crate) is_truncated: bool,
    pub(crate) next_continuation_token: Option<String>,
    encoding_type: Option<String>,
    pub(crate) contents: Vec<ListedObject>,
    pub(crate) common_prefixes: Vec<CommonPrefix>,
}

/// Object in a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ListedObject {
    pub(crate) key: String,
    pub(crate) last_modified: String,
    #[serde(rename = "ETag")]
    pub(crate) etag: String,
    pub(crate) size: u64,
}

/// Prefix that several keys share.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct CommonPrefix {
    pub(crate) prefix: String,
}

/// Begun upload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BegunUpload {
    pub(crate) upload_id: String,
}

/// Error of S3. CompleteMultipartUpload may return one with the status 200.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ErrorDocument {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Tags of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Tagging {
    tag_set: TagSet,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TagSet {
    tag: Vec<Tag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Tag {
    key: String,
    value: String,
}

impl Tagging {
    /// Returns the value of `x-amz-tagging`; empty without tags.
    pub(crate) fn header(&self) -> String {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
                .to_string()
        };
        let tags = &self.tag_set.tag;
        let pairs = tags.iter().map(|tag| format!("{}={}", encode(&tag.key), encode(&tag.value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// Parses a document.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<T> {
    let malformed =
        |why: &dyn std::fmt::Display| Error::transient(format!("the {name} is malformed: {why}"));
    let text = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    quick_xml::de::from_str(text).map_err(|error| malformed(&error))
}

impl ListPage {
    /// Parses a page and decodes its keys.
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let mut page: Self = parse(body, "listing")?;
        if page.encoding_type.as_deref() == Some("url") {
            for object in &mut page.contents {
                object.key = decoded(&object.key)?;
            }
            for common in &mut page.common_prefixes {
                common.prefix = decoded(&common.prefix)?;
            }
        }
        Ok(page)
    }
}

/// Decodes a key of a listing. Servers that write a space as `+` write a plus as `%2B`, and so do
/// servers that write a space as `%20`.
fn decoded(text: &str) -> Result<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Error::fatal(format!("the source has a key that is not UTF-8: {text}")))
}

/// Part of an upload, for its completion.
#[derive(Clone, Debug)]
pub(crate) struct SentPart {
    pub(crate) number: u32,
    pub(crate) etag: String,
    /// CRC64NVME in base64.
    pub(crate) crc64: String,
}

/// Returns the document that completes an upload.
pub(crate) fn completion(parts: &[SentPart]) -> String {
    let mut xml = "<CompleteMultipartUpload>".to_owned();
    for SentPart { number, etag, crc64 } in parts {
        let etag = quick_xml::escape::escape(etag.as_str());
        let _ = write!(
            xml,
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>\
             <ChecksumCRC64NVME>{crc64}</ChecksumCRC64NVME></Part>"
        );
    }
    xml.push_str("</CompleteMultipartUpload>");
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>box</Name><Prefix></Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys>
  <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
  <NextContinuationToken>to/ken==</NextContinuationToken>
  <Contents><Key>a+b%2Bc%0A%C3%BC/</Key><LastModified>2026-11-28T01:02:03.000Z</LastModified>
    <ETag>&quot;abc&quot;</ETag><Size>5</Size><StorageClass>STANDARD</StorageClass>
    <Owner><ID>x</ID></Owner></Contents>
  <Contents><Key>b</Key><LastModified>2026-11-28T01:02:03.000Z</LastModified>
    <ETag>"d"</ETag><Size>0</Size></Contents>
  <CommonPrefixes><Prefix>c%2Fd/</Prefix></CommonPrefixes>
</ListBucketResult>"#;

    #[test]
    fn pages_are_decoded() {
        let page = ListPage::parse(PAGE.as_bytes()).unwrap();
        assert!(page.is_truncated);
        assert_eq!(page.next_continuation_token.as_deref(), Some("to/ken=="));
        assert_eq!(page.contents[0].key, "a b+c\nü/");
        assert_eq!((page.contents[0].etag.as_str(), page.contents[0].size), ("\"abc\"", 5));
        assert_eq!(page.contents[1].key, "b");
        assert_eq!(page.common_prefixes[0].prefix, "c/d/");
        let plain = PAGE.replace("<EncodingType>url</EncodingType>", "");
        assert_eq!(ListPage::parse(plain.as_bytes()).unwrap().contents[0].key, "a+b%2Bc%0A%C3%BC/");
        let empty = ListPage::parse(b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>");
        assert!(empty.unwrap().contents.is_empty());
        assert!(ListPage::parse(b"<html>").is_err());
    }

    #[test]
    fn keys_of_other_encodings_are_refused() {
        let bad = PAGE.replace("%C3%BC", "%FC");
        let error = ListPage::parse(bad.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("not UTF-8"), "{error}");
    }

    #[test]
    fn tags_are_a_query() {
        let xml = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag>\
                   <Tag><Key>c</Key><Value></Value></Tag></TagSet></Tagging>";
        let tagging: Tagging = parse(xml.as_bytes(), "tags").unwrap();
        assert_eq!(tagging.header(), "a%20b=1%262&c=");
        let none: Tagging = parse(b"<Tagging><TagSet></TagSet></Tagging>", "tags").unwrap();
        assert_eq!(none.header(), "");
        let none: Tagging = parse(b"<Tagging><TagSet/></Tagging>", "tags").unwrap();
        assert_eq!(none.header(), "");
    }

    #[test]
    fn a_completion_lists_parts() {
        let part = SentPart { number: 1, etag: "\"a\"".into(), crc64: "x=".into() };
        let xml = completion(&[part]);
        assert!(xml.contains("<ETag>&quot;a&quot;</ETag>"), "{xml}");
    }
}

//! Attributes of an object: from the headers of a write, and into the headers of a read.
//!
//! * [`metadata`]: user metadata in headers.

pub(crate) mod metadata;

use http::StatusCode;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_TYPE, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use martlet_protocol::entry::{Attributes, ETag, Marks, Object};
use martlet_protocol::limits::USER_METADATA_BYTES_MAX;
use martlet_protocol::{Version, VersionId};
use martlet_proxy::ReadAfter;
use s3s::S3Result;
use s3s::dto::{ETag as WireETag, Timestamp};

use crate::errors::custom;
use crate::fields;
use crate::header_values::{VERSION_ID, http_date, version_header, whole_seconds};
use crate::messages;
use crate::request_headers::ParsedHeaders;
use crate::tags;

const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");
const WEBSITE_REDIRECT: HeaderName = HeaderName::from_static("x-amz-website-redirect-location");
const TAGGING: HeaderName = HeaderName::from_static("x-amz-tagging");
const TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
const STAMP: HeaderName = HeaderName::from_static("x-martlet-stamp");

/// Storage class of objects that have none.
pub(crate) const STANDARD: &str = "STANDARD";
/// Content type of objects that were written without one.
const UNDESCRIBED: HeaderValue = HeaderValue::from_static("binary/octet-stream");

/// Attributes from the headers of a write.
pub(crate) fn from_request(headers: &HeaderMap, parsed: &ParsedHeaders) -> S3Result<Attributes> {
    let website_redirect = text(headers, &WEBSITE_REDIRECT)?;
    if let Some(target) = &website_redirect {
        check_redirect(target)?;
    }
    Ok(Attributes {
        content_type: text(headers, &CONTENT_TYPE)?,
        content_encoding: text(headers, &CONTENT_ENCODING)?,
        content_disposition: text(headers, &CONTENT_DISPOSITION)?,
        content_language: text(headers, &CONTENT_LANGUAGE)?,
        cache_control: text(headers, &CACHE_CONTROL)?,
        expires: parsed.expires.clone(),
        website_redirect,
        storage_class: storage_class_of(headers)?,
        user_metadata: user_metadata(metadata::parse(headers)?)?,
        tags: tags_of(headers)?.unwrap_or_default(),
        marks: Marks::default(),
    })
}

/// Tags from the headers of a write; `None` without the header.
pub(crate) fn tags_of(headers: &HeaderMap) -> S3Result<Option<tags::Tags>> {
    text(headers, &TAGGING)?.map(|header| tags::from_header(&header)).transpose()
}

/// Storage class from the headers of a write. The object layer checks that the class exists.
pub(crate) fn storage_class_of(headers: &HeaderMap) -> S3Result<Option<String>> {
    text(headers, &STORAGE_CLASS)
}

/// Storage class of an object in listings.
pub(crate) fn wire_class(class: Option<&str>) -> String {
    class.unwrap_or(STANDARD).to_owned()
}

/// True if the headers name a storage class, a change that permits a copy of an object onto itself.
pub(crate) fn names_storage_class(headers: &HeaderMap) -> bool {
    headers.contains_key(STORAGE_CLASS)
}

/// True if the headers give the object a redirect.
pub(crate) fn names_redirect(headers: &HeaderMap) -> bool {
    headers.contains_key(WEBSITE_REDIRECT)
}

fn text(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<String>> {
    Ok(fields::text(headers, name)?.map(str::to_owned))
}

fn check_redirect(target: &str) -> S3Result<()> {
    if ["/", "http://", "https://"].iter().any(|start| target.starts_with(start)) {
        return Ok(());
    }
    Err(custom(
        "InvalidRedirectLocation",
        "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
        StatusCode::BAD_REQUEST,
    ))
}

fn user_metadata(mut pairs: Vec<(String, String)>) -> S3Result<Vec<(String, String)>> {
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > USER_METADATA_BYTES_MAX {
        return Err(messages::METADATA_TOO_LARGE
            .refusal()
            .with_detail("Size", bytes.to_string())
            .with_detail("MaxSizeAllowed", USER_METADATA_BYTES_MAX.to_string())
            .into());
    }
    // Headers have no stable order, and entries must be equal from run to run.
    pairs.sort_unstable();
    Ok(pairs)
}

/// Headers of every reply to a read of an object.
pub(crate) fn object_headers(object: &Object, token: ReadAfter) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(20);
    validators(&mut headers, object);
    stamped(&mut headers, token);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_TYPE, UNDESCRIBED);
    let attributes = &object.attributes;
    let optional = [
        (CONTENT_TYPE, &attributes.content_type),
        (CONTENT_ENCODING, &attributes.content_encoding),
        (CONTENT_DISPOSITION, &attributes.content_disposition),
        (CONTENT_LANGUAGE, &attributes.content_language),
        (CACHE_CONTROL, &attributes.cache_control),
        (EXPIRES, &attributes.expires),
        (WEBSITE_REDIRECT, &attributes.website_redirect),
    ];
    for (name, value) in optional {
        if let Some(value) = value.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(name, value);
        }
    }
    let class = attributes.storage_class.as_deref().filter(|class| *class != STANDARD);
    if let Some(class) = class.and_then(|class| HeaderValue::from_str(class).ok()) {
        headers.insert(STORAGE_CLASS, class);
    }
    if let Some(version) = object.version {
        headers.insert(VERSION_ID, version_header(version.name()));
    }
    if !attributes.tags.is_empty() {
        headers.insert(TAGGING_COUNT, attributes.tags.len().into());
    }
    headers
}

/// `ETag` and `Last-Modified`.
pub(crate) fn validators(headers: &mut HeaderMap, object: &Object) {
    headers.insert(ETAG, etag_header(object.etag));
    headers.insert(LAST_MODIFIED, http_date(object.modified_ms));
}

/// Formats an entity tag as a header.
pub(crate) fn etag_header(etag: ETag) -> HeaderValue {
    if let ETag::Md5(md5) = etag {
        let mut text = [b'"'; 34];
        hex::encode_to_slice(md5, &mut text[1..33]).expect("32 digits for 16 bytes");
        return HeaderValue::from_bytes(&text).expect("hexadecimal digits are a header value");
    }
    let value = HeaderValue::try_from(format!("\"{etag}\""));
    value.expect("hexadecimal digits are a header value")
}

/// Version id of an object for replies; `None` in a bucket that keeps no versions.
pub(crate) fn wire_version(object: &Object) -> Option<String> {
    object.version.map(|version| version.name().to_string())
}

/// Id of a version that was just written. While versioning is suspended a write returns none,
/// though reads report the version as `null`.
pub(crate) fn wire_new_version(object: &Object) -> Option<String> {
    new_version_of(object).map(|version| version.to_string())
}

/// As [`wire_new_version`], for headers.
pub(crate) fn new_version_of(object: &Object) -> Option<VersionId> {
    object.version.filter(|version| version.id.is_some()).map(Version::name)
}

/// Adds the token of this read or write to the headers, for a later `x-martlet-read-after`.
fn stamped(headers: &mut HeaderMap, token: ReadAfter) {
    let token = HeaderValue::try_from(token.to_string());
    headers.insert(STAMP, token.expect("digits and dashes are a header value"));
}

/// Headers with a token only.
pub(crate) fn stamp_headers(token: ReadAfter) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(1);
    stamped(&mut headers, token);
    headers
}

/// Converts an ETag to s3s's type.
pub(crate) fn wire_etag(etag: ETag) -> WireETag {
    WireETag::Strong(etag.to_string())
}

/// Converts a time to s3s's type, in whole seconds: headers have no finer resolution, and listings
/// must agree with headers.
pub(crate) fn wire_time(ms: u64) -> Timestamp {
    Timestamp::from(whole_seconds(ms))
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::Body;
    use martlet_protocol::{AchievedLevel, Stamp};

    use super::*;

    fn token() -> ReadAfter {
        ReadAfter::new("b", "k", Stamp::ZERO, AchievedLevel::Quorum)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn code<T: std::fmt::Debug>(result: S3Result<T>) -> String {
        result.unwrap_err().code().as_str().to_owned()
    }

    fn object(attributes: Attributes) -> Object {
        Object {
            size: 3,
            etag: ETag::Md5([0xab; 16]),
            modified_ms: 784_111_777_999,
            attributes,
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        }
    }

    #[test]
    fn reads_return_the_attributes_of_the_write() {
        let map = headers(&[
            ("content-type", "text/plain"),
            ("content-encoding", "gzip"),
            ("content-disposition", "attachment"),
            ("content-language", "de"),
            ("cache-control", "no-cache"),
            ("x-amz-website-redirect-location", "/there"),
            ("x-amz-storage-class", "STANDARD"),
            ("x-amz-tagging", "a=1&b=2"),
        ]);
        let parsed = ParsedHeaders { expires: Some("tomorrow".into()), ..ParsedHeaders::default() };
        let attributes = from_request(&map, &parsed).unwrap();
        let reply = object_headers(&object(attributes), token());
        for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_DISPOSITION, CONTENT_LANGUAGE] {
            assert_eq!(reply.get(&name), map.get(&name));
        }
        assert_eq!(reply[EXPIRES], "tomorrow");
        assert_eq!(reply[WEBSITE_REDIRECT], "/there");
        assert_eq!(reply[TAGGING_COUNT], "2");
        assert_eq!(reply[ETAG], format!("\"{}\"", "ab".repeat(16)));
        assert_eq!(reply[LAST_MODIFIED], "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(!reply.contains_key(STORAGE_CLASS), "STANDARD goes without saying");
    }

    #[test]
    fn a_storage_class_is_given_back_as_it_came() {
        let map = headers(&[("x-amz-storage-class", "ARCHIVE_EC")]);
        let attributes = from_request(&map, &ParsedHeaders::default()).unwrap();
        let reply = object_headers(&object(attributes), token());
        assert_eq!(reply[STORAGE_CLASS], "ARCHIVE_EC");
        assert_eq!((wire_class(Some("X")).as_str(), wire_class(None).as_str()), ("X", STANDARD));
    }

    #[test]
    fn objects_without_a_content_type_are_octet_streams() {
        let reply = object_headers(&object(Attributes::default()), token());
        assert_eq!(reply[CONTENT_TYPE], "binary/octet-stream");
    }

    #[test]
    fn malformed_values_are_refused() {
        let refused = |pairs: &[(&'static str, &str)]| {
            code(from_request(&headers(pairs), &ParsedHeaders::default()))
        };
        assert_eq!(refused(&[("x-amz-storage-class", "\u{e4}")]), "InvalidArgument");
        let redirect = "x-amz-website-redirect-location";
        assert_eq!(refused(&[(redirect, "ftp://x")]), "InvalidRedirectLocation");
        assert_eq!(refused(&[("x-amz-tagging", "a=1&a=2")]), "InvalidArgument");
        assert_eq!(refused(&[("content-type", "t\u{e4}xt")]), "InvalidArgument");
    }

    #[test]
    fn metadata_counts_names_and_values() {
        let of = |bytes: usize| user_metadata([("n".repeat(48), "v".repeat(bytes))].into());
        assert!(of(2000).is_ok());
        assert_eq!(code(of(2001)), "MetadataTooLarge");
    }
}

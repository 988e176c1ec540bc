//! Tags of objects and buckets: the header, the XML, and the limits of both.

use martlet_protocol::limits::{BUCKET_TAGS_MAX, OBJECT_TAGS_MAX};
use s3s::S3Result;
use s3s::dto::Tag;

use crate::messages;
use crate::target::percent_decode;

/// Maximum characters of a tag's key.
const KEY_CHARS_MAX: usize = 128;
/// Maximum characters of a tag's value.
const VALUE_CHARS_MAX: usize = 256;

/// Tags as an entry stores them.
pub(crate) type Tags = Vec<(String, String)>;

/// Tags from an `x-amz-tagging` header, which is a query string.
pub(crate) fn from_header(header: &str) -> S3Result<Tags> {
    let pairs = header.split('&').filter(|pair| !pair.is_empty());
    let tags: Option<Tags> = pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?)).filter(|(key, _)| !key.is_empty())
        })
        .collect();
    let Some(tags) = tags.filter(|tags| are_distinct(tags)) else {
        return Err(messages::TAGS_HEADER.argument("x-amz-tagging", header).into());
    };
    check(tags, OBJECT_TAGS_MAX)
}

/// Tags from an object's Tagging document.
pub(crate) fn from_xml(tags: Vec<Tag>) -> S3Result<Tags> {
    from_document(tags, OBJECT_TAGS_MAX)
}

/// Tags from a bucket's Tagging document.
pub(crate) fn from_bucket_xml(tags: Vec<Tag>) -> S3Result<Tags> {
    from_document(tags, BUCKET_TAGS_MAX)
}

fn from_document(tags: Vec<Tag>, tags_max: usize) -> S3Result<Tags> {
    let pairs = tags.into_iter().map(|tag| Some((tag.key?, tag.value?)));
    match pairs.collect::<Option<Tags>>() {
        Some(tags) => check(tags, tags_max),
        None => Err(messages::MALFORMED_XML.error()),
    }
}

/// Converts tags to those of a Tagging document, sorted by key.
pub(crate) fn to_xml(tags: &[(String, String)]) -> Vec<Tag> {
    let mut tags: Vec<&(String, String)> = tags.iter().collect();
    tags.sort_unstable();
    tags.into_iter()
        .map(|(key, value)| Tag { key: Some(key.clone()), value: Some(value.clone()) })
        .collect()
}

/// True if no key occurs twice.
fn are_distinct(tags: &[(String, String)]) -> bool {
    let mut keys: Vec<&String> = tags.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.windows(2).all(|pair| pair[0] != pair[1])
}

fn decode(text: &str) -> Option<String> {
    percent_decode(text, true).ok().map(std::borrow::Cow::into_owned)
}

fn check(tags: Tags, tags_max: usize) -> S3Result<Tags> {
    if tags.len() > tags_max && tags_max == BUCKET_TAGS_MAX {
        return Err(messages::TAGS_OF_BUCKET.error());
    }
    if tags.len() > tags_max {
        return Err(messages::TAGS_COUNT.with_subject(tags_max).into());
    }
    for (key, value) in &tags {
        let key_chars = key.chars().count();
        if !(1..=KEY_CHARS_MAX).contains(&key_chars) || !key.chars().all(is_allowed) {
            return Err(messages::TAG_KEY.error());
        }
        if value.chars().count() > VALUE_CHARS_MAX || !value.chars().all(is_allowed) {
            return Err(messages::TAG_VALUE.error());
        }
        if key.starts_with("aws:") {
            return Err(messages::TAG_OF_SYSTEM.error());
        }
    }
    if !are_distinct(&tags) {
        return Err(messages::TAG_TWICE.error());
    }
    Ok(tags)
}

/// True for letters and digits of any script, spaces, and `+-=._:/@`.
fn is_allowed(char: char) -> bool {
    char.is_alphanumeric() || char == ' ' || "+-=._:/@".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    fn code(result: S3Result<Tags>) -> String {
        result.unwrap_err().code().as_str().to_owned()
    }

    #[test]
    fn a_document_has_tags_by_their_keys() {
        let tags = [pair("foo", "bar"), pair("bar", ""), pair("Hello", "World")];
        let keys: Vec<_> = to_xml(&tags).into_iter().map(|tag| tag.key.unwrap()).collect();
        assert_eq!(keys, ["Hello", "bar", "foo"]);
    }

    #[test]
    fn a_header_is_a_query_string() {
        let tags = from_header("a=1&b+c=%C3%BC%2B&d").unwrap();
        assert_eq!(tags, [pair("a", "1"), pair("b c", "ü+"), pair("d", "")]);
        assert_eq!(from_header("").unwrap(), []);
        for wrong in ["a=%ff", "a%", "a=%4", "=", "=b", "a=1&a=2"] {
            assert_eq!(code(from_header(wrong)), "InvalidArgument", "{wrong}");
        }
    }

    #[test]
    fn ten_tags_and_no_more() {
        let header =
            |count: usize| (0..count).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(from_header(&header(10)).unwrap().len(), 10);
        assert_eq!(code(from_header(&header(11))), "InvalidTag");
    }

    #[test]
    fn keys_and_values_have_bounds() {
        let of = |key: &str, value: &str| from_header(&format!("{key}={value}"));
        assert!(of(&"k".repeat(128), &"v".repeat(256)).is_ok());
        assert_eq!(code(of(&"k".repeat(129), "v")), "InvalidTag");
        assert_eq!(code(of("k", &"v".repeat(257))), "InvalidTag");
        assert_eq!(code(of("", "v")), "InvalidArgument");
        assert_eq!(code(of("k%00", "v")), "InvalidTag");
        assert_eq!(code(of("k", "v%3B")), "InvalidTag");
        assert_eq!(code(of("aws:k", "v")), "InvalidTag");
    }

    #[test]
    fn a_key_comes_once() {
        assert_eq!(code(from_xml(to_xml(&[pair("a", "1"), pair("a", "2")]))), "InvalidTag");
        assert_eq!(code(from_xml(to_xml(&[pair("", "1")]))), "InvalidTag");
        assert_eq!(code(from_header("a=1&a=2")), "InvalidArgument");
    }

    #[test]
    fn buckets_may_have_fifty() {
        let tags = |count: usize| {
            to_xml(&(0..count).map(|at| pair(&at.to_string(), "")).collect::<Tags>())
        };
        assert_eq!(from_bucket_xml(tags(50)).unwrap().len(), 50);
        assert_eq!(code(from_bucket_xml(tags(51))), "BadRequest");
        assert_eq!(code(from_xml(tags(11))), "InvalidTag");
    }

    #[test]
    fn documents_go_both_ways() {
        let tags = vec![pair("a", "1"), pair("b", "")];
        assert_eq!(from_xml(to_xml(&tags)).unwrap(), tags);
        let broken = vec![Tag { key: Some("a".into()), value: None }];
        assert_eq!(code(from_xml(broken)), "MalformedXML");
    }
}

//! Headers that S3 reads leniently: conditions, ranges and expiration.
//!
//! S3 serves the whole object for an invalid `Range`, accepts lists of entity tags, ignores invalid
//! dates of reads, and returns `Expires` unchanged.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{
    EXPIRES, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    RANGE,
};
use martlet_proxy::api::{ETagCondition, ReadConditions, Selection, WriteConditions};
use s3s::{S3Result, s3_error};

use crate::date::Timestamp;
use crate::if_range::IfRange;
use crate::messages;

/// Conditions on the object of a request: on its tag, on other tags, and on its age, twice.
const OF_TARGET: [HeaderName; 4] =
    [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
/// The same conditions on the source of a copy.
const OF_SOURCE: [HeaderName; 4] = [
    HeaderName::from_static("x-amz-copy-source-if-match"),
    HeaderName::from_static("x-amz-copy-source-if-none-match"),
    HeaderName::from_static("x-amz-copy-source-if-modified-since"),
    HeaderName::from_static("x-amz-copy-source-if-unmodified-since"),
];

/// Largest position in a range: beyond every object, and far from overflow. Larger bounds are
/// reduced to it.
const POSITION_MAX: u64 = i64::MAX as u64;

/// Values of a request's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedHeaders {
    /// `Range`, if it is valid.
    pub(crate) range: Option<Selection>,
    /// `If-Range`: the validator that the object must match for its range to be returned.
    pub(crate) if_range: Option<IfRange>,
    /// `If-*`.
    pub(crate) conditions: ReadConditions,
    /// `x-amz-copy-source-if-*`.
    pub(crate) source_conditions: ReadConditions,
    /// `Expires`, unchanged.
    pub(crate) expires: Option<String>,
    /// First condition header with an invalid value. Writes refuse it.
    pub(crate) unreadable: Option<HeaderName>,
}

impl ParsedHeaders {
    /// Parses the headers of a request.
    pub(crate) fn parse(headers: &HeaderMap) -> Self {
        let range = text_of(headers, &RANGE).and_then(|text| parse_range(&text));
        let if_range = text_of(headers, &IF_RANGE).map(|text| IfRange::parse(&text));
        let mut parser = HeaderParser { headers, unreadable: None };
        let conditions = parser.conditions("if-", &OF_TARGET);
        let source_conditions = parser.conditions("x-amz-copy-source-if-", &OF_SOURCE);
        let unreadable = parser.unreadable;
        let expires = text_of(headers, &EXPIRES).map(Cow::into_owned);
        Self { range, if_range, conditions, source_conditions, expires, unreadable }
    }

    /// Conditions of a write.
    ///
    /// # Errors
    /// An unreadable condition, or a condition on a date, which a write can't evaluate.
    pub(crate) fn write_conditions(&self) -> S3Result<WriteConditions> {
        self.check_readable()?;
        if self.conditions.if_modified_since_ms.is_some()
            || self.conditions.if_unmodified_since_ms.is_some()
        {
            return Err(s3_error!(
                NotImplemented,
                "A write can't be made conditional on a date: use If-Match or If-None-Match"
            ));
        }
        Ok(WriteConditions {
            if_match: self.conditions.if_match.clone(),
            if_none_match: self.conditions.if_none_match.clone(),
        })
    }

    /// Refuses all conditions, for operations that evaluate none: a condition must never be
    /// ignored.
    pub(crate) fn refuse_conditions(&self) -> S3Result<()> {
        self.check_readable()?;
        if self.conditions == ReadConditions::default() {
            return Ok(());
        }
        Err(s3_error!(NotImplemented, "This operation can't be made conditional"))
    }

    /// Refuses an unreadable condition: a write without it could destroy data that the condition
    /// protects.
    fn check_readable(&self) -> S3Result<()> {
        match &self.unreadable {
            None => Ok(()),
            Some(name) => Err(messages::HEADER_VALUE.named(name).into()),
        }
    }
}

/// Bytes selected by a `Range` header. `None` for an invalid header or several ranges, where S3
/// serves the whole object.
pub(crate) fn parse_range(text: &str) -> Option<Selection> {
    let (unit, range) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.split_once('-')?;
    if first.is_empty() {
        return Some(Selection::Suffix { length: position(last)? });
    }
    let first = position(first)?;
    let last = if last.is_empty() { None } else { Some(position(last)?) };
    if last.is_some_and(|last| last < first) {
        return None;
    }
    Some(Selection::From { first, last })
}

/// Parses a position: digits only. Positions beyond the largest become the largest.
fn position(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(POSITION_MAX).min(POSITION_MAX))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TagComparison {
    /// Weak tags match nothing.
    Strong,
    /// `W/` is ignored.
    Weak,
}

/// Text of a header without blanks around it. None if the header is absent or empty.
fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let text = String::from_utf8_lossy(headers.get(name)?.as_bytes().trim_ascii());
    (!text.is_empty()).then_some(text)
}

/// Parses conditions, and records the first invalid one.
struct HeaderParser<'a> {
    headers: &'a HeaderMap,
    unreadable: Option<HeaderName>,
}

impl HeaderParser<'_> {
    /// Conditions in headers that begin with `start`. One pass finds that most requests have none.
    fn conditions(&mut self, start: &str, names: &[HeaderName; 4]) -> ReadConditions {
        if !self.headers.keys().any(|name| name.as_str().starts_with(start)) {
            return ReadConditions::default();
        }
        let [tag, other_tag, since, until] = names;
        ReadConditions {
            if_match: self.tags(tag, TagComparison::Strong),
            if_none_match: self.tags(other_tag, TagComparison::Weak),
            if_modified_since_ms: self.date(since),
            if_unmodified_since_ms: self.date(until),
        }
    }

    fn record_invalid(&mut self, name: &HeaderName) {
        self.unreadable.get_or_insert_with(|| name.clone());
    }

    fn date(&mut self, name: &HeaderName) -> Option<u64> {
        if !self.headers.contains_key(name) {
            return None;
        }
        let date = text_of(self.headers, name).and_then(|text| Timestamp::parse_header(&text));
        if date.is_none() {
            self.record_invalid(name);
        }
        date.map(Timestamp::unix_ms)
    }

    /// All values of a header form one list.
    fn tags(&mut self, name: &HeaderName, comparison: TagComparison) -> Option<ETagCondition> {
        if !self.headers.contains_key(name) {
            return None;
        }
        let values = self.headers.get_all(name).iter();
        let texts: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        if !is_list(&texts.join(",")) {
            self.record_invalid(name);
        }
        let mut tags = Vec::new();
        for text in &texts {
            if text.trim() == "*" {
                return Some(ETagCondition::Any);
            }
            tags.extend(split_tags(text, comparison));
        }
        let empty = texts.iter().all(|text| text.trim().is_empty());
        (!empty).then_some(ETagCondition::OneOf(tags))
    }
}

/// True if a text is `*`, or a list of entity tags, with or without quotes: a condition that holds
/// for some objects and not for others.
fn is_list(text: &str) -> bool {
    let is_tag = |tag: &str| {
        let tag = tag.trim();
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        let bare = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
        let is_visible = bare.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        !bare.is_empty() && tag != "*" && is_visible
    };
    text.trim() == "*" || text.split(',').all(is_tag)
}

/// Entity tags without their quotes. Clients also send tags without quotes.
fn split_tags(text: &str, comparison: TagComparison) -> impl Iterator<Item = String> {
    text.split(',').filter_map(move |tag| {
        let tag = tag.trim();
        let (weak, tag) = match tag.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, tag),
        };
        let bare = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
        let is_useless = bare.is_empty() || (weak && comparison == TagComparison::Strong);
        (!is_useless).then(|| bare.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn ranges_that_make_sense() {
        let from = |first, last| Some(Selection::From { first, last });
        assert_eq!(parse_range("bytes=0-0"), from(0, Some(0)));
        assert_eq!(parse_range("bytes=5-"), from(5, None));
        assert_eq!(parse_range("Bytes=5-9"), from(5, Some(9)));
        assert_eq!(parse_range("bytes=-500"), Some(Selection::Suffix { length: 500 }));
        assert_eq!(parse_range("bytes=-0"), Some(Selection::Suffix { length: 0 }));
        let endless = "bytes=1-99999999999999999999999999";
        assert_eq!(parse_range(endless), from(1, Some(POSITION_MAX)));
    }

    #[test]
    fn ranges_that_are_passed_over() {
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=+5-9",
            "bytes=a-b",
            "lines=1-2",
            "bytes=0-1,4-5",
            "bytes=1--2",
            "bytes= -1",
            "bytes= 5-9",
            "bytes=5 -9",
            "bytes=0x1-0x2",
        ] {
            assert_eq!(parse_range(text), None, "{text:?}");
        }
    }

    #[test]
    fn tags_come_in_lists_bare_and_weak() {
        let map = headers(&[
            ("if-match", "\"a\", b"),
            ("if-match", "W/\"c\""),
            ("if-none-match", "W/\"d\""),
        ]);
        let parsed = ParsedHeaders::parse(&map);
        let one_of = |tags: &[&str]| {
            Some(ETagCondition::OneOf(tags.iter().map(|&tag| tag.to_owned()).collect()))
        };
        assert_eq!(parsed.conditions.if_match, one_of(&["a", "b"]));
        assert_eq!(parsed.conditions.if_none_match, one_of(&["d"]));
    }

    #[test]
    fn a_star_means_any_and_nothing_means_no_condition() {
        let map = headers(&[("if-none-match", "*"), ("if-match", "")]);
        let parsed = ParsedHeaders::parse(&map);
        assert_eq!(parsed.conditions.if_none_match, Some(ETagCondition::Any));
        assert_eq!(parsed.conditions.if_match, None);
    }

    #[test]
    fn dates_that_are_none_are_passed_over() {
        let map = headers(&[
            ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("if-unmodified-since", "yesterday"),
            ("expires", "0"),
        ]);
        let parsed = ParsedHeaders::parse(&map);
        assert_eq!(parsed.conditions.if_modified_since_ms, Some(784_111_777_000));
        assert_eq!(parsed.conditions.if_unmodified_since_ms, None);
        assert_eq!(parsed.expires.as_deref(), Some("0"));
    }

    #[test]
    fn a_condition_that_can_not_be_read_stops_a_write() {
        for name in ["if-match", "if-none-match", "x-amz-copy-source-if-match"] {
            for wrong in
                ["", " ", "*, *", "*,\"x\"", "\"x\", *", "\"\"", "\"x", "\"a\",", ",", "a b"]
            {
                let parsed = ParsedHeaders::parse(&headers(&[(name, wrong)]));
                let refused = parsed.write_conditions().unwrap_err();
                assert_eq!(refused.code().as_str(), "InvalidArgument", "{name}: {wrong:?}");
                assert!(parsed.refuse_conditions().is_err(), "{name}: {wrong:?}");
            }
            let twice = ParsedHeaders::parse(&headers(&[(name, "*"), (name, "\"x\"")]));
            assert!(twice.write_conditions().is_err(), "{name}");
        }
        for wrong in ["", "yesterday"] {
            let parsed = ParsedHeaders::parse(&headers(&[("if-unmodified-since", wrong)]));
            assert!(parsed.write_conditions().is_err(), "{wrong:?}");
        }
        for right in ["*", "x", "\"x\"", "\"x\", y", "W/\"x\""] {
            let parsed = ParsedHeaders::parse(&headers(&[("if-match", right)]));
            assert!(parsed.write_conditions().is_ok(), "{right:?}");
        }
    }

    #[test]
    fn no_condition_of_a_write_is_ignored() {
        let map = headers(&[("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        let parsed = ParsedHeaders::parse(&map);
        assert!(parsed.write_conditions().is_err());
        assert!(parsed.refuse_conditions().is_err());
        assert!(ParsedHeaders::default().refuse_conditions().is_ok());
    }

    proptest! {
        #[test]
        fn no_range_panics_and_first_never_exceeds_last(text in "(bytes=)?[0-9,-]{0,30}|.*") {
            if let Some(Selection::From { first, last: Some(last) }) = parse_range(&text) {
                prop_assert!(first <= last && last <= POSITION_MAX);
            }
        }
    }
}

//! Values of operations: keys, ranges, limits, bodies, descriptions and conditions. About one in
//! four is one that S3 refuses.

use rand::Rng;

use super::Generator;
use crate::operation::{Body, Conditions, Description, Lock, Retention, Since, Tag, Until};

pub(super) const KEYS: [&str; 26] = [
    "a",
    "a/b",
    "a/c/d",
    "a//b",
    "b",
    "/b",
    "a/",
    ".",
    "..",
    "a/../b",
    "./a",
    "é",
    "e\u{301}",
    "日本/語",
    "😀",
    "\u{ffff}z",
    " a b ",
    "%41",
    "a%2Fb",
    "a+b",
    "tab\tx",
    "line\nx",
    "\u{1}x",
    "<&>\"'",
    "?x=1#y",
    "a b/c",
];
pub(super) const RANGES: [&str; 14] = [
    "bytes=0-",
    "bytes=0-0",
    "bytes=1-2",
    "bytes=2-1",
    "bytes=-1",
    "bytes=-0",
    "bytes=-999999999",
    "bytes=5-",
    "bytes=999999-",
    "bytes=0-0,2-3",
    "bytes=x-y",
    "lines=0-1",
    "bytes=3-99999999999",
    "bytes=-",
];
pub(super) const COPY_RANGES: [&str; 6] =
    ["bytes=0-0", "bytes=0-99", "bytes=0-", "bytes=-5", "bytes=10-99999999", "bytes=0-5242879"];
pub(super) const LIMITS: [&str; 9] = ["0", "1", "2", "3", "7", "1000", "5000", "-1", "x"];
/// Size of the smallest part that is not the last.
pub(super) const PART: usize = 5 << 20;

/// Bucket names, and whether S3 takes them
/// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>).
pub(super) const NAMES: [(&str, bool); 14] = [
    ("ab", false),
    ("Upper", false),
    ("under_score", false),
    ("a..b", false),
    ("-begins", false),
    ("ends-", false),
    ("192.168.5.4", false),
    ("xn--abc", false),
    ("sthree-abc", false),
    ("abc-s3alias", false),
    ("abc--ol-s3", false),
    ("a.", false),
    ("model.named-1", true),
    ("0model", true),
];

impl Generator {
    pub(super) fn body(&mut self) -> Body {
        let length = self.pick(&[0, 1, 3, 10, 100, 100, 1000, 9000, 70_000]);
        Body { first: self.chance.random(), length }
    }

    pub(super) fn tags(&mut self) -> Vec<(String, String)> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        match self.chance.random_range(0..8) {
            0 => (0..10).map(|at| pair(&format!("k{at}"), "v")).collect(),
            1 => (0..11).map(|at| pair(&format!("k{at}"), "v")).collect(),
            2 => vec![pair("a", "1"), pair("a", "2")],
            3 => vec![pair(&"k".repeat(129), "v")],
            4 => vec![pair("k", &"v".repeat(257))],
            5 => vec![pair("k;", "v")],
            6 => vec![],
            _ => vec![pair("b c", "ü+"), pair("a", "")],
        }
    }

    pub(super) fn description(&mut self) -> Description {
        let pair = |key: &str, value: String| (key.to_owned(), value);
        let metadata = match self.chance.random_range(0..12) {
            0 => vec![pair("a", "v".repeat(2047))],
            1 => vec![pair("a", "v".repeat(2048))],
            2 | 3 => vec![pair("a", "one".into()), pair("b", "two words".into())],
            _ => vec![],
        };
        let content_type = self.maybe(5, &["text/plain", "application/x-model"]);
        let tags = self.one_in(6).then(|| self.tags());
        let lock = self.one_in(12).then(|| self.lock());
        Description { metadata, content_type, tags, lock }
    }

    pub(super) fn lock(&mut self) -> Lock {
        let retention = self.one_in(2).then(|| self.retention());
        let hold = if retention.is_none() || self.one_in(2) { Some(self.one_in(2)) } else { None };
        Lock { retention, hold }
    }

    pub(super) fn retention(&mut self) -> Retention {
        let until = self.pick(&[Until::Past, Until::Soon, Until::Soon, Until::Late]);
        Retention { compliance: self.one_in(3), until }
    }

    pub(super) fn tag(&mut self) -> Tag {
        self.pick(&[Tag::Any, Tag::Right, Tag::Right, Tag::Wrong, Tag::List, Tag::Empty])
    }

    pub(super) fn read_conditions(&mut self, times: u32) -> Conditions {
        if !self.one_in(times) {
            return Conditions::default();
        }
        let since = [Since::LongAgo, Since::Then, Since::Malformed];
        Conditions {
            matches: self.one_in(3).then(|| self.tag()).filter(|it| *it != Tag::Empty),
            none_match: self.one_in(3).then(|| self.tag()).filter(|it| *it != Tag::Empty),
            modified: self.maybe(3, &since),
            unmodified: self.maybe(3, &since),
        }
    }

    pub(super) fn write_conditions(&mut self, times: u32) -> Conditions {
        if !self.one_in(times) {
            return Conditions::default();
        }
        let none_match = self.maybe(2, &[Tag::Any, Tag::Any, Tag::Any, Tag::Empty]);
        let matches = if none_match.is_none() { Some(self.tag()) } else { None };
        // A list of ETags is for reads.
        let matches = matches.filter(|it| ![Tag::List, Tag::Any].contains(it));
        let modified = self.maybe(10, &[Since::LongAgo, Since::Malformed]);
        Conditions { matches, none_match, modified, unmodified: None }
    }
}

//! Notification rules of a bucket, as stored with the bucket.
//!
//! ```text
//! document: format (1) | postcard of the rules
//! ```
//!
//! Invariant: no two rules of a bucket match one event of one key.

use serde::{Deserialize, Serialize};

use super::name::{Event, means, overlap};

const FORMAT: u8 = 1;

/// S3's kind of a target. The kind changes nothing but the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TargetKind {
    /// A topic.
    Topic,
    /// A queue.
    Queue,
    /// A function.
    Function,
}

/// A rule: a target, with the events and keys that it receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) kind: TargetKind,
    /// Target as the client named it.
    pub(crate) arn: String,
    /// Names of events, or of groups of them.
    pub(crate) events: Vec<String>,
    /// Prefix of the keys.
    pub(crate) prefix: Option<String>,
    /// Suffix of the keys.
    pub(crate) suffix: Option<String>,
}

/// Conflict of two rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleConflict {
    /// Both have one id.
    Id,
    /// Both match one event of the same keys, and neither filters keys.
    Event,
    /// Both match one event of the same keys.
    Filter,
}

/// All rules of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules(pub(crate) Vec<Rule>);

impl Rule {
    fn means(&self, event: Event, key: &str) -> bool {
        let (prefix, suffix) = self.ends();
        key.starts_with(prefix)
            && key.ends_with(suffix)
            && self.events.iter().any(|pattern| means(pattern, event))
    }

    fn ends(&self) -> (&str, &str) {
        (self.prefix.as_deref().unwrap_or_default(), self.suffix.as_deref().unwrap_or_default())
    }

    fn clash(&self, other: &Self) -> Option<RuleConflict> {
        if self.id == other.id {
            return Some(RuleConflict::Id);
        }
        let is_shared = |pattern: &String| other.events.iter().any(|name| overlap(pattern, name));
        if !self.events.iter().any(is_shared) {
            return None;
        }
        let ((prefix, suffix), (their_prefix, their_suffix)) = (self.ends(), other.ends());
        let prefixes_meet = prefix.starts_with(their_prefix) || their_prefix.starts_with(prefix);
        let suffixes_meet = suffix.ends_with(their_suffix) || their_suffix.ends_with(suffix);
        let is_bare = [prefix, suffix, their_prefix, their_suffix].iter().all(|end| end.is_empty());
        (prefixes_meet && suffixes_meet).then_some(if is_bare {
            RuleConflict::Event
        } else {
            RuleConflict::Filter
        })
    }
}

impl Rules {
    /// Encodes the rules as a document.
    pub(crate) fn document(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).expect("rules in memory can be written")
    }

    /// Decodes a document; `None` if it can't be read.
    pub(crate) fn of(document: &[u8]) -> Option<Self> {
        match document.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        }
    }

    /// First conflict of two rules, if any.
    pub(crate) fn clash(&self) -> Option<RuleConflict> {
        let mut pairs = self.0.iter().enumerate().flat_map(|(at, rule)| {
            let later = self.0.iter().skip(at + 1);
            later.map(move |other| (rule, other))
        });
        pairs.find_map(|(rule, other)| rule.clash(other))
    }

    /// Rules that match an event of a key.
    pub(crate) fn meaning<'a>(
        &'a self,
        event: Event,
        key: &'a str,
    ) -> impl Iterator<Item = &'a Rule> + 'a {
        self.0.iter().filter(move |rule| rule.means(event, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str, events: &[&str], prefix: &str, suffix: &str) -> Rule {
        let end = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Rule {
            id: id.to_owned(),
            kind: TargetKind::Queue,
            arn: "arn:martlet:sqs:::q".to_owned(),
            events: events.iter().map(|name| (*name).to_owned()).collect(),
            prefix: end(prefix),
            suffix: end(suffix),
        }
    }

    const PUT: &[&str] = &["s3:ObjectCreated:Put"];
    const ALL: &[&str] = &["s3:ObjectCreated:*"];

    #[test]
    fn rules_are_kept_as_they_are() {
        let rules = Rules(vec![rule("a", ALL, "x/", ""), rule("b", PUT, "y/", ".jpg")]);
        assert_eq!(Rules::of(&rules.document()), Some(rules.clone()));
        assert_eq!(Rules::of(&[]), None);
        let mut later = rules.document();
        later[0] = 9;
        assert_eq!(Rules::of(&later), None);
    }

    #[test]
    fn keys_are_meant_by_both_their_ends() {
        let rules = Rules(vec![rule("a", ALL, "images/", ".jpg"), rule("b", PUT, "", ".txt")]);
        let ids = |event, key: &str| {
            rules.meaning(event, key).map(|rule| rule.id.clone()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(ids(Event::Put, "images/a.jpg"), "a");
        assert_eq!(ids(Event::Copy, "images/a.txt"), "");
        assert_eq!(ids(Event::Put, "images/a.txt"), "b");
        assert_eq!(ids(Event::Delete, "images/a.jpg"), "");
        assert_eq!(ids(Event::Put, "Images/a.jpg"), "");
    }

    #[test]
    fn two_rules_may_not_mean_the_same() {
        let clash = |one: Rule, other: Rule| Rules(vec![one, other]).clash();
        let plain = |id, events| rule(id, events, "", "");
        assert_eq!(
            clash(plain("a", PUT), plain("a", &["s3:ObjectRemoved:*"])),
            Some(RuleConflict::Id)
        );
        assert_eq!(clash(plain("a", PUT), plain("b", ALL)), Some(RuleConflict::Event));
        assert_eq!(clash(plain("a", PUT), plain("b", &["s3:ObjectCreated:Post"])), None);
        let with = |id, prefix, suffix| rule(id, PUT, prefix, suffix);
        assert_eq!(clash(with("a", "x/", ""), with("b", "y/", "")), None);
        assert_eq!(clash(with("a", "x/", ""), with("b", "x/y/", "")), Some(RuleConflict::Filter));
        assert_eq!(clash(with("a", "x/", ".jpg"), with("b", "x/y/", ".png")), None);
        assert_eq!(clash(with("a", "x/", ".jpg"), with("b", "", "g")), Some(RuleConflict::Filter));
        assert_eq!(clash(with("a", "x/", ""), with("b", "", "")), Some(RuleConflict::Filter));
    }
}

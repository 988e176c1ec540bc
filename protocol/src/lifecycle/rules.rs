//! Rules and the format of their document.
//!
//! ```text
//! version (1) | postcard of the rules
//! ```
//!
//! A document preserves rules as sent by the client, for `GetBucketLifecycleConfiguration`. Rules
//! of a later version can't be decoded and must not be applied.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const VERSION: u8 = 1;

/// Most rules of a bucket, as in S3.
pub const RULES_MAX: usize = 1000;

/// The lifecycle rules of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Rules in the order of the request.
    pub rules: Vec<Rule>,
    /// Minimum object size for transitions, as sent by the client. No rule depends on it.
    pub transition_minimum: Option<String>,
}

/// A lifecycle rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Name of the rule within the bucket.
    pub id: String,
    /// True if the rule is enabled.
    pub is_enabled: bool,
    /// Objects that the rule applies to.
    pub scope: Scope,
    /// Expiration of the current version.
    pub expiration: Option<Expiration>,
    /// Expiration of noncurrent versions.
    pub noncurrent: Option<Noncurrent>,
    /// Days after which an incomplete multipart upload is aborted.
    pub abort_upload_days: Option<u32>,
}

/// Scope of a rule, in the client's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The old form: keys with this prefix.
    Prefix(String),
    /// The form with a filter.
    Filter(Filter),
}

/// Conditions of a filter; all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Prefix of the key.
    pub prefix: Option<String>,
    /// Required tag.
    pub tag: Option<(String, String)>,
    /// Exclusive lower bound on the object's size in bytes.
    pub larger_than: Option<u64>,
    /// Exclusive upper bound on the object's size in bytes.
    pub smaller_than: Option<u64>,
    /// Further conditions.
    pub and: Option<And>,
}

/// The conjunction within a filter; all its conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct And {
    /// Prefix of the key.
    pub prefix: Option<String>,
    /// Required tags.
    pub tags: Vec<(String, String)>,
    /// Exclusive lower bound on the object's size in bytes.
    pub larger_than: Option<u64>,
    /// Exclusive upper bound on the object's size in bytes.
    pub smaller_than: Option<u64>,
}

/// Expiration time of the current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiration {
    /// Days after the version was written. A lone delete marker expires after that time as well.
    Days(u32),
    /// Time of expiration, in milliseconds since 1970.
    Date(u64),
    /// If true, lone delete markers expire, and nothing else does.
    Marker(bool),
}

/// Expiration of noncurrent versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noncurrent {
    /// Days after the version became noncurrent.
    pub days: u32,
    /// Number of the newest noncurrent versions that are kept at any age.
    pub newer: Option<u32>,
}

impl Lifecycle {
    /// Returns the rules as a bucket's document.
    pub fn document(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("rules in memory can be encoded")
    }

    /// Decodes a document of [`Lifecycle::document`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not rules, or have a
    /// later version.
    pub fn of(document: &[u8]) -> Result<Self> {
        match document.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| {
                Error::corrupt("lifecycle rules can't be decoded").with_source(error)
            }),
            Some((version, _)) => {
                Err(Error::corrupt(format!("lifecycle rules have format {version}")))
            }
            None => Err(Error::corrupt("lifecycle rules are empty")),
        }
    }
}

/// Returns an enabled rule without actions.
#[cfg(test)]
pub(super) fn rule(scope: Scope) -> Rule {
    let (id, is_enabled) = ("r".to_owned(), true);
    Rule { id, is_enabled, scope, expiration: None, noncurrent: None, abort_upload_days: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_form() -> Lifecycle {
        let and = And {
            prefix: Some("a/".into()),
            tags: vec![("k".into(), "v".into()), ("l".into(), String::new())],
            larger_than: Some(0),
            smaller_than: Some(u64::MAX),
        };
        let filter = Filter {
            prefix: Some(String::new()),
            tag: Some(("k".into(), "v".into())),
            larger_than: Some(7),
            smaller_than: None,
            and: Some(and),
        };
        let noncurrent = Some(Noncurrent { days: 3, newer: Some(100) });
        let rules = vec![
            Rule { expiration: Some(Expiration::Days(1)), ..rule(Scope::Prefix("x".into())) },
            Rule { noncurrent, abort_upload_days: Some(9), ..rule(Scope::Filter(filter)) },
            Rule {
                is_enabled: false,
                expiration: Some(Expiration::Date(86_400_000)),
                ..rule(Scope::Filter(Filter::default()))
            },
        ];
        Lifecycle { rules, transition_minimum: Some("varies_by_storage_class".into()) }
    }

    #[test]
    fn rules_are_read_back_as_they_were_given() {
        for rules in [Lifecycle::default(), every_form()] {
            assert_eq!(Lifecycle::of(&rules.document()).unwrap(), rules);
        }
    }

    #[test]
    fn documents_of_unknown_versions_have_no_rules() {
        let mut later = every_form().document();
        later[0] += 1;
        assert!(Lifecycle::of(&later).is_err());
        assert!(Lifecycle::of(&[]).is_err());
        assert!(Lifecycle::of(&every_form().document()[..9]).is_err());
    }

    #[test]
    fn as_many_rules_as_there_may_be_fit_into_a_bucket() {
        let named = |at: usize| Rule {
            id: format!("rule-{at:04}"),
            expiration: Some(Expiration::Days(365)),
            ..rule(Scope::Filter(Filter {
                prefix: Some(format!("folder-{at:04}/")),
                ..Filter::default()
            }))
        };
        let rules = (0..RULES_MAX).map(named).collect();
        let document = Lifecycle { rules, transition_minimum: None }.document();
        assert!(document.len() < crate::limits::SETTINGS_BYTES_MAX, "{}", document.len());
    }
}

//! What becomes of objects with time: the rules of a bucket, as its document keeps them.
//!
//! ```text
//! version (1) | postcard of the rules
//! ```
//!
//! Whoever set them has looked them over; a document is read back as it was given, so that it can be
//! told again. Rules of a later version are not understood, and then nothing may go by them.
//!
//! * [`due`]: which rule takes what, and when; a pure function of rules and facts.
//! * [`work`]: who carries rules out on objects, and how far that is.

mod due;
mod work;

use serde::{Deserialize, Serialize};

pub use self::due::{Day, Due, Fate, Standing, Subject};
pub use self::work::{Carried, ObjectExpiry, Place, Stretch, Within};
use crate::error::{Error, Result};

const VERSION: u8 = 1;

/// Rules of a bucket, as in S3.
pub const RULES_MAX: usize = 1000;

/// The rules of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// In the order in which they were given.
    pub rules: Vec<Rule>,
    /// From which size on objects change their class, as it was given. None of the rules says so.
    pub transition_minimum: Option<String>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name within the bucket.
    pub id: String,
    /// Whether it is in force.
    pub is_enabled: bool,
    /// Of what it speaks.
    pub scope: Scope,
    /// What becomes of the current version.
    pub expiration: Option<Expiration>,
    /// What becomes of the others.
    pub noncurrent: Option<Noncurrent>,
    /// Days after which an upload that nobody has completed is given up.
    pub abort_upload_days: Option<u32>,
}

/// Of what a rule speaks, in the form in which it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The old form: keys that begin with this.
    Prefix(String),
    /// What all of this holds of.
    Filter(Filter),
}

/// What must hold; all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The key begins with this.
    pub prefix: Option<String>,
    /// It has this tag.
    pub tag: Option<(String, String)>,
    /// It has more bytes.
    pub larger_than: Option<u64>,
    /// It has less bytes.
    pub smaller_than: Option<u64>,
    /// And this holds too.
    pub and: Option<And>,
}

/// The conjunction within a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct And {
    /// The key begins with this.
    pub prefix: Option<String>,
    /// It has these tags.
    pub tags: Vec<(String, String)>,
    /// It has more bytes.
    pub larger_than: Option<u64>,
    /// It has less bytes.
    pub smaller_than: Option<u64>,
}

/// When the current version goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiration {
    /// So many days after it was written. A delete marker that is left alone goes then as well.
    Days(u32),
    /// From this moment on, in milliseconds since 1970.
    Date(u64),
    /// Only a delete marker that is left alone, if this says so.
    Marker(bool),
}

/// When other versions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noncurrent {
    /// Days after another one took its place.
    pub days: u32,
    /// So many of the newest stay whatever their age.
    pub newer: Option<u32>,
}

impl Lifecycle {
    /// The document that a bucket keeps.
    pub fn document(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("rules in memory can be encoded")
    }

    /// The inverse of [`Lifecycle::document`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are no rules, or of a later
    /// version.
    pub fn of(document: &[u8]) -> Result<Self> {
        match document.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| {
                Error::corrupt("lifecycle rules do not decode").with_source(error)
            }),
            Some((version, _)) => {
                Err(Error::corrupt(format!("lifecycle rules have format {version}")))
            }
            None => Err(Error::corrupt("lifecycle rules are empty")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn rule(scope: Scope) -> Rule {
        let (id, is_enabled) = ("r".to_owned(), true);
        Rule { id, is_enabled, scope, expiration: None, noncurrent: None, abort_upload_days: None }
    }

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
    fn what_is_not_understood_is_no_rule_at_all() {
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

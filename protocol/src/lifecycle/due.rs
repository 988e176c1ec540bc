//! Evaluation of lifecycle rules. Pure: rules and facts in, an expiration time out.
//!
//! Invariants:
//! * a version outside every enabled rule's scope is never due;
//! * of several rules the earliest due one applies, and of equally early ones the first in the
//!   list;
//! * a version among the newest that a rule keeps is not due by that rule at any age;
//! * with days of 24 hours, times counted in days fall on a midnight (UTC).

use super::rules::{And, Expiration, Filter, Lifecycle, Noncurrent, Rule, Scope};

/// Length of a day in lifecycle rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    ms: u64,
}

impl Day {
    /// 24 hours, as in S3: times counted in days are rounded up to midnight (UTC).
    pub const FULL: Self = Self { ms: 24 * 60 * 60 * 1000 };

    /// Creates a day of `seconds`, at least 1. Times counted in days of another length than
    /// [`Day::FULL`] are exact to the millisecond.
    pub const fn of_seconds(seconds: u64) -> Self {
        let seconds = if seconds == 0 { 1 } else { seconds };
        Self { ms: seconds.saturating_mul(1000) }
    }

    /// Length of the day in milliseconds.
    pub const fn ms(self) -> u64 {
        self.ms
    }

    /// Returns the time `days` days after `since_ms`, in milliseconds since 1970.
    pub fn after(self, since_ms: u64, days: u32) -> u64 {
        let at_ms = since_ms.saturating_add(self.ms.saturating_mul(u64::from(days)));
        let full_ms = Self::FULL.ms;
        if self.ms != full_ms {
            return at_ms;
        }
        at_ms.div_ceil(full_ms).saturating_mul(full_ms)
    }
}

/// Facts about a version or upload that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Key of the object.
    pub key: &'a str,
    /// Size in bytes, and tags; none for a delete marker or an upload.
    pub object: Option<(u64, &'a [(String, String)])>,
}

/// Position of a version or an upload among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionPosition {
    /// An object that is the current version.
    Current {
        /// Write time, in milliseconds since 1970.
        modified_ms: u64,
    },
    /// A delete marker without any other version.
    LoneMarker {
        /// Write time, in milliseconds since 1970.
        modified_ms: u64,
    },
    /// A version, or a delete marker, that was superseded.
    Noncurrent {
        /// Time at which the version became noncurrent, in milliseconds since 1970.
        since_ms: u64,
        /// Number of newer noncurrent versions.
        newer: u32,
    },
    /// An incomplete multipart upload.
    Upload {
        /// Start of the upload, in milliseconds since 1970.
        initiated_ms: u64,
    },
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleAction {
    /// The current version expires: in a versioned bucket a delete marker supersedes it.
    Expire,
    /// The version is removed permanently.
    Remove,
    /// The upload is aborted.
    Abort,
}

/// Action of a rule on a version or upload, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueAction<'a> {
    /// Time from which the action is due, in milliseconds since 1970.
    pub at_ms: u64,
    /// Action that is due.
    pub action: LifecycleAction,
    /// Name of the rule.
    pub rule: &'a str,
}

impl Lifecycle {
    /// Returns the rule that applies first and its time, if any rule ever applies.
    pub fn due(
        &self,
        subject: &Subject<'_>,
        position: VersionPosition,
        day: Day,
    ) -> Option<DueAction<'_>> {
        let enabled = self.rules.iter().filter(|rule| rule.is_enabled);
        let taking = enabled.filter(|rule| rule.matches(subject));
        let due = taking.filter_map(|rule| rule.due(position, day));
        due.reduce(|first, other| if other.at_ms < first.at_ms { other } else { first })
    }

    /// Returns true if an enabled rule applies to versions; else buckets need no scan of objects.
    pub fn needs_objects(&self) -> bool {
        let of_objects = |rule: &Rule| rule.expiration.is_some() || rule.noncurrent.is_some();
        self.rules.iter().any(|rule| rule.is_enabled && of_objects(rule))
    }

    /// Returns the longest common prefix of the keys that enabled rules apply to.
    pub fn common_prefix(&self) -> &str {
        let enabled = self.rules.iter().filter(|rule| rule.is_enabled);
        enabled.map(Rule::prefix).reduce(common).unwrap_or_default()
    }
}

/// Returns the common prefix of two texts.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let alike = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    &one[..alike.map(|(one, _)| one.len_utf8()).sum()]
}

impl Rule {
    fn due(&self, position: VersionPosition, day: Day) -> Option<DueAction<'_>> {
        let (at_ms, action) = match position {
            VersionPosition::Current { modified_ms } => match self.expiration? {
                Expiration::Days(days) => (day.after(modified_ms, days), LifecycleAction::Expire),
                Expiration::Date(at_ms) => (at_ms, LifecycleAction::Expire),
                Expiration::Marker(_) => return None,
            },
            VersionPosition::LoneMarker { modified_ms } => match self.expiration? {
                Expiration::Days(days) => (day.after(modified_ms, days), LifecycleAction::Remove),
                Expiration::Date(at_ms) => (at_ms.max(modified_ms), LifecycleAction::Remove),
                Expiration::Marker(goes) => {
                    goes.then_some((modified_ms, LifecycleAction::Remove))?
                }
            },
            VersionPosition::Noncurrent { since_ms, newer } => {
                let Noncurrent { days, newer: kept } = self.noncurrent?;
                if kept.is_some_and(|kept| newer < kept) {
                    return None;
                }
                (day.after(since_ms, days), LifecycleAction::Remove)
            }
            VersionPosition::Upload { initiated_ms } => {
                (day.after(initiated_ms, self.abort_upload_days?), LifecycleAction::Abort)
            }
        };
        Some(DueAction { at_ms, action, rule: &self.id })
    }

    /// Returns the prefix of all keys in the rule's scope.
    fn prefix(&self) -> &str {
        let filter = match &self.scope {
            Scope::Prefix(prefix) => return prefix,
            Scope::Filter(filter) => filter,
        };
        let and = filter.and.as_ref().and_then(|and| and.prefix.as_deref());
        let both = [filter.prefix.as_deref().unwrap_or_default(), and.unwrap_or_default()];
        both.into_iter().max_by_key(|prefix| prefix.len()).unwrap_or_default()
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        match &self.scope {
            Scope::Prefix(prefix) => subject.key.starts_with(prefix),
            Scope::Filter(filter) => filter.holds(subject),
        }
    }
}

impl Filter {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        let tags = self.tag.as_slice();
        hold(self.prefix.as_deref(), tags, self.larger_than, self.smaller_than, subject)
            && self.and.as_ref().is_none_or(|and| and.holds(subject))
    }
}

impl And {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        hold(self.prefix.as_deref(), &self.tags, self.larger_than, self.smaller_than, subject)
    }
}

/// Returns true if the key has the prefix, and the object has the tags and a size within the
/// bounds. Delete markers and uploads have neither tags nor size.
fn hold(
    prefix: Option<&str>,
    tags: &[(String, String)],
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
    subject: &Subject<'_>,
) -> bool {
    if prefix.is_some_and(|prefix| !subject.key.starts_with(prefix)) {
        return false;
    }
    match subject.object {
        Some((size, has)) => {
            tags.iter().all(|tag| has.contains(tag))
                && larger_than.is_none_or(|least| size > least)
                && smaller_than.is_none_or(|most| size < most)
        }
        None => tags.is_empty() && larger_than.is_none() && smaller_than.is_none(),
    }
}

#[cfg(test)]
mod tests;

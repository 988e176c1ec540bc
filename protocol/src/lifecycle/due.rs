//! Which rule takes what, and when. Pure: rules and facts in, a moment out.
//!
//! Invariants:
//! * what no enabled rule speaks of is never due;
//! * of several rules the one that is due first counts, of those the one that stands first;
//! * a version that is among the newest that a rule keeps is not due by that rule, whatever its age;
//! * with days of 24 hours whatever is counted in days is due at a midnight (UTC).

use super::{And, Expiration, Filter, Lifecycle, Noncurrent, Rule, Scope};

/// How long a day of the rules is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    ms: u64,
}

impl Day {
    /// 24 hours, as in S3: what is counted in days is due at the midnight that follows.
    pub const FULL: Self = Self { ms: 24 * 60 * 60 * 1000 };

    /// A day of so many seconds, one at least; what is counted in shorter ones than
    /// [`Day::FULL`] is due to the millisecond.
    pub const fn of_seconds(seconds: u64) -> Self {
        let seconds = if seconds == 0 { 1 } else { seconds };
        Self { ms: seconds.saturating_mul(1000) }
    }

    /// Its length in milliseconds.
    pub const fn ms(self) -> u64 {
        self.ms
    }

    /// So many days after a moment.
    pub fn after(self, since_ms: u64, days: u32) -> u64 {
        let at_ms = since_ms.saturating_add(self.ms.saturating_mul(u64::from(days)));
        let full_ms = Self::FULL.ms;
        if self.ms != full_ms {
            return at_ms;
        }
        at_ms.div_ceil(full_ms).saturating_mul(full_ms)
    }
}

/// What rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its bytes and tags; none of a delete marker or an upload.
    pub object: Option<(u64, &'a [(String, String)])>,
}

/// How a version, or an upload, stands among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// An object that is the current version.
    Current {
        /// When it was written, in milliseconds since 1970.
        modified_ms: u64,
    },
    /// A delete marker that is all that is left.
    LoneMarker {
        /// When it was written.
        modified_ms: u64,
    },
    /// A version, or a delete marker, that another one took the place of.
    Noncurrent {
        /// When that was.
        since_ms: u64,
        /// How many there are that are newer and not the current one.
        newer: u32,
    },
    /// An upload that nobody has completed.
    Upload {
        /// When it began.
        initiated_ms: u64,
    },
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The current version expires: a delete marker takes its place where versions are kept.
    Expire,
    /// It is removed for good.
    Remove,
    /// The upload is aborted.
    Abort,
}

/// A rule takes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due<'a> {
    /// From when on, in milliseconds since 1970.
    pub at_ms: u64,
    /// What becomes of it.
    pub fate: Fate,
    /// The rule's name.
    pub rule: &'a str,
}

impl Lifecycle {
    /// Which rule takes something, if any ever does, and from when on.
    pub fn due(&self, subject: &Subject<'_>, standing: Standing, day: Day) -> Option<Due<'_>> {
        let enabled = self.rules.iter().filter(|rule| rule.is_enabled);
        let taking = enabled.filter(|rule| rule.speaks_of(subject));
        let due = taking.filter_map(|rule| rule.due(standing, day));
        due.reduce(|first, other| if other.at_ms < first.at_ms { other } else { first })
    }

    /// Whether any enabled rule speaks of objects: else there is no need to look at them.
    pub fn speaks_of_objects(&self) -> bool {
        let of_objects = |rule: &Rule| rule.expiration.is_some() || rule.noncurrent.is_some();
        self.rules.iter().any(|rule| rule.is_enabled && of_objects(rule))
    }

    /// What every key begins with that an enabled rule may speak of.
    pub fn common_prefix(&self) -> &str {
        let enabled = self.rules.iter().filter(|rule| rule.is_enabled);
        enabled.map(Rule::prefix).reduce(common).unwrap_or_default()
    }
}

/// How two texts both begin.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let alike = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    &one[..alike.map(|(one, _)| one.len_utf8()).sum()]
}

impl Rule {
    fn due(&self, standing: Standing, day: Day) -> Option<Due<'_>> {
        let (at_ms, fate) = match standing {
            Standing::Current { modified_ms } => match self.expiration? {
                Expiration::Days(days) => (day.after(modified_ms, days), Fate::Expire),
                Expiration::Date(at_ms) => (at_ms, Fate::Expire),
                Expiration::Marker(_) => return None,
            },
            Standing::LoneMarker { modified_ms } => match self.expiration? {
                Expiration::Days(days) => (day.after(modified_ms, days), Fate::Remove),
                Expiration::Date(at_ms) => (at_ms.max(modified_ms), Fate::Remove),
                Expiration::Marker(goes) => goes.then_some((modified_ms, Fate::Remove))?,
            },
            Standing::Noncurrent { since_ms, newer } => {
                let Noncurrent { days, newer: kept } = self.noncurrent?;
                if kept.is_some_and(|kept| newer < kept) {
                    return None;
                }
                (day.after(since_ms, days), Fate::Remove)
            }
            Standing::Upload { initiated_ms } => {
                (day.after(initiated_ms, self.abort_upload_days?), Fate::Abort)
            }
        };
        Some(Due { at_ms, fate, rule: &self.id })
    }

    /// What every key begins with that it speaks of.
    fn prefix(&self) -> &str {
        let filter = match &self.scope {
            Scope::Prefix(prefix) => return prefix,
            Scope::Filter(filter) => filter,
        };
        let and = filter.and.as_ref().and_then(|and| and.prefix.as_deref());
        let both = [filter.prefix.as_deref().unwrap_or_default(), and.unwrap_or_default()];
        both.into_iter().max_by_key(|prefix| prefix.len()).unwrap_or_default()
    }

    fn speaks_of(&self, subject: &Subject<'_>) -> bool {
        match &self.scope {
            Scope::Prefix(prefix) => subject.key.starts_with(prefix),
            Scope::Filter(filter) => filter.holds(subject),
        }
    }
}

impl Filter {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        let tags = self.tag.as_slice();
        hold(self.prefix.as_deref(), tags, (self.larger_than, self.smaller_than), subject)
            && self.and.as_ref().is_none_or(|and| and.holds(subject))
    }
}

impl And {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        let sizes = (self.larger_than, self.smaller_than);
        hold(self.prefix.as_deref(), &self.tags, sizes, subject)
    }
}

/// Whether a key begins so, and what has it has these tags and a size between these. What is no
/// object has neither.
fn hold(
    prefix: Option<&str>,
    tags: &[(String, String)],
    (larger_than, smaller_than): (Option<u64>, Option<u64>),
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

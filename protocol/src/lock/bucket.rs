//! Object lock configuration of a bucket: its presence enables locks, and it may have a default
//! retention.

use serde::{Deserialize, Serialize};

use super::document::{Lock, LockViolation, Retention, RetentionMode, decode, encode};
use crate::entry::Marks;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Days in a year of a retention.
const YEAR_DAYS: u64 = 365;

/// Length of a retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// Number of days.
    Days(u32),
    /// Number of years, of 365 days each.
    Years(u32),
}

impl Period {
    fn ms(self) -> u64 {
        match self {
            Self::Days(days) => u64::from(days) * DAY_MS,
            Self::Years(years) => (u64::from(years) * YEAR_DAYS).saturating_mul(DAY_MS),
        }
    }
}

/// Default retention of new objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultRetention {
    /// Mode of the retention.
    pub mode: RetentionMode,
    /// Length of the retention, from the creation of the object.
    pub period: Period,
}

/// Object lock configuration of a bucket; if present, the bucket's objects can be locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketLock {
    /// Default retention of new objects, if any.
    pub default: Option<DefaultRetention>,
}

impl BucketLock {
    /// Returns the configuration as a bucket's document.
    pub fn document(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a document of [`BucketLock::document`]; none without a document.
    ///
    /// # Errors
    /// [`LockViolation::Unreadable`] when the document can't be decoded: then the default retention
    /// is unknown.
    pub fn of(document: Option<&[u8]>) -> Result<Option<Self>, LockViolation> {
        document.map(decode).transpose()
    }

    /// Sets the default retention on a new object without one. Returns true if it was set.
    ///
    /// # Errors
    /// [`LockViolation::Unreadable`] when the object's lock can't be decoded.
    pub fn complete(&self, marks: &mut Marks, made_ms: u64) -> Result<bool, LockViolation> {
        let mut lock = Lock::of(marks)?;
        let (Some(default), None) = (self.default, lock.retention) else { return Ok(false) };
        let until_ms = made_ms.saturating_add(default.period.ms());
        lock.retention = Some(Retention { mode: default.mode, until_ms });
        lock.write(marks);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: u32) -> BucketLock {
        let period = Period::Days(days);
        BucketLock { default: Some(DefaultRetention { mode: RetentionMode::Governance, period }) }
    }

    #[test]
    fn documents_come_back_and_others_are_refused() {
        for lock in [BucketLock::default(), days(7)] {
            assert_eq!(BucketLock::of(Some(&lock.document())), Ok(Some(lock)));
        }
        assert_eq!(BucketLock::of(None), Ok(None));
        let whole = days(7).document();
        let later = [&[2], &whole[1..]].concat();
        for wrong in [&b""[..], &whole[..2], &later, &[&whole[..], &[0]].concat()] {
            assert_eq!(BucketLock::of(Some(wrong)), Err(LockViolation::Unreadable), "{wrong:?}");
        }
    }

    #[test]
    fn a_document_of_format_1_is_read_for_good() {
        assert_eq!(days(300).document(), [1, 1, 0, 0, 172, 2]);
        let years = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Years(3) };
        assert_eq!(BucketLock { default: Some(years) }.document(), [1, 1, 1, 1, 3]);
    }

    #[test]
    fn objects_without_a_retention_get_the_default() {
        let mut marks = Marks::default();
        assert_eq!(BucketLock::default().complete(&mut marks, 5), Ok(false));
        assert!(marks.is_empty());
        assert_eq!(days(2).complete(&mut marks, 5), Ok(true));
        let retention = Retention { mode: RetentionMode::Governance, until_ms: 5 + 2 * 86_400_000 };
        assert_eq!(Lock::of(&marks).unwrap().retention, Some(retention));
        assert_eq!(days(9).complete(&mut marks, 5), Ok(false), "it says already");
        let mut held = Marks::default();
        Lock { retention: None, legal_hold: Some(true) }.write(&mut held);
        assert_eq!(days(1).complete(&mut held, 0), Ok(true));
        assert_eq!(Lock::of(&held).unwrap().legal_hold, Some(true));
    }

    #[test]
    fn years_have_365_days_and_never_overflow() {
        assert_eq!(Period::Years(2).ms(), Period::Days(730).ms());
        let forever =
            DefaultRetention { mode: RetentionMode::Compliance, period: Period::Years(u32::MAX) };
        let mut marks = Marks::default();
        BucketLock { default: Some(forever) }.complete(&mut marks, u64::MAX - 1).unwrap();
        assert_eq!(Lock::of(&marks).unwrap().retention.unwrap().until_ms, u64::MAX);
    }
}

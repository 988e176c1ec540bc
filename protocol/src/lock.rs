//! Object locks: retention and legal holds, which prevent the removal of a version.
//!
//! ```text
//! document: version (1) | postcard
//! ```
//!
//! Invariants:
//! * A version under a legal hold or an unexpired retention is not removed.
//! * A compliance retention is never shortened or removed before it expires. A governance retention
//!   is, by principals with the permission to bypass it. A legal hold can't be bypassed.
//! * A document that can't be decoded counts as a lock that can't be bypassed.
//!
//! * [`bucket`]: object lock configuration of a bucket.

mod bucket;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::bucket::{BucketLock, DefaultRetention, Period};
use crate::entry::{Mark, Marks, Value};

/// Format version of the documents.
const VERSION: u8 = 1;

/// Mode of a retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionMode {
    /// Principals with the bypass permission may loosen the retention.
    Governance,
    /// The retention can't be loosened.
    Compliance,
}

/// A retention: the time until which a version can't be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Mode of the retention.
    pub mode: RetentionMode,
    /// End of the retention, in milliseconds since 1970.
    pub until_ms: u64,
}

/// Locks that an authorized request bypasses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// No lock.
    #[default]
    Nothing,
    /// A retention in governance mode.
    Governance,
}

/// Reason why a version can't be removed, or its lock can't be loosened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockViolation {
    /// The version is under a legal hold.
    #[error("the version is under a legal hold")]
    LegalHold,
    /// The version is under a retention.
    #[error("the version is under retention")]
    Retention,
    /// The version's lock document can't be decoded.
    #[error("the lock of the version can't be read")]
    Unreadable,
}

/// Lock of one version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Retention, if set.
    pub retention: Option<Retention>,
    /// Legal hold: on or off; none if never set.
    pub legal_hold: Option<bool>,
}

impl Lock {
    /// Reads the lock from an object's marks.
    ///
    /// # Errors
    /// [`LockViolation::Unreadable`] when a document can't be decoded.
    pub fn of(marks: &Marks) -> Result<Self, LockViolation> {
        let retention = marks.get(Mark::Retention).map(decode).transpose()?;
        let legal_hold = marks.get(Mark::LegalHold).map(decode).transpose()?;
        Ok(Self { retention, legal_hold })
    }

    /// Writes the lock into an object's marks, replacing any before.
    pub fn write(&self, marks: &mut Marks) {
        set(marks, Mark::Retention, self.retention.as_ref());
        set(marks, Mark::LegalHold, self.legal_hold.as_ref());
    }

    /// True if neither retention nor legal hold was ever set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Checks that a version may be removed at `now_ms` by a request with `bypass`. Callers must check
/// and remove in one decision of the key's register.
///
/// # Errors
/// The lock that forbids the removal.
pub fn check_removal(marks: &Marks, now_ms: u64, bypass: Bypass) -> Result<(), LockViolation> {
    let Lock { retention, legal_hold } = Lock::of(marks)?;
    if legal_hold == Some(true) {
        return Err(LockViolation::LegalHold);
    }
    let Some(retention) = retention.filter(|it| it.until_ms > now_ms) else { return Ok(()) };
    match (retention.mode, bypass) {
        (RetentionMode::Governance, Bypass::Governance) => Ok(()),
        _ => Err(LockViolation::Retention),
    }
}

/// Checks a register's value as [`check_removal`] does: only objects can be locked.
///
/// # Errors
/// The lock that forbids the removal.
pub fn check_removal_of(value: &Value, now_ms: u64, bypass: Bypass) -> Result<(), LockViolation> {
    match value {
        Value::Object(object) => check_removal(&object.attributes.marks, now_ms, bypass),
        _ => Ok(()),
    }
}

/// Sets or removes the retention of a version.
///
/// # Errors
/// The reason why the present retention can't be loosened; then nothing changes.
pub fn set_retention(
    marks: &mut Marks,
    next: Option<Retention>,
    now_ms: u64,
    bypass: Bypass,
) -> Result<(), LockViolation> {
    let held: Option<Retention> = marks.get(Mark::Retention).map(decode).transpose()?;
    if let Some(held) = held.filter(|it| it.until_ms > now_ms) {
        let is_as_strict =
            next.is_some_and(|next| next.mode == held.mode && next.until_ms >= held.until_ms);
        let may_loosen = held.mode == RetentionMode::Governance && bypass == Bypass::Governance;
        if !is_as_strict && !may_loosen {
            return Err(LockViolation::Retention);
        }
    }
    set(marks, Mark::Retention, next.as_ref());
    Ok(())
}

/// Sets or lifts a version's legal hold. A legal hold that can't be decoded can't be lifted.
///
/// # Errors
/// [`LockViolation::Unreadable`]; then nothing changes.
pub fn set_legal_hold(marks: &mut Marks, is_on: bool) -> Result<(), LockViolation> {
    marks.get(Mark::LegalHold).map(decode::<bool>).transpose()?;
    set(marks, Mark::LegalHold, Some(&is_on));
    Ok(())
}

fn set<T: Serialize>(marks: &mut Marks, mark: Mark, value: Option<&T>) {
    match value {
        Some(value) => marks.set(mark, encode(value)),
        None => drop(marks.remove(mark)),
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("writing to a Vec can't fail")
}

fn decode<T: DeserializeOwned>(document: &[u8]) -> Result<T, LockViolation> {
    let (version, rest) = document.split_first().ok_or(LockViolation::Unreadable)?;
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) if *version == VERSION => Ok(value),
        _ => Err(LockViolation::Unreadable),
    }
}

#[cfg(test)]
mod tests;

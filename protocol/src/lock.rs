//! Locks of objects: what keeps a version from being removed, and who may loosen it.
//!
//! ```text
//! document: version (1) | postcard
//! ```
//!
//! Invariants:
//! * A version under a legal hold, or under a retention whose time has not come, is not removed.
//! * Compliance is neither shortened nor given up before its time, by anybody; governance only by who
//!   may pass over it. A legal hold is passed over by nobody.
//! * What can't be decoded counts as a lock that nobody passes over.
//!
//! * [`bucket`]: what a bucket says about locks of its objects.

mod bucket;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::bucket::{BucketLock, DefaultRetention, Period};
use crate::entry::{Mark, Marks, Value};

/// The layout of documents.
const VERSION: u8 = 1;

/// Who may loosen a retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionMode {
    /// Whoever may pass over it.
    Governance,
    /// Nobody.
    Compliance,
}

/// Until when a version is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Who may loosen it.
    pub mode: RetentionMode,
    /// Its end, in milliseconds since 1970.
    pub until_ms: u64,
}

/// What a request passes over, which has the right to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// Nothing.
    #[default]
    Nothing,
    /// A retention in governance mode.
    Governance,
}

/// Why a version can't be removed, or its lock not be loosened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Locked {
    /// It is under a legal hold.
    #[error("the version is under a legal hold")]
    LegalHold,
    /// It is under a retention.
    #[error("the version is under retention")]
    Retention,
    /// What is said about it can't be read.
    #[error("the lock of the version can't be read")]
    Unreadable,
}

/// What keeps one version from being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Until when.
    pub retention: Option<Retention>,
    /// Whether somebody holds it; none where nobody ever said.
    pub legal_hold: Option<bool>,
}

impl Lock {
    /// The lock among the documents of an object.
    ///
    /// # Errors
    /// [`Locked::Unreadable`].
    pub fn of(marks: &Marks) -> Result<Self, Locked> {
        let retention = marks.get(Mark::Retention).map(decode).transpose()?;
        let legal_hold = marks.get(Mark::LegalHold).map(decode).transpose()?;
        Ok(Self { retention, legal_hold })
    }

    /// Puts it among the documents of an object, in place of the one that is there.
    pub fn write(&self, marks: &mut Marks) {
        set(marks, Mark::Retention, self.retention.as_ref());
        set(marks, Mark::LegalHold, self.legal_hold.as_ref());
    }

    /// Whether nothing was ever said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a version may be removed at `now_ms`, by a request that passes over `bypass`. Whoever
/// removes one asks this in the same decision of its key's register.
///
/// # Errors
/// Why it may not.
pub fn check_removal(marks: &Marks, now_ms: u64, bypass: Bypass) -> Result<(), Locked> {
    let Lock { retention, legal_hold } = Lock::of(marks)?;
    if legal_hold == Some(true) {
        return Err(Locked::LegalHold);
    }
    let Some(retention) = retention.filter(|it| it.until_ms > now_ms) else { return Ok(()) };
    match (retention.mode, bypass) {
        (RetentionMode::Governance, Bypass::Governance) => Ok(()),
        _ => Err(Locked::Retention),
    }
}

/// The same of what a register holds: only objects are ever locked.
///
/// # Errors
/// Why it may not.
pub fn check_removal_of(value: &Value, now_ms: u64, bypass: Bypass) -> Result<(), Locked> {
    match value {
        Value::Object(object) => check_removal(&object.attributes.marks, now_ms, bypass),
        _ => Ok(()),
    }
}

/// Gives a version another retention, or none.
///
/// # Errors
/// Why its retention may not be loosened so; then nothing changes.
pub fn set_retention(
    marks: &mut Marks,
    next: Option<Retention>,
    now_ms: u64,
    bypass: Bypass,
) -> Result<(), Locked> {
    let held: Option<Retention> = marks.get(Mark::Retention).map(decode).transpose()?;
    if let Some(held) = held.filter(|it| it.until_ms > now_ms) {
        let is_as_strict =
            next.is_some_and(|next| next.mode == held.mode && next.until_ms >= held.until_ms);
        let may_loosen = held.mode == RetentionMode::Governance && bypass == Bypass::Governance;
        if !is_as_strict && !may_loosen {
            return Err(Locked::Retention);
        }
    }
    set(marks, Mark::Retention, next.as_ref());
    Ok(())
}

/// Puts a legal hold on a version, or takes it off. One that can't be read is taken off by nobody.
///
/// # Errors
/// [`Locked::Unreadable`]; then nothing changes.
pub fn set_legal_hold(marks: &mut Marks, is_on: bool) -> Result<(), Locked> {
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
    postcard::to_extend(value, vec![VERSION]).expect("a Vec takes all writes")
}

fn decode<T: DeserializeOwned>(document: &[u8]) -> Result<T, Locked> {
    let (version, rest) = document.split_first().ok_or(Locked::Unreadable)?;
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) if *version == VERSION => Ok(value),
        _ => Err(Locked::Unreadable),
    }
}

#[cfg(test)]
mod tests;

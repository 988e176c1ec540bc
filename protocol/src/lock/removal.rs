//! Decisions about removing a version, and about setting or loosening its lock.

use super::document::{Lock, LockViolation, Retention, RetentionMode, decode, set};
use crate::entry::{Mark, Marks, Value};

/// Locks that an authorized request bypasses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// No lock.
    #[default]
    Nothing,
    /// A retention in governance mode.
    Governance,
}

/// Checks that a version may be removed at `now_ms` by a request with `bypass`. Callers must check
/// and remove in one decision of the key's register.
///
/// # Errors
/// The lock that forbids the removal.
pub fn check_removal(marks: &Marks, now_ms: u64, bypass: Bypass) -> Result<(), LockViolation> {
    let Lock { retention, legal_hold } = Lock::of(marks)?;
    // Any pin counts, also one that this version can't decode.
    if marks.get(Mark::Checkpoint).is_some() {
        return Err(LockViolation::Pinned);
    }
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

#[cfg(test)]
mod tests;

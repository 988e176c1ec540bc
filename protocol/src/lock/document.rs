//! Lock of one version, and the format of the documents about locks.
//!
//! ```text
//! document: version (1) | postcard
//! ```

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::entry::{Mark, Marks};

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

/// Reason why a version can't be removed, or its lock can't be loosened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockViolation {
    /// The version is under a legal hold.
    #[error("the version is under a legal hold")]
    LegalHold,
    /// The version is under a retention.
    #[error("the version is under retention")]
    Retention,
    /// A checkpoint generation needs the version.
    #[error("a checkpoint needs the version")]
    Pinned,
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

pub(super) fn set<T: Serialize>(marks: &mut Marks, mark: Mark, value: Option<&T>) {
    match value {
        Some(value) => marks.set(mark, encode(value)),
        None => drop(marks.remove(mark)),
    }
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("writing to a Vec can't fail")
}

pub(super) fn decode<T: DeserializeOwned>(document: &[u8]) -> Result<T, LockViolation> {
    let (version, rest) = document.split_first().ok_or(LockViolation::Unreadable)?;
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) if *version == VERSION => Ok(value),
        _ => Err(LockViolation::Unreadable),
    }
}

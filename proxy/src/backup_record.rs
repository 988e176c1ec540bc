//! Records of a backup: account documents and settings of buckets, as JSON values that outlive their
//! cluster.

use std::str::FromStr;

use serde_json::Value;

use crate::error::{Error, Result};

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// Tenant, with its quota and limits.
    Tenant,
    /// User of a tenant, with its policy.
    User,
    /// Role of a tenant, with its policies.
    Role,
    /// Access key, with its sealed secret.
    Key,
    /// Key of the admin API, which has no stored secret.
    AdminKey,
    /// Owner and settings of a bucket.
    Bucket,
}

/// Document of an account, or settings of a bucket.
#[derive(Clone, PartialEq)]
pub struct BackupRecord {
    /// Kind of the item.
    pub kind: RecordKind,
    /// Name of the item, unique within its kind. Users and roles are `TENANT/NAME`.
    pub name: String,
    /// Time of the last change of the item, in milliseconds since 1970.
    pub written_ms: u64,
    /// The item.
    pub content: Value,
}

impl std::fmt::Debug for BackupRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BackupRecord({} {})", self.kind.name(), self.name)
    }
}

/// State of an item of this cluster, compared with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// The item equals the record.
    Same,
    /// The item doesn't exist.
    Missing,
    /// The item differs, and was not changed since the record.
    Older,
    /// The item differs, and was changed after the record.
    Newer,
    /// The item was deleted after the record.
    Deleted,
}

impl RecordKind {
    /// All kinds. Each refers only to items of kinds before it.
    pub const ALL: [Self; 6] =
        [Self::Tenant, Self::User, Self::Role, Self::Key, Self::AdminKey, Self::Bucket];

    /// Permanent name in backups.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::User => "user",
            Self::Role => "role",
            Self::Key => "key",
            Self::AdminKey => "admin-key",
            Self::Bucket => "bucket",
        }
    }
}

impl FromStr for RecordKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            Error::InvalidArgument(format!("{text:?} is not a kind of record of this release"))
        })
    }
}

impl RecordState {
    /// Returns true if a restore writes the record. `replace` lets it undo later changes.
    pub fn is_written(self, replace: bool) -> bool {
        match self {
            Self::Same => false,
            Self::Missing | Self::Older => true,
            Self::Newer | Self::Deleted => replace,
        }
    }

    /// State of an item that was last written at `there_ms`. `is_same` is none if the item is
    /// deleted.
    pub(crate) fn of(record_ms: u64, there_ms: u64, is_same: Option<bool>) -> Self {
        let is_later = there_ms > record_ms;
        match is_same {
            Some(true) => Self::Same,
            Some(false) if is_later => Self::Newer,
            Some(false) => Self::Older,
            None if is_later => Self::Deleted,
            None => Self::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_changes_and_deletions_stay_unless_they_are_to_be_replaced() {
        let state = |there_ms, is_same| RecordState::of(100, there_ms, is_same);
        for (found, expected, written) in [
            (state(50, Some(true)), RecordState::Same, [false, false]),
            (state(150, Some(true)), RecordState::Same, [false, false]),
            (state(100, Some(false)), RecordState::Older, [true, true]),
            (state(101, Some(false)), RecordState::Newer, [false, true]),
            (state(100, None), RecordState::Missing, [true, true]),
            (state(101, None), RecordState::Deleted, [false, true]),
        ] {
            assert_eq!(found, expected);
            assert_eq!([false, true].map(|replace| found.is_written(replace)), written);
        }
    }

    #[test]
    fn kinds_have_permanent_names() {
        let names = RecordKind::ALL.map(RecordKind::name);
        assert_eq!(names, ["tenant", "user", "role", "key", "admin-key", "bucket"]);
        assert!(RecordKind::ALL.iter().all(|kind| kind.name().parse::<RecordKind>().is_ok()));
        assert!("other".parse::<RecordKind>().is_err());
    }
}

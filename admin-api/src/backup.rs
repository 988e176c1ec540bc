//! JSON messages about backups: records of accounts and of buckets' settings, and rings.
//!
//! A record of a key has the secret as the index stores it: sealed by a master key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Path of a backup; POST begins one.
pub const BACKUP: &str = "/admin/v1/backup";
/// Path of the records of a kind, in pages.
pub const RECORDS: &str = "/admin/v1/backup/records";
/// Path of a ring file.
pub const RING: &str = "/admin/v1/backup/ring";
/// Path of the comparison of records with the cluster.
pub const COMPARE: &str = "/admin/v1/backup/compare";
/// Path of a record; PUT restores it.
pub const RECORD: &str = "/admin/v1/backup/record";
/// Maximum number of records in one page or comparison.
pub const PAGE_MAX: usize = 500;

/// Backup that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupLine {
    /// Version of the process.
    pub version: String,
    /// Time of the process, in milliseconds since 1970.
    pub made_ms: u64,
    /// Kinds of records, each after the kinds that it refers to.
    pub kinds: Vec<String>,
    /// Names of the rings in use: `index`, `data-0` and the like.
    pub rings: Vec<String>,
    /// Estimated number of records by kind, for kinds with an estimate: buckets, by their last counts.
    #[serde(default)]
    pub expected: BTreeMap<String, u64>,
}

/// Item of a backup.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordLine {
    /// `tenant`, `user`, `role`, `key`, `admin-key` or `bucket`.
    pub kind: String,
    /// Name of the item, unique within its kind. Users and roles are `TENANT/NAME`.
    pub name: String,
    /// Time of the item's last change, in milliseconds since 1970.
    pub written_ms: u64,
    /// The item.
    pub content: Value,
}

impl std::fmt::Debug for RecordLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordLine({} {})", self.kind, self.name)
    }
}

/// Ring in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RingFile {
    /// Name of the ring.
    pub ring: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// File of the ring, in hexadecimal.
    pub file: String,
}

/// Request to compare records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareRequest {
    /// Records, at most 500.
    pub records: Vec<RecordLine>,
}

/// Reply to a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompareReply {
    /// Verdicts in the order of the records.
    pub verdicts: Vec<RecordVerdict>,
}

/// Request to restore a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreRequest {
    /// Kind of the record.
    pub kind: String,
    /// Name of the record.
    pub name: String,
    /// True to undo changes and deletions that are later than the record.
    #[serde(default)]
    pub replace: bool,
    /// The record.
    pub record: RecordLine,
}

/// Verdict on a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordVerdict {
    /// State of the item, before a restore.
    pub state: VerdictState,
    /// Reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of an item, compared with its record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictState {
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
    /// The record can't be restored here.
    Refused,
}

impl VerdictState {
    /// Returns true if a restore writes the record. `replace` lets it undo later changes.
    pub fn is_written(self, replace: bool) -> bool {
        match self {
            Self::Same | Self::Refused => false,
            Self::Missing | Self::Older => true,
            Self::Newer | Self::Deleted => replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_printed_with_its_content() {
        let record = RecordLine {
            kind: "key".into(),
            name: "AKIA".into(),
            written_ms: 1,
            content: serde_json::json!({"secret": {"clear": "canary"}}),
        };
        let request = RestoreRequest {
            kind: "key".into(),
            name: "AKIA".into(),
            replace: false,
            record: record.clone(),
        };
        let printed = format!("{record:?} {request:?}");
        assert!(printed.contains("AKIA") && !printed.contains("canary"), "{printed}");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<RecordLine>(&text).unwrap(), record);
    }
}

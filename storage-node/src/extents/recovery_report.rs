//! Findings of an opening.

use martlet_protocol::ExtentId;

/// Findings of an opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of readable extents; none if they are counted after the opening.
    pub extents: Option<u64>,
    /// Extents that had no row in the table and were found on disk.
    pub rediscovered: u64,
    /// Extents whose write had not ended; removed.
    pub unfinished: u64,
    /// Extents whose delete had not ended; removed now.
    pub deleted: u64,
    /// Second copies of extents; removed.
    pub duplicates: u64,
    /// Contradictions moved to quarantine.
    pub quarantined: u64,
    /// Files and runs without a row that the disk can't read; moved to quarantine.
    pub unreadable: u64,
    /// Extents with a row in the table that the disk doesn't have.
    pub missing: Vec<ExtentId>,
}

//! JSON messages about lost index partitions: the hold on collection, acceptance, adopted buckets and
//! the rebuild.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the state of the index after a loss.
pub const INDEX: &str = "/admin/v1/index";
/// Path of the hold on collection: PUT begins it, DELETE ends it.
pub const HOLD: &str = "/admin/v1/index/hold";
/// Path of adopted buckets: PUT makes a register for a bucket whose register is lost.
pub const ADOPT: &str = "/admin/v1/index/bucket";

/// State of the index after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IndexLine {
    /// Start of the hold on collection, in milliseconds since 1970. `None` if nothing is held.
    pub held_since_ms: Option<u64>,
    /// Devices whose loss was accepted.
    pub lost_devices: Vec<u32>,
    /// Number of partitions of which most replicas are on these devices.
    pub lost_partitions: u64,
    /// Devices without votes, if all devices answer and some partitions can't be filled by peers.
    pub acceptable_devices: Vec<u32>,
    /// Number of these partitions.
    pub acceptable_partitions: u64,
    /// Reason for which no loss can be accepted.
    pub nothing_to_accept: Option<String>,
    /// Figures of the last rebuild of this process, without findings. `None` after a restart.
    #[serde(default)]
    pub last_rebuild: Option<RebuildLine>,
}

/// Outcome of an acceptance: the detail of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptLine {
    /// Devices that got their votes back.
    pub devices: Vec<u32>,
    /// Number of partitions of which most replicas were lost.
    pub partitions: u64,
}

/// Figures of a rebuild: the detail of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RebuildLine {
    /// True if entries are written; false for a dry run.
    pub applied: bool,
    /// Scope and consents, as in the job's subject.
    #[serde(default)]
    pub scope: String,
    /// Copies and fragments that devices listed.
    pub listed: u64,
    /// Extents in scope that no entry names.
    pub unowned: u64,
    /// Copies and fragments whose owner is not known for certain, and extents of which a home doesn't
    /// answer. They are left out: run the rebuild again once all devices answer.
    pub uncertain: u64,
    /// Extents that a device has deleted. They are left out.
    pub deleted: u64,
    /// Keys with such extents.
    pub keys: u64,
    /// Keys that have an entry: nothing is brought back.
    pub taken: u64,
    /// Bodies of these keys that were born after the entry: the replica that was left may have missed
    /// their writes.
    #[serde(default)]
    pub newer: u64,
    /// Extents of these keys that no entry names. They are deleted after the hold.
    #[serde(default)]
    pub taken_extents: u64,
    /// Objects that were brought back, or would be.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that a later one of their key replaces.
    pub older: u64,
    /// Number of bodies that are not brought back, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Keys that failed: run the rebuild again.
    pub failed: u64,
    /// Reason of the last failure.
    pub failure: Option<String>,
    /// Buckets whose register is lost.
    pub unknown_buckets: Vec<UnknownBucketLine>,
    /// The first findings, one line each.
    pub findings: Vec<String>,
}

/// Bucket that extents name and no register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnknownBucketLine {
    /// Id of the bucket.
    pub id: String,
    /// Copies and fragments of its extents.
    pub copies: u64,
    /// One of its keys.
    pub key: String,
}

//! JSON messages about the rewrite of a bucket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Figures of a rewrite: the detail of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RewriteLine {
    /// Name of the bucket.
    pub bucket: String,
    /// `looking` for objects to move, `moving`, `done`, or `ended` before it was done.
    pub state: String,
    /// Objects found under another policy at the start.
    pub objects_to_move: u64,
    /// Bytes of these objects.
    pub bytes_to_move: u64,
    /// Objects examined while moving.
    pub seen: u64,
    /// Objects moved.
    pub moved: u64,
    /// Bytes of the moved objects.
    pub moved_bytes: u64,
    /// Objects still to move, including objects under way.
    pub left: u64,
    /// Bytes of the objects still to move.
    pub left_bytes: u64,
    /// Objects that could not be moved, and stay under their policy.
    pub failed: u64,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Estimated seconds until the end at this rate. `None` if the time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// Reason for an early end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl RewriteLine {
    /// Returns true while the rewrite runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "looking" | "moving")
    }
}

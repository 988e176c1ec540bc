//! JSON messages about the rewrite of a bucket.

use serde::{Deserialize, Serialize};

/// Path of a bucket's rewrite; PUT begins or stops it.
pub(crate) const REWRITE: &str = "/admin/v1/bucket/rewrite";

/// Last rewrite of a bucket on one proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RewriteLine {
    pub(crate) bucket: String,
    /// `looking` for objects to move, `moving`, `done`, or `ended` before it was done.
    pub(crate) state: String,
    /// Objects found under another policy at the start, and their bytes.
    pub(crate) objects_to_move: u64,
    pub(crate) bytes_to_move: u64,
    /// Objects examined while moving.
    pub(crate) seen: u64,
    /// Objects moved, and their bytes.
    pub(crate) moved: u64,
    pub(crate) moved_bytes: u64,
    /// Objects still to move, including those under way, and their bytes.
    pub(crate) left: u64,
    pub(crate) left_bytes: u64,
    /// Objects that could not be moved, and stay under their policy.
    pub(crate) failed: u64,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Estimated seconds until the end at this rate. `None` if the time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) eta_s: Option<u64>,
    /// Reason for an early end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl RewriteLine {
    /// Returns true while the rewrite runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "looking" | "moving")
    }
}

//! How far the rewrite of a bucket is.

use serde::{Deserialize, Serialize};

/// Where it is asked for; by PUT it is begun, or ended.
pub(crate) const REWRITE: &str = "/admin/v1/bucket/rewrite";

/// A rewrite of a bucket on one proxy, the last that it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RewriteLine {
    pub(crate) bucket: String,
    /// `looking` for what there is to move, `moving`, `done` or `ended`, which is before it was done.
    pub(crate) state: String,
    /// Objects that lay under another policy when that was looked for, and their bytes.
    pub(crate) objects_to_move: u64,
    pub(crate) bytes_to_move: u64,
    /// Objects looked at while moving.
    pub(crate) seen: u64,
    /// Objects moved, and their bytes.
    pub(crate) moved: u64,
    pub(crate) moved_bytes: u64,
    /// Objects that are still to be moved, and their bytes: what is under way is left out.
    pub(crate) left: u64,
    pub(crate) left_bytes: u64,
    /// Objects that could not be moved, and stay where they were.
    pub(crate) failed: u64,
    /// Why that was so for the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Until nothing is left at this rate; none where that can't be told yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) eta_s: Option<u64>,
    /// Why it ended before it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl RewriteLine {
    /// Whether it goes on.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self.state.as_str(), "looking" | "moving")
    }
}

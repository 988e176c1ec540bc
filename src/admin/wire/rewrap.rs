//! What became of a page of a bucket's data keys, or of all of them.

use serde::{Deserialize, Serialize};

/// Where the next page is asked for, by PUT.
pub(crate) const REWRAP: &str = "/admin/v1/bucket/rewrap";
/// Versions in a page: few enough to be answered soon.
pub(crate) const PAGE: usize = 200;

/// Data keys that were wrapped by the first master key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RewrapLine {
    pub(crate) bucket: String,
    /// Versions looked at.
    pub(crate) seen: u64,
    /// Those of which the key was wrapped anew.
    pub(crate) rewrapped: u64,
    /// Those that could not be.
    pub(crate) failed: u64,
    /// Why that was so for the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Open uploads that another master key wraps: told with the last page.
    pub(crate) uploads: u64,
    /// Where to go on, if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_key: Option<String>,
    /// With it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_version: Option<String>,
}

impl RewrapLine {
    /// Both pages together, to go on where the later one ends.
    pub(crate) fn and(self, later: Self) -> Self {
        Self {
            seen: self.seen + later.seen,
            rewrapped: self.rewrapped + later.rewrapped,
            failed: self.failed + later.failed,
            failure: later.failure.or(self.failure),
            ..later
        }
    }
}

//! JSON messages about rewraps of a bucket's data keys.

use serde::{Deserialize, Serialize};

/// Path that rewraps the next page, by PUT.
pub(crate) const REWRAP: &str = "/admin/v1/bucket/rewrap";
/// Number of versions in a page, small enough for a quick reply.
pub(crate) const PAGE: usize = 200;

/// Result of one page, or of all pages so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RewrapLine {
    pub(crate) bucket: String,
    /// Versions examined.
    pub(crate) seen: u64,
    /// Versions whose data key was wrapped by the first master key.
    pub(crate) rewrapped: u64,
    /// Versions whose data key could not be rewrapped.
    pub(crate) failed: u64,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Open uploads whose key another master key wraps, reported with the last page.
    pub(crate) uploads: u64,
    /// Key to continue after. `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_key: Option<String>,
    /// Version of that key to continue after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_version: Option<String>,
}

impl RewrapLine {
    /// Adds a later page to this result.
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

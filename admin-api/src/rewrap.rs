//! JSON messages about rewraps of a bucket's data keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path that rewraps the next page, by PUT.
pub const REWRAP: &str = "/admin/v1/bucket/rewrap";
/// Number of versions in a page, small enough for a quick reply.
pub const PAGE: usize = 200;

/// Result of one page, or of all pages so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RewrapLine {
    /// Name of the bucket.
    pub bucket: String,
    /// Versions examined.
    pub seen: u64,
    /// Versions whose data key was wrapped by the first master key.
    pub rewrapped: u64,
    /// Versions whose data key could not be rewrapped.
    pub failed: u64,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Open uploads whose key another master key wraps, reported with the last page.
    pub uploads: u64,
    /// Key to continue after. `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_key: Option<String>,
    /// Version of that key to continue after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_version: Option<String>,
}

impl RewrapLine {
    /// Adds a later page to this result.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        Self {
            seen: self.seen + later.seen,
            rewrapped: self.rewrapped + later.rewrapped,
            failed: self.failed + later.failed,
            failure: later.failure.or(self.failure),
            ..later
        }
    }
}

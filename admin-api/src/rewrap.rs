//! JSON messages about rewraps of a bucket's data keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Figures of a rewrap: the detail of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RewrapLine {
    /// Name of the bucket.
    pub bucket: String,
    /// `running`; `done` if no other master key is needed any more; `ended` before that.
    pub state: String,
    /// Versions at the last count of the bucket, an estimate. `None` if it was never counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
    /// Number of the pass over the bucket, from 1. A second one follows if uploads with an outdated key
    /// ended meanwhile.
    pub pass: u32,
    /// Versions and delete markers examined in this pass.
    pub seen: u64,
    /// Versions whose data key was wrapped by the first master key.
    pub rewrapped: u64,
    /// Versions whose data key could not be rewrapped in this pass.
    pub failed: u64,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Open uploads whose key another master key wraps, counted after each pass.
    pub uploads: u64,
    /// Versions examined in a second, on average in this pass. `None` in the first second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_per_s: Option<u64>,
    /// Estimated seconds until the end of this pass. `None` if the time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// Reason for an early end, or the keys that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl RewrapLine {
    /// Returns true while the rewrap runs.
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_left_out() {
        let line =
            RewrapLine { bucket: "b".into(), state: "running".into(), ..RewrapLine::default() };
        let text = serde_json::to_string(&line).unwrap();
        let expected = r#"{"bucket":"b","state":"running","pass":0,"seen":0,"rewrapped":0,"failed":0,"uploads":0}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<RewrapLine>(&text).unwrap(), line);
        assert!(line.is_running());
        assert!(!RewrapLine { state: "ended".into(), ..line }.is_running());
    }
}

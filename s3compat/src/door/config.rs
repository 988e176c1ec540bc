//! What can be set about the door.

use std::time::Duration;

use crate::auth::AuthConfig;

/// What can be set about the door.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// What counts as authentic.
    pub auth: AuthConfig,
    /// Whether requests that nobody signed are let in, as [`Identity::Anonymous`]. What they may do
    /// is for the policies of buckets to say; without this no policy opens anything to them.
    ///
    /// [`Identity::Anonymous`]: crate::auth::Identity::Anonymous
    pub allow_anonymous: bool,
    /// Host names under which `bucket.name` names a bucket. Any other host means path style.
    pub domains: Vec<String>,
    /// Requests in flight at most, replies that are still being sent included; more answer
    /// 503.
    pub requests_max: usize,
    /// Seconds that a client turned away for overload is told to wait.
    pub retry_after_s: u32,
    /// Bytes of all header names and values together.
    pub header_bytes_max: usize,
    /// How long a client may be silent within a body; zero means for ever.
    pub body_idle: Duration,
}

impl Default for DoorConfig {
    fn default() -> Self {
        Self {
            auth: AuthConfig::default(),
            allow_anonymous: false,
            domains: vec!["localhost".to_owned()],
            requests_max: 4096,
            retry_after_s: 1,
            header_bytes_max: 16 * 1024,
            body_idle: Duration::from_mins(1),
        }
    }
}

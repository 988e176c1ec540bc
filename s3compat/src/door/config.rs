//! What can be set about the door.

use std::time::Duration;

use crate::auth::AuthConfig;
use crate::decode::Patience;

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
    /// How many of them may be requests that nobody signed; none means an eighth, and one at least.
    pub anonymous_requests_max: Option<usize>,
    /// Bytes of all documents together: bodies that are read whole before their operation begins. An
    /// account has a quarter of them at most, all requests that nobody signed an eighth.
    pub document_bytes_max: usize,
    /// Seconds that a client turned away for overload is told to wait.
    pub retry_after_s: u32,
    /// Bytes of all header names and values together.
    pub header_bytes_max: usize,
    /// How long a client may be silent within a body; zero means for ever.
    pub body_idle: Duration,
    /// Bytes of a body that a client has to send in each second that it is waited for, over a time of
    /// [`body_idle`](Self::body_idle); zero means that any byte will do.
    pub body_rate_min: u64,
    /// How long a client may take to send a document; zero means for ever.
    pub document_time: Duration,
}

impl DoorConfig {
    /// How long clients are waited for within bodies.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            idle: self.body_idle,
            bytes_per_second_min: self.body_rate_min,
            whole: self.document_time,
        }
    }

    /// How many requests at a time may be such that nobody signed.
    pub(super) fn anonymous_max(&self) -> usize {
        self.anonymous_requests_max.unwrap_or(self.requests_max / 8)
    }
}

impl Default for DoorConfig {
    fn default() -> Self {
        Self {
            auth: AuthConfig::default(),
            allow_anonymous: false,
            domains: vec!["localhost".to_owned()],
            requests_max: 4096,
            anonymous_requests_max: None,
            document_bytes_max: 64 << 20,
            retry_after_s: 1,
            header_bytes_max: 16 * 1024,
            body_idle: Duration::from_mins(1),
            body_rate_min: 1024,
            document_time: Duration::from_mins(1),
        }
    }
}

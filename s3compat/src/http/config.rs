//! Settings of the HTTP pipeline.

use std::time::Duration;

use crate::auth::AuthConfig;
use crate::decode::BodyTimeouts;
use crate::limits::concurrency::ConcurrencyLimits;

/// Settings of the HTTP pipeline.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Settings of authentication.
    pub auth: AuthConfig,
    /// True if unsigned requests are admitted, as [`Identity::Anonymous`]. The policies and lists
    /// of buckets then decide. If false, no policy gives unsigned requests access.
    ///
    /// [`Identity::Anonymous`]: crate::access::Identity::Anonymous
    pub allow_anonymous: bool,
    /// Host names under which `bucket.name` names a bucket. Any other host means path style.
    pub domains: Vec<String>,
    /// Maximum number of requests in flight, including replies that are still being sent. Further
    /// requests wait.
    pub requests_max: usize,
    /// Maximum number of requests that wait for their turn. Further requests return 503.
    pub waiting_max: usize,
    /// Maximum time from a request's arrival until its turn. After that it returns 503.
    pub wait_max: Duration,
    /// Maximum number of unsigned requests among them. None means an eighth. The minimum is one.
    pub anonymous_requests_max: Option<usize>,
    /// Maximum bytes of all documents together: bodies that are read whole before their operation
    /// begins. An account gets at most a quarter of them, all unsigned requests together an eighth.
    pub document_bytes_max: usize,
    /// `Retry-After` of requests that are refused for overload, in seconds.
    pub retry_after_s: u32,
    /// Maximum bytes of all header names and values together.
    pub header_bytes_max: usize,
    /// Maximum silence of a client within a body. Zero means no limit.
    pub body_idle: Duration,
    /// Minimum bytes of a body for each second of waiting, over a time of
    /// [`body_idle`](Self::body_idle). Zero means that any byte suffices.
    pub body_rate_min: u64,
    /// Maximum time for a client to send a document. Zero means no limit.
    pub document_time: Duration,
}

impl HttpConfig {
    /// Timeouts for clients within bodies.
    pub(super) fn patience(&self) -> BodyTimeouts {
        BodyTimeouts {
            idle: self.body_idle,
            bytes_per_second_min: self.body_rate_min,
            whole: self.document_time,
        }
    }

    /// Bounds of concurrent requests.
    pub(super) fn concurrency(&self) -> ConcurrencyLimits {
        ConcurrencyLimits {
            turns: self.requests_max,
            anonymous: self.anonymous_requests_max.unwrap_or(self.requests_max / 8),
            waiting: self.waiting_max,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            auth: AuthConfig::default(),
            allow_anonymous: false,
            domains: vec!["localhost".to_owned()],
            requests_max: 4096,
            waiting_max: 4096,
            wait_max: Duration::from_secs(20),
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

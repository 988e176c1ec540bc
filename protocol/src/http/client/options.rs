//! Options of a client.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::http::{ReleaseTag, Tls};

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Clock for the dates of requests.
    pub clock: Arc<dyn Clock>,
    /// Timeout for making a connection.
    pub connect: Duration,
    /// Timeout of an index call.
    pub call: Duration,
    /// Longest time in which a node may send or accept nothing of a stream.
    pub idle: Duration,
    /// Timeout for syncing an extent after its last byte, and for calls that verify stored data.
    pub finish: Duration,
    /// Most idle connections in the pool.
    pub idle_connections_max: usize,
    /// Longest reply of [`HttpBackend::get`](super::HttpBackend::get), `put` and `post`, in bytes.
    pub reply_bytes_max: usize,
    /// Certificates, if the nodes require TLS.
    pub tls: Option<Tls>,
    /// True if all requests are background work: nodes don't count them as client requests, and
    /// report the duration of client requests in their replies.
    pub is_background: bool,
    /// True if short calls go by a channel once one is open.
    pub channels: bool,
    /// Release of this process, which requests announce.
    pub release: ReleaseTag,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            connect: Duration::from_secs(1),
            call: Duration::from_secs(5),
            idle: Duration::from_secs(10),
            finish: Duration::from_secs(30),
            idle_connections_max: 64,
            reply_bytes_max: 64 * 1024 * 1024,
            tls: None,
            is_background: false,
            channels: true,
            release: ReleaseTag::own(),
        }
    }
}

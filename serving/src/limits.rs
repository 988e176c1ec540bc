//! Limits on a port and on each of its connections.

use std::time::Duration;

use super::connection_limiter::ConnectionLimits;

/// Maximum bytes of a request's first line and headers.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Limits on a port and on each of its connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bounds on the number of connections.
    pub places: ConnectionLimits,
    /// Timeout for the head of a request, and for the idle time between requests.
    pub header_timeout: Duration,
    /// Timeout for the client to read more of a reply.
    pub write_idle: Duration,
    /// Maximum bytes of a request's head, and so of the read buffer.
    pub head_bytes: usize,
}

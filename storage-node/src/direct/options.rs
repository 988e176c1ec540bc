//! Options of a direct socket.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::Clock;
use martlet_protocol::extent_token::ExtentTokenKey;

/// Default of [`DirectOptions::bytes_max`].
pub const DIRECT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024 * 1024;

/// Options of a direct socket.
#[derive(Clone, Debug)]
pub struct DirectOptions {
    /// Users that may connect; if empty, the user of this process.
    pub uids: Vec<u32>,
    /// Maximum number of leased bytes. Each user may lease half of them.
    pub bytes_max: u64,
    /// Key of the tokens.
    pub key: ExtentTokenKey,
    /// Time by which tokens expire.
    pub clock: Arc<dyn Clock>,
    /// Times of connections and leases.
    pub times: DirectTimes,
}

/// Times of connections and leases.
#[derive(Clone, Copy, Debug)]
pub struct DirectTimes {
    /// Time in which a client sends its first packet.
    pub first_packet: Duration,
    /// Time for which a connection without a lease waits for a packet.
    pub idle: Duration,
    /// Time in which a client receives a packet.
    pub send: Duration,
    /// Longest time of a lease.
    pub lease: Duration,
    /// Time between the notice of a revocation and the end of the lease.
    pub notice: Duration,
}

impl Default for DirectTimes {
    fn default() -> Self {
        Self {
            first_packet: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            send: Duration::from_secs(5),
            lease: Duration::from_hours(1),
            notice: Duration::from_secs(30),
        }
    }
}

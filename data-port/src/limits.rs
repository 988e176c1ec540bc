//! Limits of a data port, beside those of its connections.

use std::time::Duration;

use martlet_storage_node::DirectTimes;

/// Limits on the requests and replies of a data port.
#[derive(Clone, Copy, Debug)]
pub struct DataPortLimits {
    /// Maximum number of concurrent requests. Further requests are refused.
    pub requests_max: usize,
    /// Minimum bytes of a reply for each second of waiting for the client, over the connection's
    /// `write_idle`. Zero means that any byte suffices.
    pub bytes_per_second_min: u64,
    /// Time for which a reply of a deleted extent goes on once a full device needs the space.
    pub notice: Duration,
}

impl Default for DataPortLimits {
    fn default() -> Self {
        // Leases of the direct socket end after an equal time.
        let notice = DirectTimes::default().notice;
        Self { requests_max: 1024, bytes_per_second_min: 1024, notice }
    }
}

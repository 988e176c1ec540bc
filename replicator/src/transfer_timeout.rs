//! Timeout for the transfer of an extent's bytes, by their number.

use std::time::Duration;

/// Base time of a transfer, for its begin, its end and slow disks.
const BASE: Duration = Duration::from_secs(30);
/// Minimum rate; a slower transfer is given up.
const BYTES_PER_SECOND_MIN: u64 = 512 * 1024;

/// Timeout for the transfer of an extent's bytes.
pub(crate) fn transfer_timeout(bytes: u64) -> Duration {
    BASE + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

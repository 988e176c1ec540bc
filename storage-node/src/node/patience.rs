//! Time limits for devices that hang.

use std::time::Duration;

use crate::device::pulse::STALL_AFTER;

/// Time limits for devices that hang.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Limit for an opening, once another device is open.
    pub opening: Duration,
    /// Time without the end of a call after which the device is suspect, until a call ends.
    pub calls: Duration,
    /// Limit for a closing; after it the device is left as it is.
    pub closing: Duration,
}

impl Default for Patience {
    /// One minute to open, 40 seconds for a call, 45 seconds to close. Requests that use a device
    /// may take 30 seconds of the closing.
    fn default() -> Self {
        Self {
            opening: Duration::from_mins(1),
            calls: STALL_AFTER,
            closing: Duration::from_secs(45),
        }
    }
}

//! Space of all devices together, now and after all pending moves.

use martlet_admin_api::forecast::{Capacity, DeviceCapacity};

use crate::text::float;

/// Sums over all devices, taken once for each reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Size in bytes.
    pub(crate) total: f64,
    /// Share in use, from 0 to 1.
    pub(crate) used: f64,
    /// Share in use after all moves.
    pub(crate) after: f64,
    /// Fullness of the fullest device, from 0 to 1.
    pub(crate) fullest: f64,
    /// Fullness of the device that is the fullest after all moves.
    pub(crate) fullest_after: f64,
    /// Bytes of objects that fit before the first device passes its mark.
    pub(crate) room: f64,
    /// True if a device will be above its high-water mark.
    pub(crate) is_above_mark: bool,
}

impl Space {
    /// Sums the capacity of all devices.
    pub(crate) fn of(capacity: &Capacity) -> Self {
        let devices = &capacity.devices;
        let sum =
            |of: fn(&DeviceCapacity) -> u64| devices.iter().map(|it| float(of(it))).sum::<f64>();
        let most = |of: fn(&DeviceCapacity) -> f64| devices.iter().map(of).fold(0.0, f64::max);
        let (total, used) = (float(capacity.total_bytes), float(capacity.used_bytes));
        let after = used + sum(|it| it.bytes_in) - sum(|it| it.bytes_out);
        let share = |bytes: f64| bytes.max(0.0) / total.max(1.0);
        Self {
            total,
            used: share(used),
            after: share(after),
            fullest: most(|it| it.fullness),
            fullest_after: most(|it| it.fullness_projected),
            room: float(capacity.writable_until_first_full_bytes),
            is_above_mark: devices.iter().any(|it| it.fullness_projected > it.high_water),
        }
    }
}

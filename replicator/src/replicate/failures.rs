//! Devices that failed repeatedly: they must not block work on other devices.

use std::collections::BTreeMap;

use martlet_protocol::{DeviceId, Error};

/// Number of consecutive failed calls after which a device is skipped for now.
const FAILURES_MAX: u32 = 3;

/// A failed call, and the device that caused the failure.
#[derive(Debug)]
pub(super) struct DeviceFailure {
    pub(super) device: DeviceId,
    pub(super) error: Error,
}

impl DeviceFailure {
    /// Returns a function that attributes an error to a device.
    pub(super) fn by(device: DeviceId) -> impl Fn(Error) -> Self {
        move |error| Self { device, error }
    }
}

/// Consecutive failures, by device.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<DeviceId, u32>);

impl Failures {
    /// Records a failed call of a device.
    pub(super) fn record(&mut self, device: DeviceId) {
        *self.0.entry(device).or_default() += 1;
    }

    /// Records that a device answered.
    pub(super) fn forget(&mut self, device: DeviceId) {
        self.0.remove(&device);
    }

    /// Returns true if a device failed too often in a row to be queried again for now.
    pub(super) fn is_out(&self, device: DeviceId) -> bool {
        self.0.get(&device).is_some_and(|count| *count >= FAILURES_MAX)
    }

    /// Forgets all failures.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

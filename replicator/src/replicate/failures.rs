//! Devices that failed again and again: they keep what concerns others from nobody.

use std::collections::BTreeMap;

use martlet_protocol::{DeviceId, Error};

/// Calls in a row that a device may fail before it is left for a while.
const FAILURES_MAX: u32 = 3;

/// A call that failed, and the device that did not answer it as it should.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) device: DeviceId,
    pub(super) error: Error,
}

impl Failed {
    /// Returns a function that blames a device for an error.
    pub(super) fn by(device: DeviceId) -> impl Fn(Error) -> Self {
        move |error| Self { device, error }
    }
}

/// Failures in a row, by device.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<DeviceId, u32>);

impl Failures {
    /// Notes that a device failed a call.
    pub(super) fn note(&mut self, device: DeviceId) {
        *self.0.entry(device).or_default() += 1;
    }

    /// Notes that a device answered.
    pub(super) fn forget(&mut self, device: DeviceId) {
        self.0.remove(&device);
    }

    /// Returns true when a device failed too often in a row to be asked again for now.
    pub(super) fn is_out(&self, device: DeviceId) -> bool {
        self.0.get(&device).is_some_and(|count| *count >= FAILURES_MAX)
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

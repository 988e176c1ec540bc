//! Record of the devices that may hold extents without an entry.

use martlet_protocol::{DeviceId, ExtentId};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Devices that may hold the extents.
pub(crate) struct UncommittedExtents {
    locations: Mutex<Vec<(DeviceId, ExtentId)>>,
    /// Becomes true once the extents are unwanted; background copies hold receivers.
    unwanted: watch::Sender<bool>,
}

impl UncommittedExtents {
    pub(crate) fn new() -> Self {
        Self { locations: Mutex::default(), unwanted: watch::Sender::new(false) }
    }

    /// Records a device before an extent is sent to it.
    pub(crate) fn note(&self, device: DeviceId, id: ExtentId) {
        self.locations.lock().push((device, id));
    }

    /// Receiver for background copies: reports that they are unwanted, and is held until they end.
    pub(crate) fn unwanted(&self) -> watch::Receiver<bool> {
        self.unwanted.subscribe()
    }

    /// Ends the background copies; returns true if none runs.
    pub(crate) fn is_quiet(&self) -> bool {
        self.unwanted.send_replace(true);
        self.unwanted.receiver_count() == 0
    }

    /// Takes the recorded devices.
    pub(crate) fn take(&self) -> Vec<(DeviceId, ExtentId)> {
        std::mem::take(&mut *self.locations.lock())
    }

    /// Waits until no background copy runs.
    pub(crate) async fn ended(&self) {
        self.unwanted.closed().await;
    }
}

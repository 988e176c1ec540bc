//! Backend for missing devices of the cluster: every call fails as unavailable.
//!
//! The backend never answers "not found": a caller that queries all devices for a register or
//! extent would conclude that none exists.

use std::ops::Range;

use async_trait::async_trait;
use martlet_protocol::backend::{
    Backend, ByteStream, Call, DeviceHealth, DeviceStatus, NewExtent, Reply,
};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, DeviceIdentity, Error, ExtentId, Result, Term};

use super::devices::MissingDevice;

/// Missing devices.
#[derive(Debug)]
pub(crate) struct AbsentDevice(Vec<MissingDevice>);

impl AbsentDevice {
    /// Makes a backend for these missing devices.
    pub(crate) fn new(missing: Vec<MissingDevice>) -> Self {
        Self(missing)
    }

    fn refuse<T>(&self, device: DeviceId) -> Result<T> {
        let missing = self.0.iter().find(|missing| missing.id == device);
        let reason = missing.map_or("the device is unknown", |missing| &missing.reason);
        Err(Error::unavailable(format!("device {device} is missing: {reason}")))
    }
}

#[async_trait]
impl Backend for AbsentDevice {
    async fn call(&self, device: DeviceId, _: Call<'_>) -> Result<Reply> {
        self.refuse(device)
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        _: NewExtent,
        _: ByteStream,
    ) -> Result<ExtentRef> {
        self.refuse(device)
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        _: ExtentId,
        _: Range<u64>,
    ) -> Result<ByteStream> {
        self.refuse(device)
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let status = |missing: &MissingDevice| DeviceStatus {
            device: missing.id,
            identity: DeviceIdentity([0; 16]),
            voting: false,
            path: missing.path.clone(),
            health: DeviceHealth::Offline(missing.reason.clone()),
            total_bytes: 0,
            free_bytes: 0,
            extent_bytes: 0,
            extents: 0,
            quarantined: 0,
            hints: 0,
            term: Term::NONE,
            joined: 0,
        };
        Ok(self.0.iter().map(status).collect())
    }
}

//! Filter for devices of this node that are not open: not configured, or new in a later ring.
//!
//! Calls for them are answered `Unavailable` and never "not found": a caller that queries all
//! devices for a register or extent would conclude that none exists.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::backend::{ByteStream, Call, DeviceStatus, NewExtent, Reply};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Backend, DeviceId, Error, ExtentId, Result};

/// A node that serves calls for configured devices only.
#[derive(Debug)]
pub(super) struct ConfiguredDevices<N> {
    node: Arc<N>,
    devices: Arc<BTreeMap<DeviceId, PathBuf>>,
}

impl<N> ConfiguredDevices<N> {
    /// Limits `node` to these devices.
    pub(super) fn new(node: Arc<N>, devices: Arc<BTreeMap<DeviceId, PathBuf>>) -> Self {
        Self { node, devices }
    }

    fn check(&self, device: DeviceId) -> Result<()> {
        if self.devices.contains_key(&device) {
            return Ok(());
        }
        let sentence = format!("device {device} is not configured at this node");
        Err(Error::unavailable(sentence)
            .without_effect("name it in [devices] and restart the node"))
    }
}

#[async_trait]
impl<N: Backend> Backend for ConfiguredDevices<N> {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        self.check(device)?;
        self.node.call(device, call).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.check(device)?;
        self.node.write_extent(device, extent, body).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        self.check(device)?;
        self.node.read_extent(device, id, range).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.node.devices().await
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use martlet_protocol::testing::{MemoryBackend, new_extent};
    use martlet_protocol::{BackendExt, BucketId, ErrorKind, SystemClock};

    use super::*;

    #[tokio::test]
    async fn devices_that_are_not_open_are_unavailable_and_not_unknown() {
        let node = MemoryBackend::new(Arc::new(SystemClock), [DeviceId(3), DeviceId(4)]);
        let given = Arc::new(BTreeMap::from([(DeviceId(3), PathBuf::from("/x"))]));
        let node = ConfiguredDevices::new(Arc::new(node), given);
        let is_refused = |error: &Error| {
            error.kind() == ErrorKind::Unavailable
                && error.had_no_effect()
                && error.to_string().contains("not configured")
        };
        let extent = || new_extent(BucketId::random(), "key", None);
        let body = || futures::stream::iter([Ok(bytes::Bytes::from_static(b"x"))]).boxed();
        let id = node.write_extent(DeviceId(3), extent(), body()).await.unwrap().id;
        assert!(node.stat_extent(DeviceId(3), id).await.is_ok());
        assert!(node.read_extent(DeviceId(3), id, 0..1).await.is_ok());
        for device in [DeviceId(4), DeviceId(5)] {
            let stat = node.stat_extent(device, id).await;
            assert!(is_refused(&stat.unwrap_err()));
            let write = node.write_extent(device, extent(), body()).await;
            assert!(is_refused(&write.unwrap_err()));
            let read = node.read_extent(device, id, 0..1).await;
            assert!(is_refused(&read.err().unwrap()));
        }
        assert_eq!(node.devices().await.unwrap().len(), 2);
    }
}

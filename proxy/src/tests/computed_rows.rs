//! Devices in memory whose listings of some rows are computed, for buckets of millions of rows.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::backend::{
    ByteStream, Call, DeviceStatus, ListReply, ListRequest, NewExtent, Reply,
};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, ExtentId, Result, SystemClock};

use super::harness::store_with;
use crate::ObjectStore;

/// Number of devices, which have equal rows.
pub(super) const DEVICES: usize = 3;

/// Rows that are computed.
#[async_trait]
pub(super) trait ComputedRows: Send + Sync + 'static {
    /// Computes a page of a listing. `None` leaves the listing to the devices in memory.
    async fn page(&self, request: &ListRequest) -> Option<ListReply>;

    /// Creates a store over devices with these rows, of which each is a replica of all others.
    fn store(self: Arc<Self>) -> ObjectStore
    where
        Self: Sized,
    {
        let devices = u32::try_from(DEVICES).unwrap();
        let memory = MemoryBackend::new(Arc::new(SystemClock), (1..=devices).map(DeviceId));
        let node: Arc<dyn Backend> = Arc::new(ComputedDevices { memory, rows: self });
        store_with(&node, DEVICES, devices, 0, Arc::new(SystemClock))
    }
}

struct ComputedDevices<R> {
    memory: MemoryBackend,
    rows: Arc<R>,
}

#[async_trait]
impl<R: ComputedRows> Backend for ComputedDevices<R> {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        if let Call::ListRows { request, .. } = &call
            && let Some(page) = self.rows.page(request).await
        {
            return Ok(page.into());
        }
        self.memory.call(device, call).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.memory.write_extent(device, extent, body).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        self.memory.read_extent(device, id, range).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.memory.devices().await
    }
}

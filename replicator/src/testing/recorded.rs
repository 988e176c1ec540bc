//! Nodes in memory that record the requests to them.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::backend::{ByteStream, Call, CallKind, DeviceStatus, NewExtent, Reply};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Backend, DeviceId, ExtentId, ManualClock, Result};
use parking_lot::Mutex;

use super::multi_node::MultiNodeWorld;

/// Requests to nodes, by device: a call, or none for the state of the node.
pub(crate) type NodeRequests = Arc<Mutex<Vec<(DeviceId, Option<CallKind>)>>>;

/// A node of one device that records all requests, and may alter replies.
struct RecordedNode {
    device: DeviceId,
    inner: Arc<dyn Backend>,
    requests: NodeRequests,
    alter: fn(Reply) -> Reply,
}

#[async_trait]
impl Backend for RecordedNode {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        self.requests.lock().push((device, Some(call.kind())));
        self.inner.call(device, call).await.map(self.alter)
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.inner.write_extent(device, extent, body).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        self.inner.read_extent(device, id, range).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.requests.lock().push((self.device, None));
        self.inner.devices().await
    }
}

/// Returns a world of `count` nodes whose replies to calls are altered, and the requests to them.
pub(crate) fn recorded(count: u32, alter: fn(Reply) -> Reply) -> (MultiNodeWorld, NodeRequests) {
    let requests = NodeRequests::default();
    let seen = requests.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(count, clock, move |device, inner| {
        Arc::new(RecordedNode { device, inner, requests: seen.clone(), alter })
    });
    (world, requests)
}

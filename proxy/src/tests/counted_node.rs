//! A node that counts requests about hints, and that may return no state.

use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use martlet_protocol::backend::{ByteStream, Call, DeviceStatus, NewExtent, Reply};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, ExtentId, Result};

pub(super) struct CountedNode {
    memory: Arc<MemoryBackend>,
    /// Requests for the state of the node.
    states: AtomicUsize,
    /// Listings of the hints of some registers.
    listings: AtomicUsize,
    /// True if no request for the state is answered. Calls are.
    is_silent: AtomicBool,
}

impl CountedNode {
    pub(super) fn over(memory: Arc<MemoryBackend>) -> Arc<Self> {
        let (states, listings) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { memory, states, listings, is_silent: AtomicBool::new(false) })
    }

    pub(super) fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Returns the number of requests for the state and of listings of hints since the last call.
    pub(super) fn take_counts(&self) -> (usize, usize) {
        (self.states.swap(0, Ordering::SeqCst), self.listings.swap(0, Ordering::SeqCst))
    }
}

#[async_trait]
impl Backend for CountedNode {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        if let Call::ListHints(_) = &call {
            self.listings.fetch_add(1, Ordering::SeqCst);
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
        self.states.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            return pending().await;
        }
        self.memory.devices().await
    }
}

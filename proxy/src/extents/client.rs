//! State that all reads and writes of extents share, and the deletion of extents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::backend::ReleaseCondition;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId};
use martlet_topology::{Cluster, Topology};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::coded::Codecs;
use crate::coded::admission::Admission;
use crate::health::Health;

/// Timeout of a device's deletion.
const DELETE_TIME: Duration = Duration::from_secs(5);

/// Reads and writes of extents, and the budgets that they share.
pub(crate) struct ExtentClient {
    pub(super) topology: Topology,
    pub(crate) health: Health,
    /// Body bytes that all writes may still hold.
    pub(crate) buffer: Arc<Semaphore>,
    /// Configured total of `buffer`.
    pub(crate) buffer_bytes_max: usize,
    /// Bytes that background writes may hold after their write is done. A quarter of the write
    /// budget, so that they leave room for other writes.
    pub(crate) background: Arc<Semaphore>,
    /// Bytes of fragments kept for another device, beyond the write budget.
    pub(crate) kept: Arc<Semaphore>,
    /// Bytes of copies kept for another device: half of the write budget. Stalled clients may hold
    /// them long.
    pub(crate) kept_copies: Arc<Semaphore>,
    /// Turns for pinned bytes of writes.
    pub(crate) admission: Admission,
    pub(crate) codecs: Codecs,
    /// Bytes of fragments that reads hold for reconstruction: a quarter of the write budget.
    pub(crate) recoveries: Arc<Semaphore>,
    /// Total of `recoveries`.
    pub(crate) recovery_bytes_max: usize,
}

impl ExtentClient {
    /// A client whose writes may hold `buffer_bytes_max` bytes together.
    pub(crate) fn new(topology: Topology, buffer_bytes_max: usize) -> Self {
        let buffer = buffer_bytes_max.clamp(1, Semaphore::MAX_PERMITS);
        let share = (buffer / 4).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            topology,
            health: Health::default(),
            buffer: Arc::new(Semaphore::new(buffer)),
            buffer_bytes_max,
            background: Arc::new(Semaphore::new(share)),
            kept: Arc::new(Semaphore::new(share)),
            kept_copies: Arc::new(Semaphore::new(
                share.saturating_mul(2).min(Semaphore::MAX_PERMITS),
            )),
            admission: Admission::new(buffer),
            codecs: Codecs::default(),
            recoveries: Arc::new(Semaphore::new(share)),
            recovery_bytes_max: share,
        }
    }

    /// The current rings.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        self.topology.cluster()
    }

    /// Deletes unwanted extents in the background.
    pub(crate) fn delete_soon(self: &Arc<Self>, uncommitted: Vec<(DeviceId, ExtentId)>) {
        let (false, Ok(runtime)) = (uncommitted.is_empty(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let client = self.clone();
        runtime.spawn(async move { client.delete_extents(uncommitted).await });
    }

    /// Removes wrong bytes from a device in the background. Leaves no delete mark, so the right
    /// bytes may still be written there.
    pub(crate) fn release_soon(self: &Arc<Self>, device: DeviceId, wrong: ExtentRef) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let client = self.clone();
        runtime.spawn(async move {
            let released = timeout(DELETE_TIME, client.release_on(device, wrong)).await;
            if let Ok(Err(error)) = released {
                tracing::debug!(%device, %error, "could not delete a wrong copy or fragment");
            }
        });
    }

    async fn release_on(&self, device: DeviceId, wrong: ExtentRef) -> martlet_protocol::Result<()> {
        let node = self.topology.cluster().node(device)?.clone();
        node.release_copies(device, &[wrong], &ReleaseCondition::of_wrong_copies()).await
    }

    /// Deletes extents, with one call for each device.
    pub(crate) async fn delete_extents(&self, uncommitted: Vec<(DeviceId, ExtentId)>) {
        tracing::debug!(extents = ?uncommitted, "deleting extents without an entry");
        let mut by_device: BTreeMap<DeviceId, Vec<ExtentId>> = BTreeMap::new();
        for (device, id) in uncommitted {
            by_device.entry(device).or_default().push(id);
        }
        let deletions = by_device.into_iter().map(|(device, ids)| async move {
            let deleted = timeout(DELETE_TIME, self.delete_on(device, &ids)).await;
            let late = |_| Err(Error::unavailable("the device does not answer"));
            if let Err(error) = deleted.unwrap_or_else(late) {
                tracing::debug!(%device, %error, "leaving unwanted extents to the sweep");
            }
        });
        join_all(deletions).await;
    }

    async fn delete_on(&self, device: DeviceId, ids: &[ExtentId]) -> martlet_protocol::Result<()> {
        let node = self.topology.cluster().node(device)?.clone();
        node.delete_extents(device, ids).await
    }
}

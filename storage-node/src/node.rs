//! The devices of a node behind the [`Backend`] trait.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::backend::{
    AuditResult, Backend, BucketFence, ByteStream, DeviceStatus, EntryWrite, ExtentStat, Garbage,
    GarbageId, Hint, Holding, ListReply, ListRequest, NewExtent, Presence, PromiseReply,
    RegisterDrop, RegisterView, Walk, Want, WriteReply,
};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::opening::{Incarnation, OpeningStatus, Uuid};
use martlet_protocol::tree::{BinKey, Span, Sum, TreeKey};
use martlet_protocol::{
    BucketId, Clock, DeviceId, Error, ExtentId, RegisterKey, Result, Stamp, SystemClock, Term,
};

use self::monitor::Monitor;
use crate::device::pulse::STALL_AFTER;
use crate::device::{Device, DeviceConfig, OpenDevice, SharedResources};
use crate::disk::{Disk, PosixDisk};
use crate::index::Caches;
use crate::metrics::NodeMetrics;

mod monitor;
#[cfg(test)]
mod tests;

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The time source.
    pub clock: Arc<dyn Clock>,
    /// Disk that holds the files of extents.
    pub disk: Arc<dyn Disk>,
    /// Cluster that the devices belong to; without it, devices of any cluster are accepted.
    pub cluster: Option<Uuid>,
    /// True if a device has its votes as soon as it is formatted (rule G1). False where a device
    /// has peers and may replace a device that they remember. Then it gets votes after it has
    /// synced, and begins anew if its index is found damaged.
    pub votes_when_new: bool,
    /// True if a device may use its votes only after its peers confirmed its identity (rule G1).
    /// The process must then call [`StorageNode::confirm`] after each opening.
    pub introduced: bool,
    /// Secret of the cluster that keys the sums of registers (rule H1).
    pub tree_key: TreeKey,
    /// Bytes of index blocks kept in memory, for all devices together.
    pub block_cache_bytes: usize,
    /// Bytes of index writes gathered in memory, for all devices together.
    pub write_buffer_bytes: usize,
    /// Time limits for devices that hang.
    pub patience: Patience,
}

/// Time limits for devices that hang.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Limit for an opening, once another device is open.
    pub opening: Duration,
    /// Time without the end of a call after which the device is suspect, until a call ends.
    pub calls: Duration,
    /// Limit for a closing; after it the device is left as it is.
    pub closing: Duration,
}

impl Default for Patience {
    /// One minute to open, 40 seconds for a call, 45 seconds to close. Requests that use a device
    /// may take 30 seconds of the closing.
    fn default() -> Self {
        Self {
            opening: Duration::from_mins(1),
            calls: STALL_AFTER,
            closing: Duration::from_secs(45),
        }
    }
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            disk: Arc::new(PosixDisk),
            cluster: None,
            votes_when_new: true,
            introduced: false,
            tree_key: TreeKey::default(),
            block_cache_bytes: 32 * 1024 * 1024,
            write_buffer_bytes: 64 * 1024 * 1024,
            patience: Patience::default(),
        }
    }
}

/// One storage node.
///
/// Dropping it without [`StorageNode::shutdown`] equals a crash of the process: no acknowledged
/// data is lost, and the next opening checks every extent.
pub struct StorageNode {
    devices: Vec<Arc<Device>>,
    monitors: Arc<[Monitor]>,
}

impl StorageNode {
    /// Opens the devices in parallel. A device that does not open is offline, and the other devices
    /// serve. Returns an error if no device opens. A device that is not open after
    /// [`Patience::opening`] joins later, if another device is open by then. Blocks; the calling
    /// thread must belong to a tokio runtime.
    pub fn open(configs: Vec<DeviceConfig>, options: NodeOptions) -> Result<Self> {
        let NodeOptions { clock, disk, cluster, votes_when_new, introduced, tree_key, .. } =
            options;
        let caches = Caches::new(options.block_cache_bytes, options.write_buffer_bytes);
        let shared = SharedResources {
            clock,
            caches,
            disk,
            cluster,
            votes_when_new,
            introduced,
            tree_key,
            stall_after: options.patience.calls,
        };
        let devices: Vec<_> = configs
            .into_iter()
            .map(|config| Arc::new(Device::new(config, shared.clone())))
            .collect();
        let monitors = monitor::start(&devices, options.patience)?.into();
        let offline: Vec<String> = devices.iter().filter_map(|it| it.offline()).collect();
        if offline.len() == devices.len() {
            return Err(Error::unavailable(match offline.as_slice() {
                [] => "a node needs at least one device".to_owned(),
                reasons => reasons.join("; "),
            }));
        }
        Ok(Self { devices, monitors })
    }

    /// Closes all devices in good order, in parallel: later calls find them offline. Returns the
    /// first error; the other devices are closed all the same. A device that does not close within
    /// [`Patience::closing`] is left as it is.
    pub async fn shutdown(&self) -> Result<()> {
        let monitors = self.monitors.clone();
        // One thread closes all devices. It is a blocking thread of tokio, which no disk call
        // occupies.
        tokio::task::spawn_blocking(move || monitor::close(&monitors)).await.unwrap_or_else(
            |error| Err(Error::internal("closing the devices panicked").with_source(error)),
        )
    }

    /// Returns the counters of the node.
    pub fn metrics(&self) -> NodeMetrics {
        NodeMetrics { devices: self.devices.iter().map(|it| it.metrics()).collect() }
    }

    /// Returns the openings of devices that are open and not stalled (rule G1).
    pub fn openings(&self) -> Vec<OpeningStatus> {
        let answers = |it: &&Arc<Device>| it.threads().pulse().stalled().is_none();
        self.devices.iter().filter(answers).filter_map(|it| it.opening()).collect()
    }

    /// Allows a device to use its votes: a quorum of nodes remembers `current`, and nothing later.
    /// Returns an error if another opening is in progress.
    pub async fn confirm(&self, id: DeviceId, current: Incarnation) -> Result<()> {
        self.on_opening(id, move |device| device.confirm(current)).await
    }

    /// Durably withdraws a device's votes: its peers remember `by`, which the device does not
    /// follow.
    pub async fn refuse(&self, id: DeviceId, by: Incarnation) -> Result<()> {
        self.on_opening(id, move |device| device.refuse(by)).await
    }

    /// Begins a new generation of a device that is open and confirmed. The device votes meanwhile.
    pub async fn advance(&self, id: DeviceId) -> Result<()> {
        self.on_opening(id, Device::advance).await
    }

    /// Begins a refused device anew, without votes, in place of the device that its peers remember.
    /// An index that is not empty moves into quarantine.
    pub async fn begin_anew(&self, id: DeviceId) -> Result<()> {
        let opened = self.online(id)?;
        let is_empty = opened.index.is_empty().await?;
        drop(opened);
        self.on_opening(id, move |device| device.begin_anew(is_empty)).await
    }

    async fn on_opening(
        &self,
        id: DeviceId,
        work: impl FnOnce(&Device) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let device = self.device(id)?.clone();
        let threads = device.threads().clone();
        threads.run(move || work(&device)).await
    }

    fn device(&self, id: DeviceId) -> Result<&Arc<Device>> {
        self.devices
            .iter()
            .find(|device| device.id() == id)
            .ok_or_else(|| Error::not_found(format!("this node has no device {id}")))
    }

    fn online(&self, id: DeviceId) -> Result<Arc<OpenDevice>> {
        self.device(id)?.online()
    }
}

#[async_trait]
impl Backend for StorageNode {
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        self.online(device)?.index.read(key, want, term).await
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        self.online(device)?.index.write(write).await
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        self.online(device)?.index.promise(key, ballot, term).await
    }

    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        self.online(device)?.index.list(request).await
    }

    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()> {
        self.online(device)?.index.fence(fence).await
    }

    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()> {
        self.online(device)?.index.purge(bucket).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        let device = self.device(device)?;
        let opened = device.writable()?;
        let birth_ms = extent.birth_ms.unwrap_or_else(|| device.now_ms());
        opened.extents.write(extent, birth_ms, body).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        self.online(device)?.extents.read(id, range).await
    }

    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat> {
        self.online(device)?.extents.stat(id).await
    }

    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        self.online(device)?.extents.delete(ids).await
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>> {
        self.online(device)?.extents.list(after, limit).await
    }

    async fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        self.online(device)?.index.garbage(before_ms, limit).await
    }

    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()> {
        self.online(device)?.index.forget_garbage(garbage).await
    }

    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        self.online(device)?.index.keep_hint(write).await
    }

    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView> {
        self.online(device)?.index.read_hint(key, want).await
    }

    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        self.online(device)?.index.list_hints(request).await
    }

    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        self.online(device)?.index.hints(after, limit).await
    }

    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()> {
        self.online(device)?.index.forget_hint(key, order).await
    }

    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        self.online(device)?.index.registers(after, limit).await
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        Ok(self.online(device)?.index.fences())
    }

    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()> {
        self.online(device)?.index.raise_floor(floor).await
    }

    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()> {
        self.online(device)?.index.set_voting(voting).await
    }

    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        self.online(device)?.extents.release(ids).await
    }

    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>> {
        self.online(device)?.extents.presence(ids).await
    }

    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>> {
        self.online(device)?.extents.audit(after, bytes_max).await
    }

    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>> {
        self.online(device)?.index.sums(spans).await
    }

    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        self.online(device)?.index.bins(span, after, limit).await
    }

    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        self.online(device)?.index.walk(walk, after, limit).await
    }

    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        self.online(device)?.index.holdings(keys).await
    }

    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()> {
        self.online(device)?.index.mark_collectable(tombstones).await
    }

    async fn drop_registers(&self, device: DeviceId, drops: &[RegisterDrop]) -> Result<()> {
        self.online(device)?.index.drop_registers(drops).await
    }

    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        self.online(device)?.index.audit_registers(after).await
    }

    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()> {
        self.online(device)?.index.raise_term(term).await
    }

    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()> {
        self.online(device)?.index.set_joined(change).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        Ok(self.devices.iter().map(|it| it.status()).collect())
    }
}

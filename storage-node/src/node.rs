//! The devices of a node behind the [`Backend`] trait.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::try_join_all;
use martlet_protocol::backend::{
    Backend, ByteStream, Call, DeviceStatus, NewExtent, Reply, RingEpochs,
};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::opening::{Incarnation, OpeningStatus, Uuid};
use martlet_protocol::release::FORMATS;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, DeviceId, Error, ExtentId, Result, SystemClock};

use self::monitor::Monitor;
pub use self::patience::Patience;
use crate::device::{Device, DeviceConfig, DeviceLevel, OpenDevice, SharedResources};
use crate::disk::{Disk, PosixDisk};
use crate::extents::ExtentInPlace;
use crate::index::Caches;
use crate::metrics::NodeMetrics;

mod claims;
mod conditional;
mod kept_rows;
mod lending;
mod monitor;
mod patience;
#[cfg(test)]
mod tests;

/// Least bytes of index writes gathered in memory for each device. With fewer, RocksDB would flush
/// the memtables of one device for each write to another one.
pub const WRITE_BUFFER_BYTES_MIN: usize = 8 * 1024 * 1024;

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
    /// Format level of the cluster, as far as the process knows it. Devices above it raise it.
    pub format_level: u16,
    /// True if devices lend descriptors of their extents to other processes.
    pub lends: bool,
    /// Data rings of the process, if other processes may have other rings: a release by an earlier ring
    /// is refused (rule X9).
    pub rings: Option<Arc<RingEpochs>>,
    /// Bytes of index blocks kept in memory, for all devices together.
    pub block_cache_bytes: usize,
    /// Bytes of index writes gathered in memory, for all devices together. At least
    /// [`WRITE_BUFFER_BYTES_MIN`] for each device.
    pub write_buffer_bytes: usize,
    /// Maximum number of files that the index of each device keeps open.
    pub open_files_max: usize,
    /// Time limits for devices that hang.
    pub patience: Patience,
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
            format_level: FORMATS.oldest,
            lends: false,
            rings: None,
            block_cache_bytes: 32 * 1024 * 1024,
            write_buffer_bytes: 64 * 1024 * 1024,
            open_files_max: 512,
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
    level: Arc<DeviceLevel>,
}

impl StorageNode {
    /// Opens the devices in parallel. A device that does not open is offline, and the other devices
    /// serve. Returns an error if no device opens. A device that is not open after
    /// [`Patience::opening`] joins later, if another device is open by then. Blocks; the calling
    /// thread must belong to a tokio runtime.
    pub fn open(configs: Vec<DeviceConfig>, options: NodeOptions) -> Result<Self> {
        let NodeOptions { clock, disk, cluster, votes_when_new, introduced, tree_key, .. } =
            options;
        let (lends, rings) = (options.lends, options.rings);
        let level = Arc::new(DeviceLevel::new(options.format_level, FORMATS));
        let write_bytes =
            options.write_buffer_bytes.max(configs.len().saturating_mul(WRITE_BUFFER_BYTES_MIN));
        let caches = Caches::new(options.block_cache_bytes, write_bytes, options.open_files_max);
        let shared = SharedResources {
            clock,
            caches,
            disk,
            cluster,
            votes_when_new,
            introduced,
            tree_key,
            level: level.clone(),
            lends,
            rings,
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
        Ok(Self { devices, monitors, level })
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

    /// Returns the format level of the devices: that of the options, or the highest that a device
    /// was found at.
    pub fn format_level(&self) -> u16 {
        self.level.get()
    }

    /// Raises the format level of all devices, durably. Devices that are not open are raised when
    /// they open. A lower level has no effect.
    pub async fn raise_format_level(&self, level: u16) -> Result<()> {
        self.level.raise(level);
        let raised = self.devices.iter().map(|device| async {
            let id = device.id();
            let guard = device.begin_raise().ok_or_else(|| {
                Error::unavailable(format!("the format of device {id} is being raised already"))
            })?;
            let raise = move |device: &Device| {
                let raised = device.raise_format();
                drop(guard);
                raised
            };
            self.on_opening(id, raise).await
        });
        try_join_all(raised).await.map(|_| ())
    }

    /// Returns true if this node was opened with the device.
    pub fn has_device(&self, id: DeviceId) -> bool {
        self.devices.iter().any(|device| device.id() == id)
    }

    /// Opens an extent for a reader in place. `NotFound` if the device doesn't hold the extent,
    /// `Corrupt` if it is in quarantine, `Unavailable` while the device is closed or suspect.
    pub async fn open_in_place(&self, device: DeviceId, id: ExtentId) -> Result<ExtentInPlace> {
        self.device(device)?.trusted()?.extents.open_in_place(id).await
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
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        if let Call::Claims(request) = &call {
            return Ok(claims::answer(self, request).await.into());
        }
        let opened = self.online(device)?;
        let (index, extents) = (&opened.index, &opened.extents);
        Ok(match call {
            Call::Read { key, want, term } => index.read(&key, want, term).await?.into(),
            Call::Write(write) => index.write(write).await?.into(),
            Call::Promise { key, ballot, term } => index.promise(&key, ballot, term).await?.into(),
            Call::List(request) => index.list(&request).await?.into(),
            Call::ListRows { request, rows } => index.list_rows(&request, rows).await?.into(),
            Call::Fence(fence) => index.fence(fence).await?.into(),
            Call::PurgeBucket(bucket) => index.purge(bucket).await?.into(),
            Call::StatExtent(id) => extents.stat(id).await?.into(),
            Call::DeleteExtents(ids) => extents.delete(&ids).await?.into(),
            Call::ListExtents { after, limit } => extents.list(after, limit).await?.into(),
            Call::ForgetGarbage(garbage) => index.forget_garbage(&garbage).await?.into(),
            Call::KeepHint(write) => index.keep_hint(write).await?.into(),
            Call::ReadHint { key, want } => index.read_hint(&key, want).await?.into(),
            Call::ListHints(request) => index.list_hints(&request).await?.into(),
            Call::Hints { after, limit } => index.hints(after.as_deref(), limit).await?.into(),
            Call::ForgetHint { key, order } => index.forget_hint(&key, order).await?.into(),
            Call::Registers { after, limit } => {
                index.registers(after.as_deref(), limit).await?.into()
            }
            Call::RaiseFloor(floor) => index.raise_floor(floor).await?.into(),
            Call::SetVoting(voting) => index.set_voting(voting).await?.into(),
            Call::ReleaseExtents(ids) => extents.release(&ids).await?.into(),
            Call::Presence(ids) => extents.presence(&ids).await?.into(),
            Call::AuditExtents { after, bytes_max } => {
                extents.audit(after, bytes_max).await?.into()
            }
            Call::Sums(spans) => index.sums(&spans).await?.into(),
            Call::Bins { span, after, limit } => index.bins(span, after, limit).await?.into(),
            Call::Walk { walk, after, limit } => {
                index.walk(&walk, after.as_deref(), limit).await?.into()
            }
            Call::Holdings(keys) => index.holdings(&keys).await?.into(),
            Call::MarkCollectable(tombstones) => index.mark_collectable(&tombstones).await?.into(),
            Call::DropRegisters(drops) => index.drop_registers(&drops, None).await?.into(),
            Call::AuditRegisters(after) => index.audit_registers(after).await?.into(),
            Call::RaiseTerm(term) => index.raise_term(term).await?.into(),
            Call::SetJoined(change) => index.set_joined(change).await?.into(),
            Call::Claims(_) => unreachable!("claims name their devices themselves"),
            Call::SeekExtents(ids) => extents.seek(&ids).await?.into(),
            Call::ExtentSums { policy, spans } => extents.sums(policy, &spans)?.into(),
            call @ (Call::Garbage { .. }
            | Call::GarbageAfter { .. }
            | Call::Fences
            | Call::FencesAfter { .. }
            | Call::FencesOf(_)
            | Call::Aged { .. }
            | Call::Usage { .. }
            | Call::OldRegisters { .. }
            | Call::HeldBuckets { .. }
            | Call::HintArrivals { .. }) => kept_rows::answer(index, call).await?,
            Call::Quarantine { after, limit } => {
                extents.quarantine(after.as_deref(), limit).await?.into()
            }
            call @ (Call::RaiseFloorOf { .. }
            | Call::SetVotingOf { .. }
            | Call::SetJoinedOf { .. }
            | Call::SetFencedOf(_)
            | Call::ReleaseCopies { .. }
            | Call::DropStrays { .. }
            | Call::DeleteUnneeded { .. }
            | Call::PresenceBy { .. }) => conditional::answer(&opened, call).await?,
        })
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        let device = self.device(device)?;
        let opened = device.writable(extent.length)?;
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

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        Ok(self.devices.iter().map(|it| it.status()).collect())
    }
}

//! Backend for missing devices of the cluster: every call fails as unavailable.
//!
//! It must never answer "not found": a caller that asks all devices for a register or extent would
//! believe that.

use std::ops::Range;

use async_trait::async_trait;
use martlet_protocol::backend::{
    AuditResult, Backend, BucketFence, ByteStream, DeviceHealth, DeviceStatus, EntryWrite,
    ExtentStat, Garbage, GarbageId, Hint, Holding, ListReply, ListRequest, NewExtent, Presence,
    PromiseReply, RegisterDrop, RegisterView, Walk, Want, WriteReply,
};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::tree::{BinKey, Span, Sum};
use martlet_protocol::{
    BucketId, DeviceId, DeviceIdentity, Error, ExtentId, RegisterKey, Result, Stamp, Term,
};

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
    async fn read(
        &self,
        device: DeviceId,
        _: &RegisterKey,
        _: Want,
        _: Term,
    ) -> Result<RegisterView> {
        self.refuse(device)
    }

    async fn write(&self, device: DeviceId, _: EntryWrite) -> Result<WriteReply> {
        self.refuse(device)
    }

    async fn promise(
        &self,
        device: DeviceId,
        _: &RegisterKey,
        _: Stamp,
        _: Term,
    ) -> Result<PromiseReply> {
        self.refuse(device)
    }

    async fn list(&self, device: DeviceId, _: &ListRequest) -> Result<ListReply> {
        self.refuse(device)
    }

    async fn fence(&self, device: DeviceId, _: BucketFence) -> Result<()> {
        self.refuse(device)
    }

    async fn purge_bucket(&self, device: DeviceId, _: BucketId) -> Result<()> {
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

    async fn stat_extent(&self, device: DeviceId, _: ExtentId) -> Result<ExtentStat> {
        self.refuse(device)
    }

    async fn delete_extents(&self, device: DeviceId, _: &[ExtentId]) -> Result<()> {
        self.refuse(device)
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        _: Option<ExtentId>,
        _: usize,
    ) -> Result<Vec<ExtentRecord>> {
        self.refuse(device)
    }

    async fn garbage(&self, device: DeviceId, _: u64, _: usize) -> Result<Vec<Garbage>> {
        self.refuse(device)
    }

    async fn forget_garbage(&self, device: DeviceId, _: &[GarbageId]) -> Result<()> {
        self.refuse(device)
    }

    async fn keep_hint(&self, device: DeviceId, _: EntryWrite) -> Result<WriteReply> {
        self.refuse(device)
    }

    async fn read_hint(&self, device: DeviceId, _: &RegisterKey, _: Want) -> Result<RegisterView> {
        self.refuse(device)
    }

    async fn list_hints(&self, device: DeviceId, _: &ListRequest) -> Result<ListReply> {
        self.refuse(device)
    }

    async fn hints(
        &self,
        device: DeviceId,
        _: Option<&RegisterKey>,
        _: usize,
    ) -> Result<Vec<Hint>> {
        self.refuse(device)
    }

    async fn forget_hint(&self, device: DeviceId, _: &RegisterKey, _: Stamp) -> Result<()> {
        self.refuse(device)
    }

    async fn registers(
        &self,
        device: DeviceId,
        _: Option<&RegisterKey>,
        _: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        self.refuse(device)
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        self.refuse(device)
    }

    async fn raise_floor(&self, device: DeviceId, _: Stamp) -> Result<()> {
        self.refuse(device)
    }

    async fn set_voting(&self, device: DeviceId, _: bool) -> Result<()> {
        self.refuse(device)
    }

    async fn release_extents(&self, device: DeviceId, _: &[ExtentId]) -> Result<()> {
        self.refuse(device)
    }

    async fn presence(&self, device: DeviceId, _: &[ExtentId]) -> Result<Vec<Presence>> {
        self.refuse(device)
    }

    async fn audit_extents(
        &self,
        device: DeviceId,
        _: Option<ExtentId>,
        _: u64,
    ) -> Result<AuditResult<ExtentId>> {
        self.refuse(device)
    }

    async fn sums(&self, device: DeviceId, _: &[Span]) -> Result<Vec<Sum>> {
        self.refuse(device)
    }

    async fn bins(
        &self,
        device: DeviceId,
        _: Span,
        _: Option<BinKey>,
        _: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        self.refuse(device)
    }

    async fn walk(
        &self,
        device: DeviceId,
        _: &Walk,
        _: Option<&RegisterKey>,
        _: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        self.refuse(device)
    }

    async fn holdings(&self, device: DeviceId, _: &[RegisterKey]) -> Result<Vec<Holding>> {
        self.refuse(device)
    }

    async fn mark_collectable(&self, device: DeviceId, _: &[(RegisterKey, Stamp)]) -> Result<()> {
        self.refuse(device)
    }

    async fn drop_registers(&self, device: DeviceId, _: &[RegisterDrop]) -> Result<()> {
        self.refuse(device)
    }

    async fn audit_registers(
        &self,
        device: DeviceId,
        _: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        self.refuse(device)
    }

    async fn raise_term(&self, device: DeviceId, _: Term) -> Result<()> {
        self.refuse(device)
    }

    async fn set_joined(&self, device: DeviceId, _: u64) -> Result<()> {
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

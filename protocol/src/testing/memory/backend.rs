//! The backend trait on maps.

use std::ops::{Bound, Range};
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::Mutex;

use super::MemoryBackend;
use super::device::{Cell, MemoryDevice, hint_view};
use crate::backend::{
    AuditResult, Backend, BucketFence, ByteStream, DeviceHealth, DeviceStatus, EntryWrite,
    ExtentStat, Garbage, GarbageId, Hint, Holding, ListReply, ListRequest, NewExtent, Presence,
    PromiseReply, RegisterDrop, RegisterView, Walk, Want, WriteReply,
};
use crate::error::{Error, Result};
use crate::extent::{ExtentLocation, ExtentRecord, ExtentRef};
use crate::id::{BucketId, DeviceId, DeviceIdentity, ExtentId};
use crate::key::RegisterKey;
use crate::limits;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

/// Chunk size of reads, so that tests meet streams of several chunks.
const READ_BYTES: usize = 1024 * 1024;

#[async_trait]
impl Backend for MemoryBackend {
    async fn read(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
        term: Term,
    ) -> Result<RegisterView> {
        let device = self.voting(device)?;
        device.check_term(term)?;
        let floor = device.floor;
        let absent = RegisterView { promise: floor, ..RegisterView::default() };
        Ok(device.registers.get(key).map_or(absent, |cell| cell.view(want, floor)))
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let now_ms = self.clock.now_ms();
        let mut device = self.device(device)?;
        device.check_term(write.term)?;
        Ok(device.write(write, now_ms))
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
        term: Term,
    ) -> Result<PromiseReply> {
        let mut device = self.voting(device)?;
        device.check_term(term)?;
        let floor = device.floor;
        let cell = device.registers.entry(key.clone()).or_default();
        let mut register = cell.register(floor);
        match register.promise(ballot) {
            Ok(()) => {
                cell.promise = register.promise;
                Ok(PromiseReply::Promised(cell.view(Want::EntryAndInline, floor)))
            }
            Err(floor) => Ok(PromiseReply::Behind(floor)),
        }
    }

    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        let device = self.voting(device)?;
        device.check_term(request.term)?;
        Ok(device.list(request))
    }

    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()> {
        let mut device = self.device(device)?;
        let held = device.fences.entry(fence.bucket).or_insert(fence);
        if fence.generation >= held.generation {
            *held = fence;
        }
        Ok(())
    }

    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()> {
        let mut device = self.device(device)?;
        if device.fences.get(&bucket).is_none_or(|fence| fence.open) {
            return Err(Error::conflict("only a bucket that is closed may be purged"));
        }
        let now_ms = self.clock.now_ms();
        let gone = device.registers.extract_if(.., |key, _| key.bucket == bucket);
        for (key, cell) in gone.collect::<Vec<_>>() {
            let body = cell.entry.as_ref().and_then(|entry| entry.value.body());
            device.discard(key, body, now_ms);
        }
        device.collectable.retain(|key| key.bucket != bucket);
        device.hints.retain(|key, _| key.bucket != bucket);
        device.fences.insert(bucket, BucketFence::of_deleted(bucket));
        Ok(())
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        mut body: ByteStream,
    ) -> Result<ExtentRef> {
        if self.device(device)?.full {
            return Err(Error::full(format!("device {device} is full")));
        }
        if self.device(device)?.deleted.contains_key(&extent.id) {
            return Err(Error::conflict(format!("extent {} was deleted", extent.id)));
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() as u64 > limits::EXTENT_BYTES_MAX {
                return Err(Error::invalid("the extent is too long"));
            }
        }
        if bytes.is_empty() || extent.length.is_some_and(|length| length != bytes.len() as u64) {
            return Err(Error::invalid("the extent has another length than was announced"));
        }
        let reference = ExtentRef {
            id: extent.id,
            length: u32::try_from(bytes.len()).expect("extents are at most 64 MiB"),
            blake3: *blake3::hash(&bytes).as_bytes(),
        };
        let birth_ms = extent.birth_ms.unwrap_or_else(|| self.clock.now_ms());
        let record = ExtentRecord {
            extent: reference,
            owner: extent.owner,
            birth_ms,
            layout: extent.layout,
        };
        self.device(device)?.extents.insert(extent.id, (record, bytes.freeze()));
        Ok(reference)
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let device = self.device(device)?;
        let (record, bytes) = device.extents.get(&id).ok_or_else(|| missing(id))?;
        if *blake3::hash(bytes).as_bytes() != record.extent.blake3 {
            return Err(Error::corrupt(format!("extent {id} is not what was written")));
        }
        if range.is_empty() || range.end > bytes.len() as u64 {
            return Err(Error::invalid(format!("extent {id} has no bytes {range:?}")));
        }
        let index = |at: u64| usize::try_from(at).expect("extents fit into memory");
        let mut rest = bytes.slice(index(range.start)..index(range.end));
        let pieces = std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(READ_BYTES))))
        });
        Ok(futures::stream::iter(pieces).boxed())
    }

    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat> {
        let device = self.device(device)?;
        let (record, bytes) = device.extents.get(&id).ok_or_else(|| missing(id))?;
        let path = PathBuf::from(format!("memory/{id}"));
        let location = ExtentLocation { path, offset: 0, length: bytes.len() as u64 };
        Ok(ExtentStat { record: record.clone(), location })
    }

    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        let mut device = self.device(device)?;
        let now_ms = self.clock.now_ms();
        for id in ids {
            device.extents.remove(id);
            device.deleted.insert(*id, now_ms);
        }
        Ok(())
    }

    async fn release_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        let mut device = self.device(device)?;
        for id in ids {
            device.extents.remove(id);
        }
        Ok(())
    }

    async fn presence(&self, device: DeviceId, ids: &[ExtentId]) -> Result<Vec<Presence>> {
        let device = self.device(device)?;
        let presence = |id| match (device.extents.contains_key(id), device.deleted.contains_key(id))
        {
            (true, _) => Presence::Here,
            (false, true) => Presence::Deleted,
            (false, false) => Presence::Missing,
        };
        Ok(ids.iter().map(presence).collect())
    }

    async fn audit_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>> {
        let mut device = self.device(device)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut audited, mut last) = (AuditResult::default(), None);
        for (id, (record, bytes)) in device.extents.range((from, Bound::Unbounded)) {
            if audited.items > 0 && audited.bytes >= bytes_max {
                audited.next = last;
                break;
            }
            audited.items += 1;
            audited.bytes += bytes.len() as u64;
            last = Some(*id);
            if *blake3::hash(bytes).as_bytes() != record.extent.blake3 {
                audited.corrupt.push(*id);
            }
        }
        for id in &audited.corrupt {
            device.extents.remove(id);
        }
        Ok(audited)
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>> {
        let device = self.device(device)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let run = device.extents.range((from, Bound::Unbounded)).take(limit);
        Ok(run.map(|(_, (record, _))| record.clone()).collect())
    }

    async fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        let device = self.device(device)?;
        let old = device.garbage.iter().filter(|(_, (at_ms, ..))| *at_ms <= before_ms).take(limit);
        Ok(old
            .map(|(number, (_, key, body))| Garbage {
                id: GarbageId(Bytes::copy_from_slice(&number.to_be_bytes())),
                key: key.clone(),
                body: body.clone(),
            })
            .collect())
    }

    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()> {
        let mut device = self.device(device)?;
        for GarbageId(id) in garbage {
            let number = id[..].try_into().map(u64::from_be_bytes);
            device.garbage.remove(&number.map_err(|_| Error::invalid("no garbage of mine"))?);
        }
        Ok(())
    }

    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let now_ms = self.clock.now_ms();
        Ok(self.device(device)?.keep_hint(write, now_ms))
    }

    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView> {
        let device = self.device(device)?;
        Ok(device.hints.get(key).map(|hint| hint_view(hint, want)).unwrap_or_default())
    }

    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        Ok(self.device(device)?.list_hints(request))
    }

    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        let device = self.device(device)?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let run = device.hints.range((from, Bound::Unbounded)).take(limit);
        Ok(run.map(|(_, hint)| hint.clone()).collect())
    }

    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()> {
        let mut device = self.device(device)?;
        if device.hints.get(key).is_some_and(|hint| hint.entry.order <= order) {
            device.hints.remove(key);
        }
        Ok(())
    }

    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let device = self.device(device)?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let run = device.registers.range((from, Bound::Unbounded)).take(limit);
        let view = |cell: &Cell| cell.view(Want::EntryAndInline, device.floor);
        Ok(run.map(|(key, cell)| (key.clone(), view(cell))).collect())
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        Ok(self.device(device)?.fences.values().copied().collect())
    }

    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()> {
        let mut device = self.device(device)?;
        device.floor = device.floor.max(floor);
        Ok(())
    }

    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()> {
        self.device(device)?.mute = !voting;
        Ok(())
    }

    async fn sums(&self, device: DeviceId, spans: &[Span]) -> Result<Vec<Sum>> {
        let device = self.device(device)?;
        Ok(spans.iter().map(|span| device.sum(*span)).collect())
    }

    async fn bins(
        &self,
        device: DeviceId,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        let after = after.map(|bin| (bin.placement(), bin));
        let bins = self.device(device)?.bins(span).into_iter();
        let above = bins.filter(|(at, _)| after.is_none_or(|after| *at > after));
        Ok(above.take(limit).map(|((_, bin), sum)| (bin, sum)).collect())
    }

    async fn walk(
        &self,
        device: DeviceId,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        Ok(self.device(device)?.walk(walk, after, limit))
    }

    async fn holdings(&self, device: DeviceId, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        let device = self.device(device)?;
        Ok(keys.iter().map(|key| device.holding(key)).collect())
    }

    async fn mark_collectable(
        &self,
        device: DeviceId,
        tombstones: &[(RegisterKey, Stamp)],
    ) -> Result<()> {
        let mut device = self.device(device)?;
        for (key, order) in tombstones {
            device.mark_collectable(key, *order);
        }
        Ok(())
    }

    async fn drop_registers(&self, device: DeviceId, drops: &[RegisterDrop]) -> Result<()> {
        let mut device = self.device(device)?;
        for drop in drops {
            device.drop_register(drop);
        }
        Ok(())
    }

    async fn audit_registers(
        &self,
        device: DeviceId,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        let items = match after {
            Some(_) => 0,
            None => self.device(device)?.registers.len() as u64,
        };
        Ok(AuditResult { items, ..AuditResult::default() })
    }

    async fn raise_term(&self, device: DeviceId, term: Term) -> Result<()> {
        let mut device = self.device(device)?;
        device.term = device.term.max(term);
        Ok(())
    }

    async fn set_joined(&self, device: DeviceId, change: u64) -> Result<()> {
        let mut device = self.device(device)?;
        device.joined = device.joined.max(change);
        Ok(())
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let status = |(id, device): (&DeviceId, &Mutex<MemoryDevice>)| {
            let device = device.lock();
            let extent_bytes = device.extents.values().map(|(_, bytes)| bytes.len() as u64).sum();
            DeviceStatus {
                device: *id,
                identity: DeviceIdentity([0; 16]),
                voting: !device.mute,
                path: PathBuf::from("memory"),
                health: match (device.offline, device.full) {
                    (true, _) => DeviceHealth::Offline("a test took it away".into()),
                    (false, true) => DeviceHealth::Full,
                    (false, false) => DeviceHealth::Ready,
                },
                total_bytes: u64::MAX,
                free_bytes: u64::MAX - extent_bytes,
                extent_bytes,
                extents: device.extents.len() as u64,
                quarantined: 0,
                hints: device.hints.len() as u64,
                term: device.term,
                joined: device.joined,
            }
        };
        Ok(self.devices.iter().map(status).collect())
    }
}

fn missing(id: ExtentId) -> Error {
    Error::not_found(format!("extent {id} is not here"))
}

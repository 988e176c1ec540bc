//! Devices that are maps: the reference for what a backend does.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::Mutex;

use crate::backend::{
    Backend, BucketFence, ByteStream, DeviceHealth, DeviceStatus, EntryWrite, ExtentStat, Garbage,
    GarbageId, Hint, ListReply, ListRequest, ListStart, NewExtent, PromiseReply, RegisterView,
    Want, WriteReply,
};
use crate::clock::Clock;
use crate::entry::{Body, Entry};
use crate::error::{Error, Result};
use crate::extent::{ExtentLocation, ExtentRecord, ExtentRef};
use crate::id::{BucketId, DeviceId, DeviceIdentity, ExtentId};
use crate::key::RegisterKey;
use crate::limits;
use crate::register::{Register, Verdict, WriteMode};
use crate::stamp::Stamp;

/// Pieces in which a stored extent is read back, so that streams of several items are met.
const READ_BYTES: usize = 1024 * 1024;

/// A node whose devices are maps in memory.
#[derive(Debug)]
pub struct MemoryBackend {
    clock: Arc<dyn Clock>,
    devices: BTreeMap<DeviceId, Mutex<Device>>,
}

#[derive(Debug, Default)]
struct Device {
    full: bool,
    offline: bool,
    /// Stores, and has no say.
    mute: bool,
    floor: Stamp,
    registers: BTreeMap<RegisterKey, Cell>,
    hints: BTreeMap<RegisterKey, Hint>,
    fences: HashMap<BucketId, BucketFence>,
    extents: BTreeMap<ExtentId, (ExtentRecord, Bytes)>,
    garbage: BTreeMap<u64, (u64, RegisterKey, Body)>,
    garbage_made: u64,
}

#[derive(Debug, Default)]
struct Cell {
    promise: Stamp,
    entry: Option<Entry>,
    inline: Option<Bytes>,
}

impl MemoryBackend {
    /// A node with these devices, all empty.
    pub fn new(clock: Arc<dyn Clock>, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        let devices = devices.into_iter().map(|id| (id, Mutex::default())).collect();
        Self { clock, devices }
    }

    /// Lets a device refuse new extents, or take them again.
    pub fn set_full(&self, device: DeviceId, full: bool) {
        self.known(device).lock().full = full;
    }

    /// Takes a device away, or brings it back with all that it had.
    pub fn set_offline(&self, device: DeviceId, offline: bool) {
        self.known(device).lock().offline = offline;
    }

    /// The ids of the extents on a device.
    pub fn extents(&self, device: DeviceId) -> Vec<ExtentId> {
        self.known(device).lock().extents.keys().copied().collect()
    }

    /// The ids of the extents on all devices that no garbage names.
    pub fn extents_in_use(&self) -> Vec<ExtentId> {
        let mut garbage = Vec::new();
        let mut ids = Vec::new();
        for device in self.devices.values() {
            let device = device.lock();
            garbage.extend(device.garbage.values().map(|(_, _, body)| body.clone()));
            ids.extend(device.extents.keys().copied());
        }
        ids.retain(|id| !garbage.iter().any(|body| names(body, *id)));
        ids
    }

    /// Flips a bit of a stored extent; every later read of the extent finds it corrupt.
    pub fn corrupt(&self, device: DeviceId, id: ExtentId) {
        let mut device = self.known(device).lock();
        if let Some((_, bytes)) = device.extents.get_mut(&id) {
            let mut changed = BytesMut::from(&bytes[..]);
            changed[0] ^= 1;
            *bytes = changed.freeze();
        }
    }

    /// Registers of a device, tombstones included.
    pub fn registers(&self, device: DeviceId) -> Vec<(RegisterKey, Entry)> {
        let device = self.known(device).lock();
        let held = device.registers.iter();
        held.filter_map(|(key, cell)| Some((key.clone(), cell.entry.clone()?))).collect()
    }

    fn known(&self, device: DeviceId) -> &Mutex<Device> {
        self.devices.get(&device).expect("tests name devices that they made")
    }

    fn voting(&self, device: DeviceId) -> Result<parking_lot::MutexGuard<'_, Device>> {
        let found = self.device(device)?;
        if found.mute {
            return Err(Error::unavailable(format!("device {device} has no vote yet")));
        }
        Ok(found)
    }

    fn device(&self, device: DeviceId) -> Result<parking_lot::MutexGuard<'_, Device>> {
        let found = self.devices.get(&device).map(Mutex::lock);
        match found {
            Some(device) if !device.offline => Ok(device),
            Some(_) => Err(Error::unavailable(format!("device {device} is offline"))),
            None => Err(Error::not_found(format!("no device {device} is here"))),
        }
    }
}

fn names(body: &Body, id: ExtentId) -> bool {
    match body {
        Body::Empty | Body::Inline { .. } => false,
        Body::Extents(manifest) => manifest.extents.iter().any(|extent| extent.id == id),
        Body::Spilled { manifest, .. } => manifest.iter().any(|extent| extent.id == id),
    }
}

impl Cell {
    /// As the device sees it, whose floor stands under every promise.
    fn register(&self, floor: Stamp) -> Register {
        let held = self.entry.as_ref().map(|entry| (entry.order, entry.write_id));
        Register { promise: self.promise.max(floor), held }
    }

    fn view(&self, want: Want, floor: Stamp) -> RegisterView {
        RegisterView {
            promise: self.promise.max(floor),
            entry: self.entry.clone(),
            inline: self.inline.clone().filter(|_| want == Want::EntryAndInline),
        }
    }
}

impl Device {
    /// Why a first-hand write is refused before anything is looked at.
    fn objection(&self, write: &EntryWrite, held: Stamp, now_ms: u64) -> Option<WriteReply> {
        if !write.mode.is_first_hand() {
            return None;
        }
        let fence = self.fences.get(&write.key.bucket);
        if fence.is_some_and(|fence| !fence.open || write.generation < fence.generation) {
            return Some(WriteReply::Fenced);
        }
        let order_ms = write.entry.order.time_ms();
        let ahead = order_ms > now_ms.max(held.time_ms()) + limits::CLOCK_SKEW_MS_MAX;
        let behind =
            write.mode == WriteMode::Fresh && order_ms + limits::FIRST_HAND_AGE_MS_MAX < now_ms;
        (ahead || behind || now_ms > write.commit_by_ms).then_some(WriteReply::OutOfTime)
    }

    fn write(&mut self, write: EntryWrite, now_ms: u64) -> WriteReply {
        let floor = self.floor;
        let held = self.registers.get(&write.key).map_or(floor, |c| c.register(floor).floor());
        if let Some(objection) = self.objection(&write, held, now_ms) {
            return objection;
        }
        let stored = if self.mute { WriteReply::Unvoted } else { WriteReply::Stored };
        let cell = self.registers.entry(write.key.clone()).or_default();
        let mut register = cell.register(floor);
        match register.write(write.entry.order, write.entry.write_id, write.mode) {
            Verdict::Held => stored,
            Verdict::Superseded => WriteReply::Superseded,
            Verdict::Behind(floor) => WriteReply::Behind(floor),
            Verdict::Store => {
                let same = cell.entry.as_ref().is_some_and(|e| e.write_id == write.entry.write_id);
                let before = cell.entry.replace(write.entry);
                cell.inline = write.inline;
                let body = before.as_ref().and_then(|entry| entry.value.body());
                self.discard(write.key, body.filter(|_| !same && !write.keep_body), now_ms);
                stored
            }
        }
    }

    fn keep_hint(&mut self, write: EntryWrite, now_ms: u64) -> WriteReply {
        let kept = self.hints.get(&write.key).map_or(Stamp::ZERO, |hint| hint.entry.order);
        if let Some(objection) = self.objection(&write, kept, now_ms) {
            return objection;
        }
        let EntryWrite { key, entry, inline, keep_body, .. } = write;
        if kept > entry.order {
            return WriteReply::Superseded;
        }
        self.hints.insert(key.clone(), Hint { key, entry, inline, keep_body, since_ms: now_ms });
        WriteReply::Stored
    }

    fn discard(&mut self, key: RegisterKey, body: Option<&Body>, now_ms: u64) {
        if let Some(body) = body.filter(|body| body.has_extents()) {
            self.garbage_made += 1;
            self.garbage.insert(self.garbage_made, (now_ms, key, body.clone()));
        }
    }

    fn list(&self, request: &ListRequest) -> ListReply {
        let entry = |cell: &Cell| cell.entry.clone();
        list(&self.registers, entry, request)
    }

    fn list_hints(&self, request: &ListRequest) -> ListReply {
        list(&self.hints, |hint| Some(hint.entry.clone()), request)
    }
}

/// A page of what `held` has in the shards that are asked for.
fn list<T>(
    held: &BTreeMap<RegisterKey, T>,
    entry: impl Fn(&T) -> Option<Entry>,
    request: &ListRequest,
) -> ListReply {
    let mut entries = Vec::new();
    for shard in &request.shards {
        let from = match &request.start {
            ListStart::First => Bound::Included(request.prefix.clone()),
            ListStart::At(name) => Bound::Included(name.max(&request.prefix).clone()),
            ListStart::After(name) if *name < request.prefix => {
                Bound::Included(request.prefix.clone())
            }
            ListStart::After(name) => Bound::Excluded(name.clone()),
        };
        let at = |name: Bytes| RegisterKey {
            bucket: request.bucket,
            shard: *shard,
            kind: request.kind,
            name,
        };
        let run = held.range((from.map(at), Bound::Unbounded));
        let of_kind = run.take_while(|(key, _)| {
            (key.bucket, key.shard, key.kind) == (request.bucket, *shard, request.kind)
                && key.name.starts_with(&request.prefix)
        });
        entries.extend(of_kind.filter_map(|(key, cell)| Some((key.name.clone(), entry(cell)?))));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(delimiter) = &request.fold {
        fold(&mut entries, &request.prefix, delimiter);
    }
    let truncated = entries.len() > request.limit;
    entries.truncate(request.limit);
    ListReply { entries, truncated }
}

/// Drops the names that share a folded prefix with a live name before them.
fn fold(entries: &mut Vec<(Bytes, Entry)>, prefix: &[u8], delimiter: &[u8]) {
    let mut folded: Option<Bytes> = None;
    entries.retain(|(name, entry)| {
        if folded.as_ref().is_some_and(|folded| name.starts_with(folded)) {
            return false;
        }
        if !entry.value.is_tombstone() {
            let rest = &name[prefix.len()..];
            let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
            folded = found.map(|at| name.slice(..prefix.len() + at + delimiter.len()));
        }
        true
    });
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn read(&self, device: DeviceId, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        let device = self.voting(device)?;
        let floor = device.floor;
        Ok(device.registers.get(key).map(|cell| cell.view(want, floor)).unwrap_or_default())
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let now_ms = self.clock.now_ms();
        Ok(self.device(device)?.write(write, now_ms))
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
    ) -> Result<PromiseReply> {
        let mut device = self.voting(device)?;
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
        Ok(self.voting(device)?.list(request))
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
        device.fences.remove(&bucket);
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
        let birth_ms = self.clock.now_ms();
        let record = ExtentRecord { extent: reference, owner: extent.owner, birth_ms };
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
        for id in ids {
            device.extents.remove(id);
        }
        Ok(())
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

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let status = |(id, device): (&DeviceId, &Mutex<Device>)| {
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
            }
        };
        Ok(self.devices.iter().map(status).collect())
    }
}

fn hint_view(hint: &Hint, want: Want) -> RegisterView {
    let inline = hint.inline.clone().filter(|_| want == Want::EntryAndInline);
    RegisterView { promise: Stamp::ZERO, entry: Some(hint.entry.clone()), inline }
}

fn missing(id: ExtentId) -> Error {
    Error::not_found(format!("extent {id} is not here"))
}

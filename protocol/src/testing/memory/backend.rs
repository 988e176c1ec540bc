//! The backend trait on maps.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::BytesMut;
use futures::StreamExt;

use super::MemoryBackend;
use super::device::hint_arrivals;
use crate::backend::{
    Backend, BucketFence, ByteStream, Call, DeviceStatus, NewExtent, QuarantinePage, Reply,
};
use crate::error::{Error, Result};
use crate::extent::{ExtentRecord, ExtentRef};
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::limits;

/// Chunk size of reads, so that tests meet streams of several chunks.
const READ_BYTES: usize = 1024 * 1024;

/// Returns true for calls that a device without votes refuses.
fn needs_votes(call: &Call<'_>) -> bool {
    matches!(
        call,
        Call::Read { .. }
            | Call::Promise { .. }
            | Call::List(_)
            | Call::ListRows { .. }
            | Call::Usage { .. }
    )
}

fn fences_of(fences: &BTreeMap<BucketId, BucketFence>, buckets: &[BucketId]) -> Vec<BucketFence> {
    buckets.iter().filter_map(|bucket| fences.get(bucket).copied()).collect()
}

#[expect(clippy::unit_arg, reason = "a call without a result has the reply of `()`")]
#[async_trait]
impl Backend for MemoryBackend {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        if let Call::Claims(request) = &call {
            return Ok(self.claims(request).into());
        }
        let now_ms = self.clock.now_ms();
        let mut device =
            if needs_votes(&call) { self.voting(device)? } else { self.device(device)? };
        Ok(match call {
            Call::Read { key, want, term } => device.read(&key, want, term)?.into(),
            Call::Write(write) => device.write(write, now_ms)?.into(),
            Call::Promise { key, ballot, term } => device.promise(&key, ballot, term)?.into(),
            Call::List(request) => device.list(&request)?.into(),
            Call::ListRows { request, rows } => device.list_rows(&request, rows)?.into(),
            Call::Fence(fence) => device.fence(fence).into(),
            Call::PurgeBucket(bucket) => device.purge(bucket, now_ms)?.into(),
            Call::StatExtent(id) => device.stat(id)?.into(),
            Call::DeleteExtents(ids) => device.delete_extents(&ids, now_ms).into(),
            Call::ListExtents { after, limit } => device.list_extents(after, limit).into(),
            Call::Garbage { before_ms, limit } => device.garbage(before_ms, limit).into(),
            Call::ForgetGarbage(garbage) => device.forget_garbage(&garbage)?.into(),
            Call::KeepHint(write) => device.keep_hint(write, now_ms)?.into(),
            Call::ReadHint { key, want } => device.read_hint(&key, want)?.into(),
            Call::ListHints(request) => device.list_hints(&request)?.into(),
            Call::Hints { after, limit } => device.hints(after.as_deref(), limit)?.into(),
            Call::HintArrivals { after, limit } => hint_arrivals(&device, after, limit)?.into(),
            Call::ForgetHint { key, order } => device.forget_hint(&key, order).into(),
            Call::Registers { after, limit } => device.registers(after.as_deref(), limit).into(),
            Call::Fences => device.fences_after(None, usize::MAX).into(),
            Call::FencesAfter { after, limit } => device.fences_after(after, limit).into(),
            Call::FencesOf(buckets) => fences_of(&device.fences, &buckets).into(),
            Call::ReleaseExtents(ids) => device.release_extents(&ids).into(),
            Call::Presence(ids) => device.presence(&ids).into(),
            Call::AuditExtents { after, bytes_max } => {
                device.audit_extents(after, bytes_max).into()
            }
            Call::Sums(spans) => device.sums(&spans).into(),
            Call::Bins { span, after, limit } => device.bins(span, after, limit).into(),
            Call::Walk { walk, after, limit } => device.walk(&walk, after.as_deref(), limit).into(),
            Call::Holdings(keys) => device.holdings(&keys).into(),
            Call::MarkCollectable(tombstones) => device.mark_collectable(&tombstones).into(),
            Call::DropRegisters(drops) => device.drop_registers(&drops).into(),
            Call::AuditRegisters(after) => device.audit_registers(after).into(),
            Call::Claims(_) => unreachable!("claims name their devices themselves"),
            Call::SeekExtents(ids) => device.seek_extents(&ids).into(),
            Call::GarbageAfter { after, before_ms, limit } => {
                device.garbage_after(after.as_ref(), before_ms, limit)?.into()
            }
            Call::Aged { walk, after, limit } => device.aged(&walk, after.as_deref(), limit).into(),
            Call::ExtentSums { policy, spans } => device.extent_sums(policy, &spans).into(),
            call @ (Call::RaiseFloor(_)
            | Call::SetVoting(_)
            | Call::RaiseTerm(_)
            | Call::SetJoined(_)
            | Call::RaiseFloorOf { .. }
            | Call::SetVotingOf { .. }
            | Call::SetJoinedOf { .. }
            | Call::SetFencedOf(_)
            | Call::ReleaseCopies { .. }
            | Call::DropStrays { .. }
            | Call::DeleteUnneeded { .. }
            | Call::PresenceBy { .. }) => {
                device.change_state(call, self.rings.as_deref(), now_ms)?
            }
            // Nothing contradicts itself in memory.
            Call::Quarantine { .. } => QuarantinePage::default().into(),
            kept @ (Call::Usage { .. } | Call::OldRegisters { .. } | Call::HeldBuckets { .. }) => {
                device.kept_rows(kept)?
            }
        })
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
        if let Some(hashes) = &extent.hashes {
            let block = usize::try_from(limits::BLOCK_BYTES).expect("64 KiB fits anywhere");
            let crcs = bytes.chunks(block).map(crc_fast::crc32_iscsi);
            hashes.verify(&crcs.collect::<Vec<_>>())?;
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
        let mut rest = self.device(device)?.bytes_of(id, &range)?;
        let pieces = std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(READ_BYTES))))
        });
        Ok(futures::stream::iter(pieces).boxed())
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        Ok(self.devices.iter().map(|(id, device)| device.lock().status(*id)).collect())
    }
}

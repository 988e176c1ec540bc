//! Calls about the extents of a device, and its status.

use std::ops::{Bound, Range};
use std::path::PathBuf;

use bytes::Bytes;

use super::device::MemoryDevice;
use crate::backend::{AuditResult, DeviceHealth, DeviceStatus, ExtentStat, Presence, Sought};
use crate::error::{Error, Result};
use crate::extent::{ExtentLocation, ExtentRecord};
use crate::extent_sums::{ExtentSums, PolicySums};
use crate::id::{DeviceId, DeviceIdentity, ExtentId, PolicyId};
use crate::tree::Span;

impl MemoryDevice {
    /// Returns the verified bytes of an extent in `range`.
    pub(super) fn bytes_of(&self, id: ExtentId, range: &Range<u64>) -> Result<Bytes> {
        let (record, bytes) = self.extent(id)?;
        if *blake3::hash(bytes).as_bytes() != record.extent.blake3 {
            return Err(Error::corrupt(format!("extent {id} is not what was written")));
        }
        if range.is_empty() || range.end > bytes.len() as u64 {
            return Err(Error::invalid(format!("extent {id} has no bytes {range:?}")));
        }
        let index = |at: u64| usize::try_from(at).expect("extents fit into memory");
        Ok(bytes.slice(index(range.start)..index(range.end)))
    }

    pub(super) fn stat(&self, id: ExtentId) -> Result<ExtentStat> {
        let (record, bytes) = self.extent(id)?;
        let path = PathBuf::from(format!("memory/{id}"));
        let location = ExtentLocation { path, offset: 0, length: bytes.len() as u64 };
        Ok(ExtentStat { record: record.clone(), location })
    }

    fn extent(&self, id: ExtentId) -> Result<&(ExtentRecord, Bytes)> {
        let held = self.extents.get(&id);
        held.ok_or_else(|| Error::not_found(format!("extent {id} is not here")))
    }

    pub(super) fn delete_extents(&mut self, ids: &[ExtentId], now_ms: u64) {
        self.release_extents(ids);
        self.deleted.extend(ids.iter().map(|id| (*id, now_ms)));
    }

    pub(super) fn release_extents(&mut self, ids: &[ExtentId]) {
        for id in ids {
            self.extents.remove(id);
        }
    }

    pub(super) fn presence(&self, ids: &[ExtentId]) -> Vec<Presence> {
        let presence = |id| match (self.extents.contains_key(id), self.deleted.contains_key(id)) {
            (true, _) => Presence::Here,
            (false, true) => Presence::Deleted,
            (false, false) => Presence::Missing,
        };
        ids.iter().map(presence).collect()
    }

    pub(super) fn seek_extents(&self, ids: &[ExtentId]) -> Vec<Sought> {
        let sought = |id| match self.extents.get(id) {
            Some((record, _)) => Sought::Here(Box::new(record.clone())),
            None if self.deleted.contains_key(id) => Sought::Deleted,
            None => Sought::Missing,
        };
        ids.iter().map(sought).collect()
    }

    pub(super) fn audit_extents(
        &mut self,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> AuditResult<ExtentId> {
        let (mut audited, mut last) = (AuditResult::default(), None);
        for (id, (record, bytes)) in self.extents.range(above(after)) {
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
        self.release_extents(&audited.corrupt);
        audited
    }

    pub(super) fn list_extents(&self, after: Option<ExtentId>, limit: usize) -> Vec<ExtentRecord> {
        let run = self.extents.range(above(after)).take(limit);
        run.map(|(_, (record, _))| record.clone()).collect()
    }

    pub(super) fn extent_sums(&self, policy: Option<PolicyId>, spans: &[Span]) -> Vec<PolicySums> {
        let mut sums = ExtentSums::default();
        for (id, (record, _)) in &self.extents {
            sums.add(*id, record.layout);
        }
        sums.within(policy, spans)
    }

    /// Returns the identity of the device.
    pub(super) fn identity(&self) -> DeviceIdentity {
        self.identity.unwrap_or(DeviceIdentity([0; 16]))
    }

    pub(super) fn status(&self, id: DeviceId) -> DeviceStatus {
        let extent_bytes = self.extents.values().map(|(_, bytes)| bytes.len() as u64).sum();
        DeviceStatus {
            device: id,
            identity: self.identity(),
            voting: !self.mute,
            path: PathBuf::from("memory"),
            health: match (self.offline, self.full) {
                (true, _) => DeviceHealth::Offline("a test took it away".into()),
                (false, true) => DeviceHealth::Full,
                (false, false) => DeviceHealth::Ready,
            },
            total_bytes: u64::MAX,
            free_bytes: u64::MAX - extent_bytes,
            extent_bytes,
            extents: self.extents.len() as u64,
            quarantined: 0,
            hints: self.hints.len() as u64,
            term: self.term,
            joined: self.joined,
        }
    }
}

/// Range of the ids above `after`.
fn above(after: Option<ExtentId>) -> (Bound<ExtentId>, Bound<ExtentId>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

//! Reclaim: deletes the extents of superseded entries.
//!
//! Readers of the old entry get a grace time to finish. Then, for each record of garbage, with a
//! possible crash at any point:
//!
//! 1. read the manifest if it is spilled: an unreadable manifest keeps its extents;
//! 2. find the owner of the extents, and keep extents that any entry or hint still needs. A primary
//!    that missed the superseding entry still names them. So nothing is deleted before all
//!    primaries have the new entry and agree;
//! 3. delete the extents of data, then those of the manifest, on all devices that may have a copy
//!    or a fragment;
//! 4. forget the record.
//!
//! A manifest that no device has was deleted by step 3 before a crash. The record is then
//! forgotten; if extents remain after all, the sweep finds them.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::backend::{Garbage, GarbageId, Presence};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{BackendExt, Clock, DeviceId, ErrorKind, ExtentId, PolicyId, Result};
use martlet_topology::Topology;

use crate::cluster::{DeviceCursor, DeviceScope, StepTopology, in_time};
use crate::coded::stored_ids;
use crate::manifest::{BodyExtents, PolicyExtents};
use crate::needed_extents::{ExtentClaim, NeedCheck};
use crate::worker::{StepProgress, Worker};

/// Records processed by one step.
const BATCH: usize = 64;
/// Maximum number of skipped records on a device: with a batch more they still fit into a page.
const KEPT_MAX: usize = 3072;
/// Extents and fragments deleted by one call to a device.
const DELETE_AT_ONCE: usize = 10_000;

/// Options of reclaim.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimOptions {
    /// Milliseconds that readers of the old entry have to finish.
    pub grace_ms: u64,
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        Self { grace_ms: 5 * 60 * 1000 }
    }
}

/// The worker.
pub struct Reclaim {
    topology: Topology,
    clock: Arc<dyn Clock>,
    options: ReclaimOptions,
    scope: DeviceScope,
    /// Device whose garbage is being processed.
    rounds: DeviceCursor,
    /// Records of this device that this pass could not process.
    kept: HashSet<GarbageId>,
    /// Oldest waiting record, and the time at which it was first seen.
    oldest: Option<(GarbageId, u64)>,
}

/// Outcome of one record.
enum RecordOutcome {
    Done { freed: u64, bytes: u64 },
    Kept,
}

impl Reclaim {
    /// Creates a worker over all devices of the index ring.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        options: ReclaimOptions,
    ) -> Self {
        Self {
            topology: topology.into(),
            clock,
            options,
            scope: DeviceScope::All,
            rounds: DeviceCursor::default(),
            kept: HashSet::new(),
            oldest: None,
        }
    }

    /// Limits the worker to the garbage of devices in `scope`.
    #[must_use]
    pub fn limited_to(self, scope: DeviceScope) -> Self {
        Self { scope, ..self }
    }

    /// Returns the next records of a device, without skipped ones.
    async fn due(&self, cluster: &StepTopology, device: DeviceId) -> Result<Vec<Garbage>> {
        let before_ms = self.clock.now_ms().saturating_sub(self.options.grace_ms);
        let limit = BATCH + self.kept.len();
        let mut due = in_time(cluster.node(device)?.garbage(device, before_ms, limit)).await?;
        due.retain(|garbage| !self.kept.contains(&garbage.id));
        Ok(due)
    }

    /// Returns the waiting time of the oldest record in milliseconds, as far as this process has
    /// seen.
    fn oldest_age_ms(&mut self, oldest: Option<&Garbage>) -> u64 {
        let now = self.clock.now_ms();
        let Some(oldest) = oldest else {
            self.oldest = None;
            return 0;
        };
        let since = match &self.oldest {
            Some((id, since)) if *id == oldest.id => *since,
            _ => now,
        };
        self.oldest = Some((oldest.id.clone(), since));
        now.saturating_sub(since) + self.options.grace_ms
    }

    /// Advances to the next device; returns true if that began a new pass.
    fn advance(&mut self, cluster: &StepTopology) -> bool {
        self.kept.clear();
        self.rounds.advance(&cluster.index_devices_of(&self.scope))
    }
}

/// Deletes the unneeded extents of one record.
async fn reclaim(
    cluster: &StepTopology,
    garbage: &Garbage,
    wanted: &mut NeedCheck<'_>,
) -> Result<RecordOutcome> {
    let body = match BodyExtents::of(cluster, &garbage.body).await {
        Ok(body) => body,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(RecordOutcome::Done { freed: 0, bytes: 0 });
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(key = ?garbage.key, %error, "keeping garbage: could not read its \
                                                        manifest");
            return Ok(RecordOutcome::Kept);
        }
        // No device with the manifest answers: the step fails.
        Err(error) => return Err(error),
    };
    let mut freed = 0;
    let mut bytes = 0;
    for PolicyExtents { policy, extents } in [body.data, body.manifest] {
        let unwanted = unwanted_of(cluster, policy, garbage, &extents, wanted).await?;
        let ids: Vec<ExtentId> = unwanted.iter().map(|extent| extent.id).collect();
        tracing::debug!(key = ?garbage.key, extents = ?ids, "superseded");
        delete_everywhere(cluster, policy, &ids).await?;
        freed += ids.len() as u64;
        bytes += unwanted.iter().map(|extent| u64::from(extent.length)).sum::<u64>();
    }
    Ok(RecordOutcome::Done { freed, bytes })
}

/// Returns those of `extents` that still exist and that no entry needs.
async fn unwanted_of(
    cluster: &StepTopology,
    policy: PolicyId,
    garbage: &Garbage,
    extents: &[ExtentRef],
    wanted: &mut NeedCheck<'_>,
) -> Result<Vec<ExtentRef>> {
    let mut unwanted = Vec::new();
    for extent in extents {
        let Some((key, upload)) = owner(cluster, policy, extent.id).await? else {
            continue;
        };
        let (bucket, shard) = (garbage.key.bucket, garbage.key.shard);
        let claim = ExtentClaim { bucket, shard, key, upload };
        if !wanted.is_needed(&claim, extent.id).await? {
            unwanted.push(*extent);
        }
    }
    Ok(unwanted)
}

/// Returns key and upload of an extent's owner; none if no device has it, or any fragment of it.
async fn owner(
    cluster: &StepTopology,
    policy: PolicyId,
    id: ExtentId,
) -> Result<Option<(String, Option<martlet_protocol::UploadId>)>> {
    let ids = stored_ids(cluster, policy, &[id])?;
    let mut silence = None;
    for device in cluster.holders_of(policy, id)? {
        match record_on(cluster, device, &ids).await {
            Ok(Some(record)) => return Ok(Some((record.owner.key, record.owner.upload))),
            Ok(None) => {}
            Err(error) => silence = Some(error),
        }
    }
    silence.map_or(Ok(None), Err)
}

/// Returns a device's record of the first of these ids that it has.
async fn record_on(
    cluster: &StepTopology,
    device: DeviceId,
    ids: &[ExtentId],
) -> Result<Option<ExtentRecord>> {
    let node = cluster.node(device)?;
    let mut there = ids.to_vec();
    if ids.len() > 1 {
        let presence = in_time(node.presence(device, ids)).await?;
        let those = ids.iter().zip(presence).filter(|(_, presence)| *presence == Presence::Here);
        there = those.map(|(id, _)| *id).collect();
    }
    for id in there {
        match in_time(node.stat_extent(device, id)).await {
            Ok(stat) => return Ok(Some(stat.record)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Deletes on all devices that may have a copy or a fragment: primaries and handoffs. Deleting a
/// missing extent is no error.
async fn delete_everywhere(
    cluster: &StepTopology,
    policy: PolicyId,
    ids: &[ExtentId],
) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids = stored_ids(cluster, policy, ids)?;
    let mut failed = None;
    for device in cluster.data_devices(policy)? {
        for ids in ids.chunks(DELETE_AT_ONCE) {
            if let Err(error) = in_time(cluster.node(device)?.delete_extents(device, ids)).await {
                failed = Some(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

#[async_trait]
impl Worker for Reclaim {
    fn name(&self) -> &'static str {
        "reclaim"
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let Some(device) = self.rounds.at(&cluster.index_devices_of(&self.scope)) else {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        };
        let due = match self.due(&cluster, device).await {
            Ok(due) => due,
            Err(error) => {
                self.advance(&cluster);
                return Err(error);
            }
        };
        let mut progress = StepProgress {
            items: due.len() as u64,
            oldest_age_ms: self.oldest_age_ms(due.first()),
            ..StepProgress::default()
        };
        let mut wanted = NeedCheck::new(&cluster);
        let mut done = Vec::new();
        for garbage in &due {
            let outcome = reclaim(&cluster, garbage, &mut wanted).await.unwrap_or_else(|error| {
                tracing::debug!(key = ?garbage.key, %error, "keeping garbage: could not check its \
                                                             entry");
                RecordOutcome::Kept
            });
            if let RecordOutcome::Done { freed, bytes } = outcome {
                progress.freed += freed;
                progress.freed_bytes += bytes;
                done.push(garbage.id.clone());
            } else {
                progress.kept += 1;
                self.kept.insert(garbage.id.clone());
            }
        }
        if !done.is_empty() {
            in_time(cluster.node(device)?.forget_garbage(device, &done)).await?;
            progress.done = done.len() as u64;
        }
        progress.backlog = self.kept.len() as u64;
        if due.len() < BATCH || self.kept.len() > KEPT_MAX {
            progress.idle = self.advance(&cluster);
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

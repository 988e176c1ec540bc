//! Reclaim: deletes the extents that superseded entries left behind.
//!
//! Readers that were sent away with the old entry get a grace time to finish. Then, for each record
//! of garbage, in an order that a crash can cut anywhere:
//!
//! 1. read the manifest where it is spilled: one that can't be read keeps its extents;
//! 2. ask whose the extents are and whether any entry still wants them: those stay;
//! 3. delete the extents of data, then those of the manifest, wherever a copy may lie;
//! 4. forget the record.
//!
//! A manifest that no device has is one that step 3 deleted before a crash: nothing is left to do but
//! to forget, and should that ever be wrong, the sweep finds what was left behind.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::backend::{Garbage, GarbageId};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Clock, DeviceId, ErrorKind, ExtentId, PolicyId, Result};

use crate::cluster::Cluster;
use crate::manifest::BodyExtents;
use crate::wanted::{Claim, Wanted};
use crate::worker::{Progress, Worker};

/// Records that one step deals with.
const BATCH: usize = 64;
/// Records that can't be dealt with now are passed over, up to so many on a device.
const KEPT_MAX: usize = 4096;

/// How reclaim goes about it.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimOptions {
    /// How long readers of the old entry have to finish, in milliseconds.
    pub grace_ms: u64,
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        Self { grace_ms: 5 * 60 * 1000 }
    }
}

/// The worker.
pub struct Reclaim {
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    options: ReclaimOptions,
    devices: Vec<DeviceId>,
    /// The device whose garbage is being dealt with.
    at: usize,
    /// What this pass could not deal with on that device.
    kept: HashSet<GarbageId>,
    /// The oldest record that waits, and when it was first seen.
    oldest: Option<(GarbageId, u64)>,
}

/// What became of one record.
enum Outcome {
    Done { freed: u64, bytes: u64 },
    Kept,
}

impl Reclaim {
    /// A worker over all devices of the index ring.
    pub fn new(cluster: Cluster, clock: Arc<dyn Clock>, options: ReclaimOptions) -> Self {
        let devices = cluster.index_devices();
        Self { cluster, clock, options, devices, at: 0, kept: HashSet::new(), oldest: None }
    }

    /// The next records of a device, those that were kept left out.
    async fn due(&self, device: DeviceId) -> Result<Vec<Garbage>> {
        let before_ms = self.clock.now_ms().saturating_sub(self.options.grace_ms);
        let limit = BATCH + self.kept.len();
        let mut due = self.cluster.node(device)?.garbage(device, before_ms, limit).await?;
        due.retain(|garbage| !self.kept.contains(&garbage.id));
        Ok(due)
    }

    async fn reclaim(&self, garbage: &Garbage, wanted: &mut Wanted<'_>) -> Result<Outcome> {
        let body = match BodyExtents::of(&self.cluster, &garbage.body).await {
            Ok(body) => body,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Outcome::Done { freed: 0, bytes: 0 });
            }
            Err(error) => {
                tracing::warn!(key = ?garbage.key, %error, "garbage is kept: its manifest can't be read");
                return Ok(Outcome::Kept);
            }
        };
        let Some(policy) = body.policy else {
            return Ok(Outcome::Done { freed: 0, bytes: 0 });
        };
        let mut freed = 0;
        let mut bytes = 0;
        for extents in [&body.data, &body.manifest] {
            let unwanted = self.unwanted(policy, garbage, extents, wanted).await?;
            let ids: Vec<ExtentId> = unwanted.iter().map(|extent| extent.id).collect();
            self.delete_everywhere(policy, &ids).await?;
            freed += ids.len() as u64;
            bytes += unwanted.iter().map(|extent| u64::from(extent.length)).sum::<u64>();
        }
        Ok(Outcome::Done { freed, bytes })
    }

    /// Those of `extents` that are still there and that no entry wants.
    async fn unwanted(
        &self,
        policy: PolicyId,
        garbage: &Garbage,
        extents: &[ExtentRef],
        wanted: &mut Wanted<'_>,
    ) -> Result<Vec<ExtentRef>> {
        let mut unwanted = Vec::new();
        for extent in extents {
            let Some((key, upload)) = self.owner(policy, extent.id).await? else {
                continue;
            };
            let (bucket, shard) = (garbage.key.bucket, garbage.key.shard);
            let claim = Claim { bucket, shard, key, upload };
            if !wanted.extents(&claim).await?.contains(&extent.id) {
                unwanted.push(*extent);
            }
        }
        Ok(unwanted)
    }

    /// Key and upload of an extent's owner; none when no device has it.
    async fn owner(
        &self,
        policy: PolicyId,
        id: ExtentId,
    ) -> Result<Option<(String, Option<martlet_protocol::UploadId>)>> {
        let mut silence = None;
        for device in self.cluster.data_devices(policy)? {
            match self.cluster.node(device)?.stat_extent(device, id).await {
                Ok(stat) => return Ok(Some((stat.record.owner.key, stat.record.owner.upload))),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => silence = Some(error),
            }
        }
        silence.map_or(Ok(None), Err)
    }

    async fn delete_everywhere(&self, policy: PolicyId, ids: &[ExtentId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        for device in self.cluster.data_devices(policy)? {
            if let Err(error) = self.cluster.node(device)?.delete_extents(device, ids).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// How long the oldest record has waited, as far as this process has seen.
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

    /// Goes on to the next device; whether that began a new pass.
    fn advance(&mut self) -> bool {
        self.kept.clear();
        self.at = (self.at + 1) % self.devices.len().max(1);
        self.at == 0
    }
}

#[async_trait]
impl Worker for Reclaim {
    fn name(&self) -> &'static str {
        "reclaim"
    }

    async fn step(&mut self) -> Result<Progress> {
        let device = self.devices[self.at];
        let due = match self.due(device).await {
            Ok(due) => due,
            Err(error) => {
                self.advance();
                return Err(error);
            }
        };
        let mut progress = Progress {
            items: due.len() as u64,
            oldest_age_ms: self.oldest_age_ms(due.first()),
            ..Progress::default()
        };
        let cluster = self.cluster.clone();
        let mut wanted = Wanted::new(&cluster);
        let mut done = Vec::new();
        for garbage in &due {
            let outcome = self.reclaim(garbage, &mut wanted).await.unwrap_or_else(|error| {
                tracing::debug!(key = ?garbage.key, %error, "garbage is kept: nobody can tell");
                Outcome::Kept
            });
            if let Outcome::Done { freed, bytes } = outcome {
                progress.freed += freed;
                progress.freed_bytes += bytes;
                done.push(garbage.id.clone());
            } else {
                progress.kept += 1;
                self.kept.insert(garbage.id.clone());
            }
        }
        if !done.is_empty() {
            self.cluster.node(device)?.forget_garbage(device, &done).await?;
        }
        progress.backlog = self.kept.len() as u64;
        if due.len() < BATCH || self.kept.len() > KEPT_MAX {
            progress.idle = self.advance();
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

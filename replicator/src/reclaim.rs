//! Reclaim: deletes the extents that superseded entries left behind.
//!
//! Readers that were sent away with the old entry get a grace time to finish. Then, for each record
//! of garbage, in an order that a crash can cut anywhere:
//!
//! 1. read the manifest where it is spilled: one that can't be read keeps its extents;
//! 2. ask whose the extents are and whether any entry or hint still wants them: those stay. A primary
//!    that missed the superseding entry still names them, so nothing goes before all primaries know
//!    better, and hold the same;
//! 3. delete the extents of data, then those of the manifest, wherever a copy or a fragment may lie;
//! 4. forget the record.
//!
//! A manifest that no device has is one that step 3 deleted before a crash: nothing is left to do but
//! to forget, and should that ever be wrong, the sweep finds what was left behind.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use martlet_protocol::backend::{Garbage, GarbageId, Presence};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{Clock, DeviceId, ErrorKind, ExtentId, PolicyId, Result};

use crate::cluster::{Cluster, Rounds, Scope, SharedCluster, in_time};
use crate::coded::stored_ids;
use crate::manifest::{BodyExtents, Placed};
use crate::wanted::{Claim, Wanted};
use crate::worker::{Progress, Worker};

/// Records that one step deals with.
const BATCH: usize = 64;
/// Records that can't be dealt with now are passed over, up to so many on a device: with a batch
/// more they still fit into a page.
const KEPT_MAX: usize = 3072;
/// Extents and fragments that a device is told to delete in one call.
const DELETE_AT_ONCE: usize = 10_000;

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
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    options: ReclaimOptions,
    scope: Scope,
    /// The device whose garbage is being dealt with.
    rounds: Rounds,
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
    pub fn new(
        cluster: impl Into<SharedCluster>,
        clock: Arc<dyn Clock>,
        options: ReclaimOptions,
    ) -> Self {
        Self {
            cluster: cluster.into(),
            clock,
            options,
            scope: Scope::All,
            rounds: Rounds::default(),
            kept: HashSet::new(),
            oldest: None,
        }
    }

    /// The same over the garbage of those devices that `scope` looks after.
    #[must_use]
    pub fn looking_after(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// The next records of a device, those that were kept left out.
    async fn due(&self, cluster: &Cluster, device: DeviceId) -> Result<Vec<Garbage>> {
        let before_ms = self.clock.now_ms().saturating_sub(self.options.grace_ms);
        let limit = BATCH + self.kept.len();
        let mut due = in_time(cluster.node(device)?.garbage(device, before_ms, limit)).await?;
        due.retain(|garbage| !self.kept.contains(&garbage.id));
        Ok(due)
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
    fn advance(&mut self, cluster: &Cluster) -> bool {
        self.kept.clear();
        self.rounds.advance(&cluster.index_devices_of(&self.scope))
    }
}

/// Deletes the extents of one record that nobody wants, and says whether that was the end of it.
async fn reclaim(cluster: &Cluster, garbage: &Garbage, wanted: &mut Wanted<'_>) -> Result<Outcome> {
    let body = match BodyExtents::of(cluster, &garbage.body).await {
        Ok(body) => body,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Outcome::Done { freed: 0, bytes: 0 });
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(key = ?garbage.key, %error, "garbage is kept: its manifest can't be read");
            return Ok(Outcome::Kept);
        }
        // Nobody who has it answers: that is told where devices are.
        Err(error) => return Err(error),
    };
    let mut freed = 0;
    let mut bytes = 0;
    for Placed { policy, extents } in [body.data, body.manifest] {
        let unwanted = unwanted_of(cluster, policy, garbage, &extents, wanted).await?;
        let ids: Vec<ExtentId> = unwanted.iter().map(|extent| extent.id).collect();
        tracing::debug!(key = ?garbage.key, extents = ?ids, "superseded");
        delete_everywhere(cluster, policy, &ids).await?;
        freed += ids.len() as u64;
        bytes += unwanted.iter().map(|extent| u64::from(extent.length)).sum::<u64>();
    }
    Ok(Outcome::Done { freed, bytes })
}

/// Those of `extents` that are still there and that no entry wants.
async fn unwanted_of(
    cluster: &Cluster,
    policy: PolicyId,
    garbage: &Garbage,
    extents: &[ExtentRef],
    wanted: &mut Wanted<'_>,
) -> Result<Vec<ExtentRef>> {
    let mut unwanted = Vec::new();
    for extent in extents {
        let Some((key, upload)) = owner(cluster, policy, extent.id).await? else {
            continue;
        };
        let (bucket, shard) = (garbage.key.bucket, garbage.key.shard);
        let claim = Claim { bucket, shard, key, upload };
        if !wanted.wants(&claim, extent.id).await? {
            unwanted.push(*extent);
        }
    }
    Ok(unwanted)
}

/// Key and upload of an extent's owner; none when no device has it, or any fragment of it.
async fn owner(
    cluster: &Cluster,
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

/// What a device says of the first of these that it has.
async fn record_on(
    cluster: &Cluster,
    device: DeviceId,
    ids: &[ExtentId],
) -> Result<Option<ExtentRecord>> {
    let node = cluster.node(device)?;
    let mut there = ids.to_vec();
    if ids.len() > 1 {
        let said = in_time(node.presence(device, ids)).await?;
        let those = ids.iter().zip(said).filter(|(_, said)| *said == Presence::Here);
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

/// Wherever a copy or a fragment may lie: primaries and handoffs. Deleting what is not there is no
/// error.
async fn delete_everywhere(cluster: &Cluster, policy: PolicyId, ids: &[ExtentId]) -> Result<()> {
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

    async fn step(&mut self) -> Result<Progress> {
        let cluster = self.cluster.get();
        let Some(device) = self.rounds.at(&cluster.index_devices_of(&self.scope)) else {
            return Ok(Progress { idle: true, ..Progress::default() });
        };
        let due = match self.due(&cluster, device).await {
            Ok(due) => due,
            Err(error) => {
                self.advance(&cluster);
                return Err(error);
            }
        };
        let mut progress = Progress {
            items: due.len() as u64,
            oldest_age_ms: self.oldest_age_ms(due.first()),
            ..Progress::default()
        };
        let mut wanted = Wanted::new(&cluster);
        let mut done = Vec::new();
        for garbage in &due {
            let outcome = reclaim(&cluster, garbage, &mut wanted).await.unwrap_or_else(|error| {
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

//! Sweep: deletes extents that no entry ever came to own (rule X3).
//!
//! A crash, a disconnected client or a failed node leaves extents whose entry was never written.
//! The sweep walks every extent of every device and queries the index about it. It deletes an
//! extent only if all of these conditions hold:
//!
//! * its commit window is over: no proxy can still write an entry that names it (rule X2);
//! * its bucket exists, or was deleted: a bucket without a register that nothing closed is lost;
//! * all devices that decide about its owner's register have answered, with votes, and agree. None
//!   knows an object, upload, or part of an unfinished upload that names it. No device of the index
//!   ring may have a hint that names it;
//! * this was found twice, a grace time apart: a reader may have received its location just before
//!   the entry was removed.
//!
//! While an operator holds collection (rule X8), nothing is checked or deleted, and all that was found
//! before is forgotten: a bucket may get its register back under the hold, and an extent its entry. A
//! delete that reaches its device too long after the look at the hold is refused there.
//!
//! Any error means keep, and concerns the extents of one question. Extents are asked about in
//! batches that grow with the number of nodes, so a node gets few requests for many extents. A batch
//! has extents of up to twelve devices, which list them at the same time.
//!
//! Positions and suspects are stored as cursors. Their loss costs a new walk and can't delete too
//! much: a suspect is asked about again, whatever the cursor says. Suspects are checked again after
//! the grace time, not in the next pass. A pass rests four times as long as it took, a day at most.
//!
//! * [`buckets`]: the buckets with their shards; [`suspects`]: extents found unneeded once;
//!   [`walks`]: the walks over the devices.

mod buckets;
mod suspects;
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::backend::{OwnerClaim, Sought};
use martlet_protocol::key::shard_of;
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{BackendExt, Clock, DeviceId, ExtentId, Result};
use martlet_topology::Topology;

pub(crate) use self::buckets::{KnownBucket, deleted_of, list_buckets};
use self::buckets::{KnownBuckets, list_known_buckets};
use self::suspects::Suspects;
use self::walks::{Found, Walks};
use crate::cluster::{DeviceScope, StepTopology, in_time};
use crate::cursors::{Cursors, MemoryCursors};
use crate::owners::{OwnerQuestion, Owners};
use crate::rebuild::loss::CollectionHold;
use crate::worker::{StepProgress, Worker};

/// Name under which the position is stored.
const NAME: &str = "sweep";
/// Extents requested at a time: the most that a node returns.
const PAGE: usize = 1024;
/// Extents checked by one step, for each node with entries, and its bounds: some tens of MiB.
const BATCH_A_NODE: usize = 256;
const BATCH_MIN: usize = PAGE;
const BATCH_MAX: usize = 128 * PAGE;
/// Age in milliseconds after which the buckets are listed again. It is far below the commit window:
/// extents of a bucket that is not listed yet are then too young to be checked.
const BUCKETS_AGE_MS: u64 = 60 * 60 * 1000;
/// Rest after a pass, as a multiple of its duration beyond ten minutes, and its maximum.
const REST_TIMES: u64 = 4;
const REST_AFTER_MS: u64 = 10 * 60 * 1000;
const REST_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// Options of the sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions {
    /// Milliseconds between two checks of an unneeded extent.
    pub grace_ms: u64,
    /// All writers of extents born before this have ended, in milliseconds since 1970. This is the
    /// start of the process, if it is the whole cluster; zero if other proxies may write.
    pub writers_gone_before_ms: u64,
}

impl SweepOptions {
    /// Options if other processes may write: an extent stays until its commit window is over.
    pub fn among_others(grace_ms: u64) -> Self {
        Self { grace_ms, writers_gone_before_ms: 0 }
    }

    /// Options if this process is the whole cluster, since it started at `started_ms`.
    pub fn alone(grace_ms: u64, started_ms: u64) -> Self {
        Self { grace_ms, writers_gone_before_ms: started_ms }
    }
}

/// The worker.
pub struct Sweep {
    topology: Topology,
    clock: Arc<dyn Clock>,
    options: SweepOptions,
    scope: DeviceScope,
    owners: Arc<Owners>,
    cursors: Arc<dyn Cursors>,
    walks: Walks,
    /// Buckets with their shards, and the time at which they were listed.
    buckets: Option<(u64, Arc<KnownBuckets>)>,
    suspects: Suspects,
    hold: CollectionHold,
    /// Start of this pass, and the time before which no pass begins.
    began_ms: Option<u64>,
    rest_until_ms: u64,
}

/// Extents of a page, after the index was asked about them.
#[derive(Default)]
struct Verdicts {
    unneeded: Vec<Found>,
    needed: Vec<ExtentId>,
    unknown: u64,
}

impl Sweep {
    /// Creates a worker over all devices that may hold extents.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        options: SweepOptions,
    ) -> Self {
        Self {
            topology: topology.into(),
            clock,
            options,
            scope: DeviceScope::All,
            owners: Arc::default(),
            cursors: Arc::new(MemoryCursors::default()),
            walks: Walks::default(),
            buckets: None,
            suspects: Suspects::default(),
            hold: CollectionHold::default(),
            began_ms: None,
            rest_until_ms: 0,
        }
    }

    /// Limits the worker to devices of `scope`.
    #[must_use]
    pub fn limited_to(self, scope: DeviceScope) -> Self {
        Self { scope, ..self }
    }

    /// Continues at the positions and with the suspects in `cursors`.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        self.walks = Walks::load(&*cursors, NAME);
        self.suspects = Suspects::load(&*cursors);
        self.cursors = cursors;
        self
    }

    /// Shares knowledge about owners with other workers.
    #[must_use]
    pub(crate) fn with_owners(self, owners: Arc<Owners>) -> Self {
        Self { owners, ..self }
    }

    /// Returns true if no entry of an extent can be committed any more.
    fn is_window_over(&self, birth_ms: u64, now_ms: u64) -> bool {
        let window = COMMIT_WINDOW_MS + self.options.grace_ms;
        birth_ms < self.options.writers_gone_before_ms || birth_ms.saturating_add(window) < now_ms
    }

    /// Returns the buckets, as of at most an hour ago.
    async fn buckets(&mut self, cluster: &StepTopology, now_ms: u64) -> Result<Arc<KnownBuckets>> {
        let is_young =
            |at_ms: u64| (at_ms..=at_ms.saturating_add(BUCKETS_AGE_MS)).contains(&now_ms);
        if let Some((at_ms, buckets)) = &self.buckets
            && is_young(*at_ms)
        {
            return Ok(buckets.clone());
        }
        let buckets = list_known_buckets(cluster, &self.owners.sightings, now_ms).await?;
        let buckets = Arc::new(buckets);
        self.buckets = Some((now_ms, buckets.clone()));
        Ok(buckets)
    }

    /// Asks the index about extents whose window is over.
    async fn ask(
        &mut self,
        cluster: &StepTopology,
        found: Vec<Found>,
        now_ms: u64,
    ) -> Result<Verdicts> {
        let buckets = self.buckets(cluster, now_ms).await?;
        let mut verdicts = Verdicts::default();
        let mut unlisted = Vec::new();
        let mut by_claim: BTreeMap<OwnerClaim, (OwnerQuestion, Vec<Found>)> = BTreeMap::new();
        let is_over = |it: &Found| self.is_window_over(it.record.birth_ms, now_ms);
        for one in found.into_iter().filter(is_over) {
            let record = &one.record;
            let owner = &record.owner;
            let known = match buckets.of(owner.bucket, record.birth_ms) {
                Ok(Some(known)) => known,
                Ok(None) => {
                    unlisted.push(one);
                    continue;
                }
                Err(_) => {
                    verdicts.unknown += 1;
                    continue;
                }
            };
            let claim = OwnerClaim {
                bucket: owner.bucket,
                shard: shard_of(owner.key.as_bytes(), known.shards),
                key: owner.key.clone(),
                upload: owner.upload,
            };
            let (question, of) = by_claim.entry(claim.clone()).or_insert_with(|| {
                (OwnerQuestion { claim, ids: BTreeSet::new(), born_ms: 0 }, Vec::new())
            });
            question.ids.insert(record.named());
            question.born_ms = question.born_ms.max(record.birth_ms);
            of.push(one);
        }
        let (questions, found): (Vec<OwnerQuestion>, Vec<Vec<Found>>) =
            by_claim.into_values().unzip();
        self.judge_unlisted(cluster, unlisted, &mut verdicts).await;
        let answers = self.owners.ask(cluster, now_ms, &questions).await;
        for (answer, found) in answers.into_iter().zip(found) {
            for one in found {
                match answer.needs(one.record.named()) {
                    Some(true) => verdicts.needed.push(one.record.extent.id),
                    Some(false) => verdicts.unneeded.push(one),
                    None => verdicts.unknown += 1,
                }
            }
        }
        Ok(verdicts)
    }

    /// Judges extents of buckets that no register names: those of deleted buckets are unneeded. A bucket
    /// that nothing closed has lost its register, and an operator may bring it back.
    async fn judge_unlisted(
        &self,
        cluster: &StepTopology,
        unlisted: Vec<Found>,
        verdicts: &mut Verdicts,
    ) {
        let ids = unlisted.iter().map(|one| one.record.owner.bucket).collect();
        let deleted = deleted_of(cluster, &ids).await.unwrap_or_default();
        for one in unlisted {
            if deleted.contains(&one.record.owner.bucket) {
                verdicts.unneeded.push(one);
            } else {
                verdicts.unknown += 1;
            }
        }
    }

    /// Checks suspects of a device again, a grace time after they were found, and deletes them.
    async fn recheck(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        ids: &[ExtentId],
        now_ms: u64,
    ) -> Result<StepProgress> {
        // Whatever happens, other suspects come first next time.
        self.suspects.postpone(device, ids, now_ms);
        if !cluster.has_extents(device) {
            for id in ids {
                self.suspects.clear(device, *id);
            }
            return Ok(StepProgress::default());
        }
        let node = cluster.node(device)?;
        let sought = match in_time(node.seek_extents(device, ids)).await {
            Ok(sought) => sought,
            Err(error) => {
                // The suspects of a silent device must not stop the sweep of the others. A later walk
                // finds them again.
                if self.suspects.is_full() {
                    self.suspects.clear_device(device);
                }
                return Err(error);
            }
        };
        let mut found = Vec::new();
        for (id, sought) in ids.iter().zip(sought) {
            match sought {
                Sought::Here(record) => found.push(Found { device, record: *record }),
                Sought::Missing | Sought::Deleted => self.suspects.clear(device, *id),
            }
        }
        let verdicts = self.ask(cluster, found, now_ms).await?;
        for id in verdicts.needed {
            self.suspects.clear(device, id);
        }
        let unneeded = verdicts.unneeded.iter().map(|it| it.record.extent);
        let convicted: Vec<ExtentId> = unneeded.clone().map(|extent| extent.id).collect();
        let Some(condition) = self.hold.deletes(cluster, self.clock.now_ms()).await else {
            return Ok(StepProgress { items: ids.len() as u64, ..StepProgress::default() });
        };
        if !convicted.is_empty() {
            let deleted = in_time(node.delete_unneeded(device, &convicted, condition)).await;
            if let Err(error) = deleted {
                // As for a silent device: it may refuse all deletes, as one of an earlier release does.
                if self.suspects.is_full() {
                    self.suspects.clear_device(device);
                }
                return Err(error);
            }
            tracing::info!(%device, extents = convicted.len(), "swept extents without an owner");
        }
        for id in &convicted {
            self.suspects.clear(device, *id);
        }
        let freed = convicted.len() as u64;
        Ok(StepProgress {
            items: ids.len() as u64,
            done: freed,
            freed,
            freed_bytes: unneeded.map(|extent| u64::from(extent.length)).sum(),
            kept: verdicts.unknown,
            ..StepProgress::default()
        })
    }

    /// Walks the next extents of some devices.
    async fn walk(&mut self, cluster: &StepTopology, now_ms: u64) -> Result<StepProgress> {
        let batch = (BATCH_A_NODE * cluster.index_nodes()).clamp(BATCH_MIN, BATCH_MAX);
        let devices = cluster.data_devices_of(&self.scope);
        let listed = self.walks.list(cluster, &devices, batch).await;
        let items = listed.found.len() as u64;
        // A step that listed nothing needs no answers.
        let verdicts = match listed.found {
            found if found.is_empty() => Verdicts::default(),
            found => self.ask(cluster, found, now_ms).await?,
        };
        if self.hold.is_on(cluster, self.clock.now_ms()).await {
            // The hold began during this step: what was found before must not outlast the hold.
            self.suspects.clear_all();
            self.buckets = None;
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        }
        let mut kept = verdicts.unknown;
        for one in verdicts.unneeded {
            kept += u64::from(!self.suspects.add(one.device, one.record.extent.id, now_ms));
        }
        self.walks.advance(listed.places);
        let idle = self.walks.have_ended(&devices);
        if idle {
            self.end_pass(now_ms);
        }
        match listed.error {
            Some(error) if items == 0 => Err(error),
            _ => Ok(StepProgress { items, kept, idle, ..StepProgress::default() }),
        }
    }

    fn end_pass(&mut self, now_ms: u64) {
        self.walks = Walks::default();
        let took_ms = now_ms.saturating_sub(self.began_ms.take().unwrap_or(now_ms));
        let long_ms = took_ms.saturating_sub(REST_AFTER_MS);
        let rest_ms = long_ms.saturating_mul(REST_TIMES).min(REST_MAX_MS);
        self.rest_until_ms = now_ms.saturating_add(rest_ms);
    }

    async fn proceed(&mut self, cluster: &StepTopology, now_ms: u64) -> Result<StepProgress> {
        if self.hold.is_on(cluster, now_ms).await {
            self.suspects.clear_all();
            self.buckets = None;
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        }
        if let Some((device, ids)) = self.suspects.ripe(now_ms, self.options.grace_ms, PAGE) {
            return self.recheck(cluster, device, &ids, now_ms).await;
        }
        let is_resting = self.began_ms.is_none() && now_ms < self.rest_until_ms;
        let is_empty = cluster.data_devices_of(&self.scope).is_empty();
        if is_resting || is_empty || self.suspects.is_full() {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        }
        self.began_ms.get_or_insert(now_ms);
        self.walk(cluster, now_ms).await
    }

    fn save(&mut self) {
        self.walks.save(&*self.cursors, NAME);
        self.suspects.save(&*self.cursors);
    }
}

#[async_trait]
impl Worker for Sweep {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A suspect is checked again after a grace time, so sooner steps have no use.
    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.max(Duration::from_millis(self.options.grace_ms))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        let now_ms = self.clock.now_ms();
        if now_ms < self.options.writers_gone_before_ms {
            // The clock stepped back: new extents would seem older than the process.
            self.options.writers_gone_before_ms = 0;
        }
        let outcome = self.proceed(&cluster, now_ms).await;
        self.save();
        let mut progress = outcome?;
        progress.backlog = self.suspects.len();
        let oldest_ms = self.suspects.oldest_ms();
        progress.oldest_age_ms = oldest_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

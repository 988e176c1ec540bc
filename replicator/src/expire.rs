//! Expire: uploads that have ended or were abandoned (rule M1), and lifecycle rules of buckets.
//!
//! ```text
//! open ──too old──▶ aborted ──▶ its parts go ──▶ … ──no further part can come──▶ it goes
//!                  completed ─▶ its parts go ──▶ … ────────────────────────────▶ it goes
//! ```
//!
//! Each removed item becomes a tombstone, by a ballot that reads the register first. So a client
//! that completes, aborts or reads the upload at this time sees a consistent sequence of states.
//! The tombstones are collected like all others. Nodes turn the extents of parts into garbage.
//! Reclaim checks if they are still needed, and keeps those that a completed object took over.
//!
//! Parts are removed before their upload: without the upload, no worker could detect that they are
//! unneeded. The upload stays as long as a part of it may still be written. Parts that come later,
//! from a device that was out, are orphans.
//!
//! A completion may be decided and never end, because its proxy died and its client never came
//! back. The object layer then continues it: only the object layer can judge the condition of the
//! completion, and so find out if the object was written. Without an object layer the upload stays.
//!
//! * [`buckets`]: the buckets with their rules; [`parts`]: the parts of an upload; [`orphans`]: parts
//!   that came after their upload was removed.
//! * [`objects`]: the walk over the objects of buckets that have rules.

mod buckets;
mod objects;
mod orphans;
mod parts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use martlet_protocol::backend::{ListRequest, ListStart};
use martlet_protocol::entry::{Bucket, Entry, Upload, UploadState, Value};
use martlet_protocol::key::{index_placement, shard_of};
use martlet_protocol::lifecycle::{Day, Lifecycle, ObjectExpiry, Subject, VersionPosition};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::{
    BackendExt, BucketId, Clock, DeviceId, RegisterKey, RegisterKind, Result, Setting, Shard,
    StampSource,
};
use martlet_topology::Topology;

use self::buckets::{buckets, current_bucket};
use self::objects::{Objects, Task};
use self::orphans::{OrphanInputs, OrphanWalk, PartListing};
use self::parts::{EndedParts, written};
use crate::cluster::{DeviceScope, StepTopology, in_time};
use crate::cursors::{Cursors, MemoryCursors};
use crate::identity::{Candidate, replace};
use crate::worker::{StepProgress, Worker};

/// Uploads visited by one step.
const BATCH: usize = 64;
/// Maximum rest between two passes.
const REST_MAX: Duration = Duration::from_mins(10);
/// Days shorter than this are looked at this often; a longer one is looked at once.
const SHORT_DAY_MS: u64 = 60 * 60 * 1000;
const PASSES_A_SHORT_DAY: u64 = 24;

/// Time in milliseconds for which an upload may be completing. Afterwards this worker continues its completion, long
/// before a key without an entry shows nothing any more ([`martlet_proxy::UNDRIVEN_MS_MAX`]).
const COMPLETING_AGE_MS: u64 = 15 * 60 * 1000;

/// Options of the worker.
#[derive(Clone, Copy, Debug)]
pub struct ExpireOptions {
    /// Age in milliseconds after which an open upload is aborted; none: never.
    pub open_age_ms: Option<u64>,
    /// Time in milliseconds after which a completion is continued by this worker; it exceeds the
    /// time that the completing request may take.
    pub completing_age_ms: u64,
    /// Time in milliseconds after its end in which the parts of an upload are left to the proxy
    /// that ended it.
    pub parts_grace_ms: u64,
    /// Time in milliseconds after its end for which an upload is remembered; it exceeds the time
    /// that a part can be in flight.
    pub ended_grace_ms: u64,
    /// Length of a day in rules.
    pub day: Day,
}

impl Default for ExpireOptions {
    fn default() -> Self {
        Self {
            open_age_ms: None,
            completing_age_ms: COMPLETING_AGE_MS,
            parts_grace_ms: FIRST_HAND_AGE_MS_MAX,
            ended_grace_ms: COMMIT_WINDOW_MS + FIRST_HAND_AGE_MS_MAX,
            day: Day::FULL,
        }
    }
}

/// The worker.
pub struct Expire {
    topology: Topology,
    clock: Arc<dyn Clock>,
    scope: DeviceScope,
    options: ExpireOptions,
    stamps: StampSource,
    /// Listings left in this pass; none before a pass.
    lists: Option<VecDeque<UploadListing>>,
    /// Start of the last pass, in milliseconds since 1970.
    began_ms: u64,
    left: u64,
    orphans: OrphanWalk,
    /// Object layer that carries out rules on objects, if this process has one.
    objects: Option<Objects>,
}

/// Work of a pass: uploads, and objects.
type PassWork = (VecDeque<UploadListing>, Vec<Task>);

/// Uploads of one bucket, in the shards whose first primary is one device.
#[derive(Clone, Debug)]
struct UploadListing {
    bucket: BucketId,
    /// Name of the bucket for clients.
    name: Bytes,
    index_shards: u16,
    shards: Vec<Shard>,
    device: DeviceId,
    start: ListStart,
    /// Lifecycle rules of the bucket.
    rules: Arc<Lifecycle>,
}

/// Action on an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadAction {
    Stay,
    Abort,
    Finish,
    FreeParts,
    Forget,
}

impl ExpireOptions {
    /// Returns the interval in milliseconds of walks over the objects of a bucket with rules.
    fn period_ms(&self) -> u64 {
        let is_short = self.day.ms() < SHORT_DAY_MS;
        (self.day.ms() / if is_short { PASSES_A_SHORT_DAY } else { 1 }).max(1000)
    }

    /// Returns true if a rule aborts an open upload by now.
    fn is_due(&self, upload: &Upload, rules: &Lifecycle, now_ms: u64) -> bool {
        let subject = Subject { key: &upload.key, object: None };
        let position = VersionPosition::Upload { initiated_ms: upload.initiated_ms };
        rules.due(&subject, position, self.day).is_some_and(|due| due.at_ms <= now_ms)
    }

    fn action(&self, entry: &Entry, rules: &Lifecycle, now_ms: u64) -> UploadAction {
        let Value::Upload(upload) = &entry.value else { return UploadAction::Stay };
        let is_past = |since_ms: u64, age_ms| since_ms.saturating_add(age_ms) < now_ms;
        match upload.state {
            UploadState::Open => match self.open_age_ms {
                Some(age_ms) if is_past(upload.initiated_ms, age_ms) => UploadAction::Abort,
                _ if self.is_due(upload, rules, now_ms) => UploadAction::Abort,
                _ => UploadAction::Stay,
            },
            UploadState::Completing { .. } => {
                let is_left = is_past(entry.order.time_ms(), self.completing_age_ms);
                if is_left { UploadAction::Finish } else { UploadAction::Stay }
            }
            UploadState::Completed { .. } | UploadState::Aborted => {
                let ended_ms = entry.order.time_ms();
                if is_past(ended_ms, self.ended_grace_ms) {
                    UploadAction::Forget
                } else if is_past(ended_ms, self.parts_grace_ms) {
                    UploadAction::FreeParts
                } else {
                    UploadAction::Stay
                }
            }
        }
    }
}

impl Expire {
    /// Creates a worker over the uploads whose first primary is in `scope`.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        scope: DeviceScope,
        options: ExpireOptions,
    ) -> Self {
        let stamps = StampSource::new(clock.clone());
        let orphans = OrphanWalk::new(Arc::new(MemoryCursors::default()));
        let (topology, lists, began_ms, left, objects) = (topology.into(), None, 0, 0, None);
        Self { topology, clock, scope, options, stamps, lists, began_ms, left, orphans, objects }
    }

    /// Stores the position of the walk over parts in `cursors`, and goes on there.
    #[must_use]
    pub fn with_cursors(self, cursors: Arc<dyn Cursors>) -> Self {
        Self { orphans: OrphanWalk::new(cursors), ..self }
    }

    /// Adds `expiry`, which carries out rules on objects; `cursors` store the position of the walk.
    #[must_use]
    pub fn with_objects(self, expiry: Arc<dyn ObjectExpiry>, cursors: Arc<dyn Cursors>) -> Self {
        Self { objects: Some(Objects::new(expiry, cursors)), ..self }
    }

    /// Returns the work of a pass.
    async fn lists(&self, cluster: &StepTopology) -> Result<PassWork> {
        let mine = cluster.index_devices_of(&self.scope);
        let (mut lists, mut tasks) = (VecDeque::new(), Vec::new());
        for (name, found) in buckets(cluster).await? {
            let (rules, bucket, index_shards) = (rules_of(&found), found.id, found.index_shards);
            let mut by_device: BTreeMap<DeviceId, Vec<Shard>> = BTreeMap::new();
            for shard in (0..index_shards).map(Shard) {
                let holders = cluster.holders(index_placement(bucket, shard));
                if let Some(first) = holders.primaries.first().filter(|id| mine.contains(id)) {
                    by_device.entry(*first).or_default().push(shard);
                }
            }
            if rules.needs_objects() {
                let shards = by_device.values().flatten();
                tasks.extend(shards.map(|shard| Task::new(&name, bucket, *shard)));
            }
            lists.extend(by_device.into_iter().map(|(device, shards)| UploadListing {
                bucket,
                name: name.clone(),
                index_shards,
                shards,
                device,
                start: ListStart::First,
                rules: rules.clone(),
            }));
        }
        Ok((lists, tasks))
    }

    /// Advances an upload; returns true if anything was completed.
    async fn expire(
        &self,
        cluster: &StepTopology,
        listing: &UploadListing,
        at: &RegisterKey,
        entry: &Entry,
    ) -> Result<bool> {
        let action = self.options.action(entry, &listing.rules, self.clock.now_ms());
        match action {
            UploadAction::Stay => Ok(false),
            UploadAction::Finish => self.finish(&listing.name, entry).await,
            UploadAction::Abort => {
                let is_due = self.is_still_due(cluster, listing, entry).await?;
                if is_due { self.abort(cluster, at).await } else { Ok(false) }
            }
            UploadAction::FreeParts | UploadAction::Forget => {
                let Value::Upload(upload) = &entry.value else { return Ok(false) };
                let parts = EndedParts { cluster, stamps: &self.stamps, at, upload: upload.id };
                if action == UploadAction::FreeParts {
                    // A part that this device lacks comes by replication, or goes with the upload.
                    return Ok(parts.free_on(listing.device).await? > 0);
                }
                parts.free_all().await?;
                self.forget(cluster, at).await
            }
        }
    }

    /// Continues a completion that never ended; returns true if that completed it.
    async fn finish(&self, bucket: &Bytes, entry: &Entry) -> Result<bool> {
        let (Some(objects), Value::Upload(upload)) = (&self.objects, &entry.value) else {
            return Ok(false);
        };
        let bucket = String::from_utf8_lossy(bucket);
        objects.expiry().finish_upload(&bucket, &upload.key, upload.id).await
    }

    /// Returns true if the present rules of its bucket abort an upload, or its age alone does. The rules of a pass may
    /// be hours old.
    async fn is_still_due(
        &self,
        cluster: &StepTopology,
        listing: &UploadListing,
        entry: &Entry,
    ) -> Result<bool> {
        let is_due = |rules: &Lifecycle| {
            self.options.action(entry, rules, self.clock.now_ms()) == UploadAction::Abort
        };
        if is_due(&Lifecycle::default()) {
            return Ok(true);
        }
        let found = current_bucket(cluster, &listing.name).await?;
        Ok(found.is_some_and(|it| it.id == listing.bucket && is_due(&rules_of(&it))))
    }

    /// Aborts an open upload. A later pass removes its parts, like those of any ended upload.
    async fn abort(&self, cluster: &StepTopology, at: &RegisterKey) -> Result<bool> {
        let decide = |found: Option<Candidate>| match found?.entry.value {
            Value::Upload(mut upload) if upload.state == UploadState::Open => {
                upload.state = UploadState::Aborted;
                Some(written(Value::Upload(upload)))
            }
            _ => None,
        };
        Ok(replace(cluster, &self.stamps, at, decide).await?.is_some())
    }

    /// Removes an upload, if its state is still due for removal.
    async fn forget(&self, cluster: &StepTopology, at: &RegisterKey) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        let decide = |found: Option<Candidate>| {
            let rules = Lifecycle::default();
            let is_due = self.options.action(&found?.entry, &rules, now_ms) == UploadAction::Forget;
            is_due.then(|| written(Value::Tombstone))
        };
        Ok(replace(cluster, &self.stamps, at, decide).await?.is_some())
    }
}

impl Expire {
    /// Begins a pass over the uploads. If the objects of buckets with rules are due, they follow
    /// after the uploads, and the walk over parts after both.
    async fn begin(&mut self, cluster: &StepTopology) -> Result<()> {
        self.left = 0;
        let (lists, tasks) = self.lists(cluster).await?;
        let (now_ms, period_ms) = (self.clock.now_ms(), self.options.period_ms());
        let parts = |it: &UploadListing| PartListing::new(it.bucket, it.device, it.shards.clone());
        self.orphans.await_turn(lists.iter().map(parts), now_ms);
        (self.lists, self.began_ms) = (Some(lists), now_ms);
        if let Some(objects) = &mut self.objects {
            objects.await_turn(tasks, now_ms, period_ms);
        }
        Ok(())
    }

    /// Returns true between two passes over the uploads. Walks over objects and parts take hours or
    /// days, and a completion that its proxy left must be found within minutes (rule M1).
    fn is_between_passes(&self) -> bool {
        let rest_ms = u64::try_from(REST_MAX.as_millis()).unwrap_or(u64::MAX);
        let is_due = self.began_ms.saturating_add(rest_ms) <= self.clock.now_ms();
        self.lists.is_none() && !is_due
    }

    /// Returns true while parts are walked over, and no pass over the uploads is due.
    fn walks_parts(&self) -> bool {
        self.orphans.is_under_way() && self.is_between_passes()
    }

    /// Returns true while objects are visited, and no pass over the uploads is due.
    fn walks_objects(&self) -> bool {
        self.objects.as_ref().is_some_and(Objects::is_under_way) && self.is_between_passes()
    }

    /// Ends a step over uploads or parts. Objects follow after the uploads.
    fn end_step(&mut self, mut progress: StepProgress) -> StepProgress {
        self.left += progress.kept;
        let is_listed = self.lists.is_none();
        let has_objects = self.objects.as_mut().filter(|_| is_listed).is_some_and(Objects::begin);
        let goes_on = !is_listed || has_objects || self.orphans.is_under_way();
        (progress.backlog, progress.idle) = (self.left, !goes_on);
        progress
    }

    /// Visits some of the objects.
    async fn step_objects(&mut self) -> StepProgress {
        let day = self.options.day;
        let Some(objects) = &mut self.objects else { return StepProgress::default() };
        let mut progress = objects.step(day).await;
        self.left += progress.kept;
        let goes_on = objects.is_under_way() || self.orphans.is_under_way();
        (progress.backlog, progress.idle) = (self.left, !goes_on);
        progress
    }
}

/// Returns the rules of a bucket; invalid rules have no effect.
fn rules_of(bucket: &Bucket) -> Arc<Lifecycle> {
    let rules = bucket.settings.get(Setting::Lifecycle).map(Lifecycle::of).transpose();
    let rules = rules.unwrap_or_else(|error| {
        tracing::warn!(bucket = %bucket.id, %error, "could not apply the rules of a bucket");
        None
    });
    Arc::new(rules.unwrap_or_default())
}

impl Expire {
    /// Processes a page of a listing; returns the rest of the listing.
    async fn resume(
        &self,
        cluster: &StepTopology,
        listing: UploadListing,
        progress: &mut StepProgress,
    ) -> Option<UploadListing> {
        let page = match self.page(cluster, &listing).await {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(device = %listing.device, %error, "could not list a device's \
                                                                   uploads");
                cluster.learn(&error);
                progress.kept += 1;
                return None;
            }
        };
        for (at, entry) in &page {
            progress.items += 1;
            match self.expire(cluster, &listing, at, entry).await {
                Ok(done) => progress.done += u64::from(done),
                Err(error) => {
                    tracing::debug!(?at, %error, "keeping an upload for now");
                    progress.kept += 1;
                }
            }
        }
        let (last, _) = page.into_iter().next_back()?;
        Some(UploadListing { start: ListStart::After(last.name), ..listing })
    }

    /// Returns the next uploads of a listing.
    async fn page(
        &self,
        cluster: &StepTopology,
        listing: &UploadListing,
    ) -> Result<Vec<(RegisterKey, Entry)>> {
        let request = ListRequest {
            bucket: listing.bucket,
            shards: listing.shards.clone(),
            kind: RegisterKind::Upload,
            prefix: Bytes::new(),
            start: listing.start.clone(),
            limit: BATCH,
            fold: None,
            term: cluster.named()?,
        };
        let node = cluster.node(listing.device)?;
        let page = in_time(node.list(listing.device, &request)).await?;
        let uploads = page.entries.into_iter().map(|(name, entry)| {
            // Key of the object, then NUL and the upload's id.
            let object = &name[..name.len().saturating_sub(17)];
            let (bucket, shard) = (listing.bucket, shard_of(object, listing.index_shards));
            (RegisterKey { bucket, shard, kind: RegisterKind::Upload, name }, entry)
        });
        Ok(uploads.collect())
    }
}

#[async_trait]
impl Worker for Expire {
    fn name(&self) -> &'static str {
        "expire"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        let (period_ms, ages) =
            (self.options.period_ms(), [self.options.parts_grace_ms, self.options.ended_grace_ms]);
        let ages = ages.into_iter().chain(self.options.open_age_ms).chain([period_ms]);
        let least = Duration::from_millis(ages.min().unwrap_or(0));
        least.clamp(usual.min(REST_MAX).min(Duration::from_millis(period_ms)), REST_MAX)
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        let (now_ms, period_ms) = (self.clock.now_ms(), self.options.period_ms());
        // The pause spreads the visits of objects, not a pass over the uploads.
        let objects = self.objects.as_ref().filter(|_| self.walks_objects());
        usual.max(objects.map_or(Duration::ZERO, |it| it.pause(now_ms, period_ms)))
    }

    async fn step(&mut self) -> Result<StepProgress> {
        if self.walks_objects() {
            return Ok(self.step_objects().await);
        }
        let cluster = StepTopology::of(&self.topology);
        let mut progress = StepProgress::default();
        if self.walks_parts() {
            let (stamps, age_ms) = (&self.stamps, self.options.ended_grace_ms);
            let with = OrphanInputs { cluster: &cluster, stamps, age_ms };
            self.orphans.step(with, &mut progress).await;
            return Ok(self.end_step(progress));
        }
        if self.lists.is_none()
            && let Err(error) = self.begin(&cluster).await
        {
            tracing::debug!(%error, "keeping uploads and objects: could not list the buckets");
            return Ok(StepProgress { kept: 1, idle: true, ..StepProgress::default() });
        }
        let mut lists = self.lists.take().unwrap_or_default();
        if let Some(listing) = lists.pop_front()
            && let Some(rest) = self.resume(&cluster, listing, &mut progress).await
        {
            lists.push_front(rest);
        }
        self.lists = Some(lists).filter(|lists| !lists.is_empty());
        Ok(self.end_step(progress))
    }
}

#[cfg(test)]
mod tests;

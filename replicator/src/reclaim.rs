//! Reclaim: deletes the extents of superseded entries.
//!
//! Readers of the old entry get a grace time to finish. Then records of garbage are handled a page
//! at a time, with a possible crash at any point:
//!
//! 1. read spilled manifests: an unreadable manifest keeps its extents. The extents of a page, or of
//!    one long object, pass through the next steps in bounded slices, those of manifests last;
//! 2. seek the extents on the devices that should hold them, which also tell their owners;
//! 3. keep extents that any entry or hint still needs. A primary that missed the superseding entry
//!    still names them. So nothing is deleted before all primaries have the new entry and agree;
//! 4. delete extents of data, then those of manifests: one synced batch of deletes for each device.
//!    Each device that should hold an extent gets its delete mark, also where it lacks the extent. A
//!    delete that comes too long after the last look at the hold is refused (rule X8);
//! 5. forget the records.
//!
//! A manifest that no device has was deleted by step 4 before a crash. Its record is then
//! forgotten; if extents remain after all, the sweep finds them. A copy on any other device meets a
//! delete mark when `replicate` returns it to its primaries (rule X4).
//!
//! Records that must wait hide nothing: the worker continues behind them, and meets them again in
//! its next pass. Passes that free nothing are repeated ever more rarely.
//!
//! * [`seek`]: locations and owners of the extents of a page.

mod seek;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::backend::{DeleteCondition, Garbage, GarbageId, OwnerClaim};
use martlet_protocol::entry::Body;
use martlet_protocol::{BackendExt, Clock, DeviceId, Error, ErrorKind, ExtentId, Result};
use martlet_topology::Topology;

use self::seek::{FoundExtent, Located, SoughtExtent, locate};
use crate::cluster::{DeviceCursor, DeviceScope, StepTopology, in_time};
use crate::coded::code_of_policy;
use crate::manifest::BodyExtents;
use crate::owners::{OwnerQuestion, Owners};
use crate::rebuild::loss::CollectionHold;
use crate::worker::{StepProgress, Worker};

/// Records requested at a time: the most that a node returns.
const BATCH: usize = 1024;
/// Extents handled together. On twelve devices, three copies of these are two thousand unlinks for each
/// device.
const EXTENTS_MAX: usize = 8192;
/// Fragments handled together. The records of a page of short objects fit, whatever their code.
const FRAGMENTS_MAX: usize = 32 * 1024;
/// Extents deleted by one call to a device: a disk has to unlink each within the call's timeout.
const DELETE_AT_ONCE: usize = 4096;
/// Time after which a step begins no further page.
const STEP_MAX: Duration = Duration::from_secs(1);
/// Maximum time of yielding to clients before a step: devices must not fill up meanwhile.
const YIELD_MAX: Duration = Duration::from_millis(500);
/// Spilled manifests read concurrently, and devices called concurrently.
const MANIFESTS_AT_ONCE: usize = 16;
const DEVICES_AT_ONCE: usize = 64;
/// Maximum doublings of the pause after passes that freed nothing and kept records.
const DOUBLINGS_MAX: u32 = 5;

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
    owners: Arc<Owners>,
    /// Device of the next step. Devices take turns, so that one with much garbage delays no other.
    rounds: DeviceCursor,
    /// Last record visited in this pass, of each device.
    after: BTreeMap<DeviceId, GarbageId>,
    /// Devices that this pass has visited whole.
    finished: BTreeSet<DeviceId>,
    /// Oldest waiting record of each device, and the time at which it was first seen.
    oldest: BTreeMap<DeviceId, (GarbageId, u64)>,
    pass: PassCounts,
    hold: CollectionHold,
    /// Number of successive passes that kept records and completed none.
    fruitless: u32,
}

/// Records of one pass.
#[derive(Clone, Copy, Debug, Default)]
struct PassCounts {
    kept: u64,
    done: u64,
}

/// Outcome of some records.
#[derive(Default)]
struct Outcome {
    done: Vec<GarbageId>,
    kept: u64,
    freed: u64,
    freed_bytes: u64,
}

/// Records with the extents that they name.
struct NamedExtents {
    /// Extents, with the position of their record.
    extents: Vec<SoughtExtent>,
    /// Positions of records whose extents are unknown.
    unreadable: HashSet<usize>,
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
            owners: Arc::default(),
            rounds: DeviceCursor::default(),
            after: BTreeMap::new(),
            finished: BTreeSet::new(),
            oldest: BTreeMap::new(),
            pass: PassCounts::default(),
            hold: CollectionHold::default(),
            fruitless: 0,
        }
    }

    /// Limits the worker to the garbage of devices in `scope`.
    #[must_use]
    pub fn limited_to(self, scope: DeviceScope) -> Self {
        Self { scope, ..self }
    }

    /// Shares knowledge about owners with other workers.
    #[must_use]
    pub(crate) fn with_owners(self, owners: Arc<Owners>) -> Self {
        Self { owners, ..self }
    }

    /// Records the oldest record of a device.
    fn note_oldest(&mut self, device: DeviceId, oldest: Option<&Garbage>) {
        match oldest {
            None => {
                self.oldest.remove(&device);
            }
            Some(oldest) => {
                let now_ms = self.clock.now_ms();
                let held = self.oldest.entry(device).or_insert_with(|| (oldest.id.clone(), now_ms));
                if held.0 != oldest.id {
                    *held = (oldest.id.clone(), now_ms);
                }
            }
        }
    }

    /// Returns the waiting time of the oldest record in milliseconds, as far as this process has
    /// seen.
    fn oldest_age_ms(&self) -> u64 {
        let oldest = self.oldest.values().map(|(_, since_ms)| *since_ms).min();
        let waited = |since_ms| self.clock.now_ms().saturating_sub(since_ms);
        oldest.map_or(0, |since_ms| waited(since_ms) + self.options.grace_ms)
    }

    /// Ends the visit of a device; returns true if that ended a pass.
    fn finish(&mut self, device: DeviceId, open: &BTreeSet<DeviceId>) -> bool {
        self.after.remove(&device);
        self.finished.insert(device);
        if open.iter().any(|id| !self.finished.contains(id)) {
            return false;
        }
        self.finished.clear();
        let PassCounts { kept, done } = std::mem::take(&mut self.pass);
        self.fruitless =
            if kept > 0 && done == 0 { (self.fruitless + 1).min(DOUBLINGS_MAX) } else { 0 };
        true
    }

    /// Handles the next page of a device. Returns true if it was the last.
    async fn page(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        progress: &mut StepProgress,
    ) -> Result<bool> {
        let node = cluster.node(device)?;
        let before_ms = self.clock.now_ms().saturating_sub(self.options.grace_ms);
        let after = self.after.get(&device).cloned();
        let is_first = after.is_none();
        let page = in_time(node.garbage_after(device, after, before_ms, BATCH)).await?;
        if is_first {
            self.note_oldest(device, page.first());
        }
        progress.items += page.len() as u64;
        let mut rest = &page[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(together(rest));
            rest = later;
            let outcome = self.handle(cluster, now).await;
            if !outcome.done.is_empty() {
                in_time(node.forget_garbage(device, &outcome.done)).await?;
            }
            progress.done += outcome.done.len() as u64;
            progress.freed += outcome.freed;
            progress.freed_bytes += outcome.freed_bytes;
            progress.kept += outcome.kept;
            self.pass.kept += outcome.kept;
            self.pass.done += outcome.done.len() as u64;
        }
        if let Some(last) = page.last() {
            self.after.insert(device, last.id.clone());
        }
        Ok(page.len() < BATCH)
    }

    /// Deletes the unneeded extents of some records, slice by slice.
    async fn handle(&self, cluster: &StepTopology, records: &[Garbage]) -> Outcome {
        let NamedExtents { extents, unreadable } = named(cluster, records).await;
        let (mut waiting, mut outcome) = (unreadable, Outcome::default());
        if extents.is_empty() && self.hold.is_on(cluster, self.clock.now_ms()).await {
            waiting.extend(0..records.len());
        }
        let (manifests, data): (Vec<_>, Vec<_>) =
            extents.into_iter().partition(|extent| extent.is_manifest);
        for mut rest in [data, manifests] {
            // A manifest stays while an extent that it names waits.
            rest.retain(|extent| !extent.is_manifest || !waiting.contains(&extent.record));
            while !rest.is_empty() {
                let later = rest.split_off(slice(cluster, &rest));
                self.free(cluster, records, rest, &mut waiting, &mut outcome).await;
                rest = later;
            }
        }
        let done = records.iter().enumerate().filter(|(at, _)| !waiting.contains(at));
        outcome.done = done.map(|(_, record)| record.id.clone()).collect();
        outcome.kept = waiting.len() as u64;
        outcome
    }

    /// Deletes the unneeded ones of some extents. Records that must wait are added to `waiting`.
    async fn free(
        &self,
        cluster: &StepTopology,
        records: &[Garbage],
        extents: Vec<SoughtExtent>,
        waiting: &mut HashSet<usize>,
        outcome: &mut Outcome,
    ) {
        let found = locate(cluster, extents).await;
        let wanted = self.needed(cluster, records, &found).await;
        let mut unneeded = Vec::new();
        for extent in found {
            // None if no device has the extent.
            let is_needed = wanted.get(&extent.sought.extent.id);
            if extent.is_unknown() || is_needed == Some(&None) {
                waiting.insert(extent.sought.record);
            } else if is_needed == Some(&Some(false)) {
                unneeded.push(extent);
            }
        }
        let Some(condition) = self.hold.deletes(cluster, self.clock.now_ms()).await else {
            waiting.extend(0..records.len());
            return;
        };
        delete(cluster, condition, &unneeded, waiting, outcome).await;
    }

    /// Asks the index about the extents that a device has. Returns true for needed ones, and none
    /// for those in unknown state.
    async fn needed(
        &self,
        cluster: &StepTopology,
        records: &[Garbage],
        found: &[FoundExtent],
    ) -> HashMap<ExtentId, Option<bool>> {
        let mut by_claim: BTreeMap<OwnerClaim, OwnerQuestion> = BTreeMap::new();
        for FoundExtent { sought, located } in found {
            let Located::Here { key, upload, born_ms, .. } = located else { continue };
            let register = &records[sought.record].key;
            let (bucket, shard) = (register.bucket, register.shard);
            let claim = OwnerClaim { bucket, shard, key: key.clone(), upload: *upload };
            let question = by_claim.entry(claim.clone()).or_insert_with(|| OwnerQuestion {
                claim,
                ids: BTreeSet::new(),
                born_ms: 0,
            });
            question.ids.insert(sought.extent.id);
            question.born_ms = question.born_ms.max(*born_ms);
        }
        let questions: Vec<OwnerQuestion> = by_claim.into_values().collect();
        let answers = self.owners.ask(cluster, self.clock.now_ms(), &questions).await;
        let mut needed = HashMap::new();
        for (question, answer) in questions.iter().zip(answers) {
            needed.extend(question.ids.iter().map(|id| (*id, answer.needs(*id))));
        }
        needed
    }
}

/// Returns the number of records whose extents are handled together: at least one.
fn together(records: &[Garbage]) -> usize {
    let mut extents = 0;
    let fitting = records.iter().take_while(|record| {
        extents += match &record.body {
            Body::Extents(manifest) => manifest.extents.len(),
            // A spilled manifest names more extents than an entry may.
            Body::Spilled { .. } => EXTENTS_MAX / 4,
            _ => 0,
        };
        extents <= EXTENTS_MAX
    });
    fitting.count().max(1)
}

/// Returns the number of extents that are handled together: at least one.
fn slice(cluster: &StepTopology, extents: &[SoughtExtent]) -> usize {
    let mut fragments = 0;
    let fitting = extents.iter().take(EXTENTS_MAX).take_while(|extent| {
        let code = code_of_policy(cluster, extent.policy).ok().flatten();
        fragments += code.map_or(1, |code| usize::from(code.total()));
        fragments <= FRAGMENTS_MAX
    });
    fitting.count().max(1).min(extents.len())
}

/// Returns the extents of records; reads spilled manifests.
async fn named(cluster: &StepTopology, records: &[Garbage]) -> NamedExtents {
    let bodies = records.iter().map(|record| BodyExtents::of(cluster, &record.body));
    let bodies: Vec<_> = futures::stream::iter(bodies.collect::<Vec<_>>())
        .buffered(MANIFESTS_AT_ONCE)
        .collect()
        .await;
    let mut named = NamedExtents { extents: Vec::new(), unreadable: HashSet::new() };
    for (record, body) in bodies.into_iter().enumerate() {
        match body {
            Ok(BodyExtents { data, manifest }) => {
                for (of, is_manifest) in [(data, false), (manifest, true)] {
                    let policy = of.policy;
                    named.extents.extend(of.extents.into_iter().map(|extent| SoughtExtent {
                        record,
                        policy,
                        extent,
                        is_manifest,
                    }));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let key = &records[record].key;
                if error.kind() == ErrorKind::Corrupt {
                    tracing::warn!(?key, %error, "keeping garbage: could not read its manifest");
                } else {
                    tracing::debug!(?key, %error, "keeping garbage: could not read its manifest");
                }
                named.unreadable.insert(record);
            }
        }
    }
    named
}

/// Deletes extents where they are, and marks them where they should be: one call for each device.
/// Records with an extent that a device did not delete are added to `waiting`. Devices refuse calls that
/// come too late.
async fn delete(
    cluster: &StepTopology,
    condition: DeleteCondition,
    extents: &[FoundExtent],
    waiting: &mut HashSet<usize>,
    outcome: &mut Outcome,
) {
    let mut by_device: BTreeMap<DeviceId, BTreeSet<ExtentId>> = BTreeMap::new();
    for extent in extents {
        for (device, id) in extent.targets() {
            by_device.entry(device).or_default().insert(id);
        }
    }
    let calls = by_device.into_iter().map(|(device, ids)| async move {
        let ids: Vec<ExtentId> = ids.into_iter().collect();
        let call = async {
            for ids in ids.chunks(DELETE_AT_ONCE) {
                in_time(cluster.node(device)?.delete_unneeded(device, ids, condition)).await?;
            }
            Ok::<(), Error>(())
        };
        (device, call.await)
    });
    let calls: Vec<_> = calls.collect();
    let outcomes: Vec<_> =
        futures::stream::iter(calls).buffer_unordered(DEVICES_AT_ONCE).collect().await;
    let mut failed = HashSet::new();
    for (device, deleted) in outcomes {
        if let Err(error) = deleted {
            tracing::debug!(%device, %error, "keeping garbage: a device deleted nothing");
            failed.insert(device);
        }
    }
    for extent in extents {
        let is_silent = matches!(extent.located, Located::Here { is_silent: true, .. });
        if is_silent || extent.targets().any(|(device, _)| failed.contains(&device)) {
            waiting.insert(extent.sought.record);
        } else {
            outcome.freed += 1;
            outcome.freed_bytes += u64::from(extent.sought.extent.length);
        }
    }
    tracing::debug!(extents = extents.len(), "deleted superseded extents");
}

#[async_trait]
impl Worker for Reclaim {
    fn name(&self) -> &'static str {
        "reclaim"
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.saturating_mul(1 << self.fruitless)
    }

    fn yield_max(&self, usual: Duration) -> Duration {
        usual.min(YIELD_MAX)
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let cluster = StepTopology::of(&self.topology);
        if self.hold.is_on(&cluster, self.clock.now_ms()).await {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        }
        let mine = cluster.index_devices_of(&self.scope);
        self.finished.retain(|device| mine.contains(device));
        let open = &mine - &self.finished;
        let Some(device) = self.rounds.at(&open) else {
            return Ok(StepProgress { idle: true, ..StepProgress::default() });
        };
        self.rounds.advance(&open);
        let (began, mut progress) = (Instant::now(), StepProgress::default());
        loop {
            match self.page(&cluster, device, &mut progress).await {
                Ok(false) if began.elapsed() < STEP_MAX => {}
                Ok(is_last) => {
                    progress.backlog = self.pass.kept;
                    progress.oldest_age_ms = self.oldest_age_ms();
                    progress.idle = is_last && self.finish(device, &open);
                    return Ok(progress);
                }
                Err(error) => {
                    self.finish(device, &open);
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Scan of all data devices for extents that no entry names, grouped by key.
//!
//! ```text
//! pages of a device ──scope──▶ owners, in batches ──no entry──▶ by key ──▶ homes: deleted? ──▶ keys
//! ```
//!
//! Memory is bounded by [`EXTENTS_MAX`] extents. If more have no entry, the keys are divided by a
//! hash, and each slice has a pass of its own over the devices:
//!
//! ```text
//! slices:  (1, 0)  too many ──▶ (2, 0) now, (2, 1) later ──▶ (4, 0) now, (4, 2) and (2, 1) later
//! ```
//!
//! So e extents without an entry among n listed ones take about e / [`EXTENTS_MAX`] passes of
//! n / 1024 calls, 128 of them concurrently. Each pass lists everything, and no
//! position is stored: a scan that ends early begins again. An extent is asked about once for each copy
//! that is listed, unless it is in the slice already. Buckets are listed once for a scan: one that is
//! adopted meanwhile counts as unknown.
//!
//! Silence means keep here too: a key with an extent whose owner is not known for certain is left out,
//! since an older body of the key would come back in its place. So is a key with an extent whose homes
//! don't all answer, or of which most homes know nothing: they may have deleted it, and lost their
//! marks. An extent that a home has deleted is left out alone.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use martlet_protocol::backend::{OwnerClaim, Presence};
use martlet_protocol::extent::{ExtentRecord, Owner};
use martlet_protocol::extent_sums::ExtentClass;
use martlet_protocol::key::{index_placement, shard_of};
use martlet_protocol::lost::{LostExtent, LostKey};
use martlet_protocol::{BucketId, Clock, DeviceId, ExtentId, Partition, Result};
use martlet_topology::Topology;

use super::partitions::LostPartitions;
use super::patience::{Patience, Pauses};
use super::walks::DeviceWalks;
use crate::cluster::{DeviceScope, StepTopology};
use crate::coded::{PresenceMap, stored_ids};
use crate::owners::{OwnerAnswer, OwnerQuestion, Owners};
use crate::sweep::{KnownBucket, list_buckets};

/// Extents of a slice: about 100 MiB.
const EXTENTS_MAX: usize = 256 * 1024;
/// Extents whose homes are asked together.
const PRESENCE_AT_ONCE: usize = 8192;
/// Unknown buckets that are reported.
const UNKNOWN_MAX: usize = 1000;

/// Extents of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanScope {
    /// Bucket; none for all.
    pub bucket: Option<BucketId>,
    /// Partition of the index ring; none for those that were lost.
    pub partition: Option<Partition>,
    /// Partitions that were lost.
    pub lost: LostPartitions,
    /// Extents born at this time or later are left out, in milliseconds since 1970: their writes may
    /// be in flight.
    pub born_before_ms: u64,
}

/// Extents of a bucket whose register is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownBucket {
    /// Copies and fragments of its extents.
    pub copies: u64,
    /// A key of the bucket.
    pub key: String,
}

/// Figures of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanFigures {
    /// Copies and fragments that devices listed, in all passes.
    pub listed: u64,
    /// Copies and fragments that devices had at the begin of a pass, and so about as many as each
    /// pass lists. `None` until all devices answer.
    pub stored: Option<u64>,
    /// Extents without an entry, in the passes so far.
    pub unowned: u64,
    /// Copies and fragments whose owner is not known for certain: a device is silent, replicas
    /// differ, or a hint waits. Also extents of which a home does not answer.
    pub uncertain: u64,
    /// Extents without an entry that a device has deleted.
    pub deleted: u64,
    /// Passes that have ended.
    pub passes: u64,
    /// Passes that are left as far as known, the running one included.
    pub passes_left: u64,
    /// Buckets that no register names.
    pub unknown: BTreeMap<BucketId, UnknownBucket>,
}

/// Keys whose hash has this residue.
#[derive(Clone, Copy, Debug)]
struct Slice {
    modulus: u64,
    residue: u64,
}

impl Slice {
    fn contains(self, bucket: BucketId, key: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        (bucket, key).hash(&mut hasher);
        hasher.finish() % self.modulus == self.residue
    }

    /// Divides the slice; returns the second half.
    fn halve(&mut self) -> Self {
        let other = Self { modulus: self.modulus * 2, residue: self.residue + self.modulus };
        self.modulus *= 2;
        other
    }
}

/// Extents without an entry, by key.
#[derive(Default)]
struct Found {
    /// Keys with an extent whose owner or deletion is not known for certain. Nothing of them comes back:
    /// an older body would take the place of the uncertain one.
    uncertain: BTreeSet<(BucketId, String)>,
    keys: BTreeMap<(BucketId, String), HashMap<ExtentId, FoundExtent>>,
    extents: usize,
}

struct FoundExtent {
    record: ExtentRecord,
    /// Fragments that were listed, as bits.
    fragments: u32,
}

impl FoundExtent {
    fn is_readable(&self) -> bool {
        let Some(stripe) = self.record.layout.stripe else { return true };
        let needed = u32::from(ExtentClass::of(self.record.extent.id, Some(stripe)).needed);
        // Data fragments without bytes are stored nowhere.
        self.fragments.count_ones() >= needed.min(u32::from(stripe.k))
    }
}

impl Found {
    fn holds(&self, record: &ExtentRecord) -> bool {
        let key = (record.owner.bucket, record.owner.key.clone());
        self.keys.get(&key).is_some_and(|of| of.contains_key(&record.named()))
    }

    fn is_uncertain(&self, owner: &Owner) -> bool {
        !self.uncertain.is_empty() && self.uncertain.contains(&(owner.bucket, owner.key.clone()))
    }

    fn add(&mut self, record: ExtentRecord) {
        let fragment = 1 << record.replica().unwrap_or(0);
        let key = (record.owner.bucket, record.owner.key.clone());
        let of = self.keys.entry(key).or_default();
        let before = of.len();
        let found = of.entry(record.named()).or_insert(FoundExtent { record, fragments: 0 });
        found.fragments |= fragment;
        self.extents += of.len() - before;
    }

    /// Number of extents and keys in memory.
    fn size(&self) -> usize {
        self.extents + self.uncertain.len()
    }

    /// Leaves out the only key, which has more extents than a slice holds; returns their number.
    fn leave_out(&mut self) -> u64 {
        let Some((key, of)) = self.keys.pop_first() else { return 0 };
        tracing::warn!(bucket = %key.0, key = key.1, "a key has too many extents for a rebuild");
        self.uncertain.insert(key);
        self.extents -= of.len();
        of.len() as u64
    }

    fn retain(&mut self, slice: Slice) {
        self.keys.retain(|(bucket, key), _| slice.contains(*bucket, key));
        self.uncertain.retain(|(bucket, key)| slice.contains(*bucket, key));
        self.extents = self.keys.values().map(HashMap::len).sum();
    }

    fn into_keys(self) -> Vec<LostKey> {
        let extent =
            |it: FoundExtent| LostExtent { is_readable: it.is_readable(), record: it.record };
        let mut keys = Vec::with_capacity(self.keys.len());
        for ((bucket, key), extents) in self.keys {
            let mut extents: Vec<LostExtent> = extents.into_values().map(extent).collect();
            extents.sort_by_key(|it| it.record.extent.id);
            keys.push(LostKey { bucket, key, extents });
        }
        keys
    }
}

/// Keys that have extents and no entry, slice by slice.
pub struct LostKeys {
    topology: Topology,
    clock: Arc<dyn Clock>,
    owners: Owners,
    scope: ScanScope,
    slices: Vec<Slice>,
    extents_max: usize,
    /// Known buckets, once they were listed.
    buckets: Option<Arc<HashMap<BucketId, KnownBucket>>>,
    figures: ScanFigures,
    patience: Patience,
}

impl LostKeys {
    /// Begins a scan.
    pub fn new(topology: Topology, clock: Arc<dyn Clock>, scope: ScanScope) -> Self {
        Self {
            topology,
            clock,
            owners: Owners::default(),
            scope,
            slices: vec![Slice { modulus: 1, residue: 0 }],
            extents_max: EXTENTS_MAX,
            buckets: None,
            figures: ScanFigures::default(),
            patience: Patience::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn limit_extents(&mut self, extents_max: usize) {
        self.extents_max = extents_max;
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> &ScanFigures {
        &self.figures
    }

    /// Scans all devices for the keys of the next slice; none after the last one. `observe` receives
    /// the figures after each page.
    ///
    /// # Errors
    /// A data device can't be listed, or a device that knows the buckets doesn't answer.
    pub async fn next_slice(
        &mut self,
        observe: &mut (dyn FnMut(&ScanFigures) + Send),
    ) -> Result<Option<Vec<LostKey>>> {
        let Some(mut slice) = self.slices.pop() else { return Ok(None) };
        let cluster = StepTopology::of(&self.topology);
        let buckets = match &self.buckets {
            Some(buckets) => buckets.clone(),
            None => Arc::new(list_buckets(&cluster).await?),
        };
        self.buckets = Some(buckets.clone());
        let mut found = Found::default();
        let mut walks = DeviceWalks::new(&cluster);
        self.figures.stored = count_stored(&cluster).await.or(self.figures.stored);
        self.figures.passes_left = self.slices.len() as u64 + 1;
        observe(&self.figures);
        while let Some(records) = walks.next_round(&cluster, &self.topology).await? {
            self.figures.listed += records.len() as u64;
            self.take(&cluster, &buckets, slice, records, &mut found).await;
            while found.size() > self.extents_max {
                if found.keys.len() == 1 && found.extents > self.extents_max {
                    self.figures.uncertain += found.leave_out();
                } else {
                    self.slices.push(slice.halve());
                    found.retain(slice);
                }
            }
            self.figures.passes_left = self.slices.len() as u64 + 1;
            observe(&self.figures);
        }
        self.drop_deleted(&cluster, &mut found).await;
        self.figures.unowned += found.extents as u64;
        self.figures.passes += 1;
        self.figures.passes_left -= 1;
        observe(&self.figures);
        Ok(Some(found.into_keys()))
    }

    /// Adds the extents of a page that are in scope and have no entry.
    async fn take(
        &mut self,
        cluster: &StepTopology,
        buckets: &HashMap<BucketId, KnownBucket>,
        slice: Slice,
        page: Vec<ExtentRecord>,
        found: &mut Found,
    ) {
        let mut by_claim: BTreeMap<OwnerClaim, (OwnerQuestion, Vec<ExtentRecord>)> =
            BTreeMap::new();
        for record in page {
            let owner = &record.owner;
            if record.birth_ms >= self.scope.born_before_ms
                || !slice.contains(owner.bucket, &owner.key)
            {
                continue;
            }
            let Some(bucket) = buckets.get(&owner.bucket) else {
                self.note_unknown(owner.bucket, &owner.key);
                continue;
            };
            if self.scope.bucket.is_some_and(|bucket| bucket != owner.bucket) {
                continue;
            }
            if found.is_uncertain(owner) {
                self.figures.uncertain += 1;
                continue;
            }
            let shard = shard_of(owner.key.as_bytes(), bucket.shards);
            let placement = index_placement(owner.bucket, shard);
            let is_lost = match self.scope.partition {
                Some(partition) => cluster.index().partition(placement) == partition,
                None => self.scope.lost.contains(placement),
            };
            if !is_lost {
                continue;
            }
            if found.holds(&record) {
                found.add(record);
                continue;
            }
            let (bucket, key, upload) = (owner.bucket, owner.key.clone(), owner.upload);
            let claim = OwnerClaim { bucket, shard, key, upload };
            let (question, of) = by_claim.entry(claim.clone()).or_insert_with(|| {
                (OwnerQuestion { claim, ids: BTreeSet::new(), born_ms: 0 }, Vec::new())
            });
            question.ids.insert(record.named());
            question.born_ms = question.born_ms.max(record.birth_ms);
            of.push(record);
        }
        let (questions, records): (Vec<OwnerQuestion>, Vec<Vec<ExtentRecord>>) =
            by_claim.into_values().unzip();
        let answers = self.query_with_retries(cluster, &questions).await;
        for (answer, records) in answers.into_iter().zip(records) {
            for record in records {
                match answer.needs(record.named()) {
                    Some(true) => {}
                    Some(false) => found.add(record),
                    None => {
                        self.figures.uncertain += 1;
                        found.uncertain.insert((record.owner.bucket, record.owner.key));
                    }
                }
            }
        }
    }

    /// Asks about extents, and repeats unanswered questions for a while: a node restarts.
    async fn query_with_retries(
        &mut self,
        cluster: &StepTopology,
        questions: &[OwnerQuestion],
    ) -> Vec<OwnerAnswer> {
        let mut answers = self.owners.ask(cluster, self.clock.now_ms(), questions).await;
        let mut pauses = Pauses::default();
        loop {
            let is_unknown =
                |at: &usize| questions[*at].ids.iter().any(|id| answers[*at].needs(*id).is_none());
            let unknown: Vec<usize> = (0..questions.len()).filter(is_unknown).collect();
            if unknown.is_empty() || !self.patience.wait(&mut pauses).await {
                return answers;
            }
            let again: Vec<OwnerQuestion> =
                unknown.iter().map(|at| questions[*at].clone()).collect();
            let later = self.owners.ask(cluster, self.clock.now_ms(), &again).await;
            for (at, answer) in unknown.into_iter().zip(later) {
                answers[at] = answer;
            }
        }
    }

    fn note_unknown(&mut self, bucket: BucketId, key: &str) {
        let unknown = &mut self.figures.unknown;
        if unknown.len() >= UNKNOWN_MAX && !unknown.contains_key(&bucket) {
            return;
        }
        let of = unknown.entry(bucket).or_default();
        of.copies += 1;
        if of.key.is_empty() {
            key.clone_into(&mut of.key);
        }
    }

    /// Drops extents that one of their homes has deleted: other devices missed the delete. Drops those
    /// with a silent home too.
    async fn drop_deleted(&mut self, cluster: &StepTopology, found: &mut Found) {
        let (mut deleted, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        let mut extents = found.keys.values().flat_map(HashMap::values);
        loop {
            let some: Vec<Placed> = extents
                .by_ref()
                .take(PRESENCE_AT_ONCE)
                .map(|it| Placed::of(cluster, &it.record))
                .collect();
            if some.is_empty() {
                break;
            }
            let mut lists: BTreeMap<DeviceId, BTreeSet<ExtentId>> = BTreeMap::new();
            for (device, id) in some.iter().flat_map(|placed| &placed.homes) {
                lists.entry(*device).or_default().insert(*id);
            }
            let mut presences = PresenceMap::default();
            presences.query(cluster, lists.clone()).await;
            let (mut unanswered, mut pauses) = (presences.unanswered(&lists), Pauses::default());
            while !unanswered.is_empty() && self.patience.wait(&mut pauses).await {
                presences.query(cluster, unanswered).await;
                unanswered = presences.unanswered(&lists);
            }
            for Placed { id, homes, is_coded } in some {
                let answers: Vec<Option<Presence>> =
                    homes.iter().map(|(device, id)| presences.of(*device, *id)).collect();
                match deletion(&answers, is_coded) {
                    Deletion::None => {}
                    Deletion::Marked => _ = deleted.insert(id),
                    Deletion::Unknown => _ = unknown.insert(id),
                }
            }
        }
        self.figures.deleted += deleted.len() as u64;
        self.figures.uncertain += unknown.len() as u64;
        for (key, of) in &mut found.keys {
            if of.keys().any(|id| unknown.contains(id)) {
                found.uncertain.insert(key.clone());
            }
            of.retain(|id, _| !deleted.contains(id));
        }
        let uncertain = std::mem::take(&mut found.uncertain);
        found.keys.retain(|key, _| !uncertain.contains(key));
        found.keys.retain(|_, of| !of.is_empty());
        found.extents = found.keys.values().map(HashMap::len).sum();
    }
}

/// Returns the number of copies and fragments that all data devices have; none if one doesn't answer.
async fn count_stored(cluster: &StepTopology) -> Option<u64> {
    let statuses = cluster.statuses().await;
    let devices = cluster.data_devices_of(&DeviceScope::All).into_iter();
    devices.map(|device| statuses.get(&device).map(|status| status.extents)).sum()
}

/// An extent with its homes, and the id that each should hold.
struct Placed {
    id: ExtentId,
    homes: Vec<(DeviceId, ExtentId)>,
    is_coded: bool,
}

impl Placed {
    fn of(cluster: &StepTopology, record: &ExtentRecord) -> Self {
        let (homes, is_coded) = (homes(cluster, record), record.layout.stripe.is_some());
        Self { id: record.named(), homes, is_coded }
    }
}

/// Knowledge of an extent's homes about its deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    /// All homes answer, and none has deleted the extent.
    None,
    /// A home has deleted the extent.
    Marked,
    /// A home is silent, or none is known.
    Unknown,
}

fn deletion(answers: &[Option<Presence>], is_coded: bool) -> Deletion {
    if answers.contains(&Some(Presence::Deleted)) {
        Deletion::Marked
    } else if answers.is_empty()
        || answers.contains(&None)
        || !is_coded && most_are_missing(answers)
    {
        Deletion::Unknown
    } else {
        Deletion::None
    }
}

/// Returns true if most homes know nothing of copies. A durable extent was on most of them: they have
/// deleted it and lost the mark, or have lost the extent. Of fragments some have no bytes, and no home.
fn most_are_missing(answers: &[Option<Presence>]) -> bool {
    let missing = answers.iter().filter(|answer| **answer == Some(Presence::Missing)).count();
    missing * 2 > answers.len()
}

/// Returns the homes of an extent, with the id that each should hold.
fn homes(cluster: &StepTopology, record: &ExtentRecord) -> Vec<(DeviceId, ExtentId)> {
    let (policy, id) = (record.layout.policy, record.named());
    let Ok(ring) = cluster.data(policy) else { return Vec::new() };
    let ids = stored_ids(cluster, policy, &[id]).unwrap_or_default();
    let homes = ring.primaries(ring.partition(id.placement()));
    homes.enumerate().filter_map(|(at, home)| Some((home, *ids.get(at).or(ids.first())?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_delete_and_silence_is_none() {
        let (here, missing, deleted) =
            (Some(Presence::Here), Some(Presence::Missing), Some(Presence::Deleted));
        for (answers, expected) in [
            (vec![here, here, missing], Deletion::None),
            (vec![here, missing, missing], Deletion::Unknown),
            (vec![here], Deletion::None),
            (vec![here, deleted, here], Deletion::Marked),
            (vec![None, deleted, here], Deletion::Marked),
            (vec![here, None, here], Deletion::Unknown),
            (vec![], Deletion::Unknown),
        ] {
            assert_eq!(deletion(&answers, false), expected, "{answers:?}");
        }
    }
}

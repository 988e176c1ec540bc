//! List of all buckets known to any deciding device or hint.

use martlet_protocol::Term;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use futures::{StreamExt, stream};
use martlet_protocol::backend::{BucketFence, ListRequest, ListStart};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BackendExt, BucketId, DeviceId, Error, RegisterKind, Result, Shard};

use crate::cluster::{StepTopology, in_time};
use crate::needed_extents::{QuerySource, list};
use crate::owners::sightings::{Sightings, SilentDevices};

/// Buckets of a listing requested at a time.
const PAGE: usize = 1000;
/// Devices asked at a time.
const AT_ONCE: usize = 32;

/// Devices that are asked which buckets are closed. Each device of the index ring has all fences (rule
/// M2), and one that lost them gets them before its votes.
const CLOSED_ASKED_MAX: usize = 3;

/// A known bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBucket {
    /// Number of shards of its index.
    pub(crate) shards: u16,
}

/// Buckets at one time, and the devices that were silent then.
#[derive(Debug, Default)]
pub(crate) struct KnownBuckets {
    buckets: HashMap<BucketId, KnownBucket>,
    silent: SilentDevices,
}

impl KnownBuckets {
    /// Returns a bucket; an error if an extent that was born then may belong to a bucket that only
    /// a silent device knows.
    pub(crate) fn of(&self, bucket: BucketId, born_ms: u64) -> Result<Option<KnownBucket>> {
        let known = self.buckets.get(&bucket);
        if known.is_none() && self.silent.may_name_born(born_ms) {
            return Err(Error::unavailable("a silent device may know the bucket"));
        }
        Ok(known.copied())
    }
}

/// Lists the buckets that any deciding device of the root bucket's shards, or any hint, knows.
///
/// # Errors
/// If a device does not answer.
pub(crate) async fn list_buckets(cluster: &StepTopology) -> Result<HashMap<BucketId, KnownBucket>> {
    // Hints come first: a hint on its way is then seen at least once.
    let mut buckets = HashMap::new();
    let calls: Vec<_> =
        cluster.index_devices().into_iter().map(|device| list_hints(cluster, device)).collect();
    let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
    while let Some(entries) = calls.next().await {
        add(entries?, &mut buckets);
    }
    buckets.extend(list_registers(cluster).await?);
    Ok(buckets)
}

/// Lists the buckets as [`list_buckets`], but for hints of silent devices. Devices that report no
/// hints are not asked.
///
/// # Errors
/// If a deciding device does not answer.
pub(crate) async fn list_known_buckets(
    cluster: &StepTopology,
    sightings: &Sightings,
    now_ms: u64,
) -> Result<KnownBuckets> {
    let statuses = cluster.statuses().await;
    let (mut buckets, mut silent) = (HashMap::new(), SilentDevices::default());
    for device in cluster.index_devices() {
        match statuses.get(&device) {
            Some(status) if status.hints == 0 => sightings.note(device, now_ms),
            Some(_) => {
                if let Err(error) = add_hints(cluster, device, &mut buckets).await {
                    tracing::debug!(%device, %error, "could not list a device's hints of buckets");
                    silent.add(sightings.of(device, now_ms));
                }
            }
            None => silent.add(sightings.of(device, now_ms)),
        }
    }
    buckets.extend(list_registers(cluster).await?);
    Ok(KnownBuckets { buckets, silent })
}

/// Returns those of `unlisted` whose deletion has ended, as any of some devices knows. Another one has
/// no register and was not deleted: its register is lost, and its extents stay.
///
/// # Errors
/// If none of the devices answers.
pub(crate) async fn deleted_of(
    cluster: &StepTopology,
    unlisted: &BTreeSet<BucketId>,
) -> Result<BTreeSet<BucketId>> {
    let (mut deleted, mut answers) = (BTreeSet::new(), 0);
    if unlisted.is_empty() {
        return Ok(deleted);
    }
    let named: Vec<BucketId> = unlisted.iter().copied().collect();
    for device in cluster.index_devices() {
        let fences = async { in_time(cluster.node(device)?.fences_of(device, &named)).await };
        let Ok(fences) = fences.await else { continue };
        // A deletion closes a bucket before it is known to be empty, and may have ended there.
        let of_deleted = fences.into_iter().filter(|it| *it == BucketFence::of_deleted(it.bucket));
        deleted.extend(of_deleted.map(|fence| fence.bucket));
        answers += 1;
        if answers == CLOSED_ASKED_MAX || deleted.len() == unlisted.len() {
            break;
        }
    }
    if answers == 0 {
        return Err(Error::unavailable("no device of the index answers which buckets are closed"));
    }
    Ok(deleted)
}

async fn list_registers(cluster: &StepTopology) -> Result<HashMap<BucketId, KnownBucket>> {
    let term = cluster.named()?;
    if cluster.is_behind() {
        return Err(Error::unavailable("the ring of the list of buckets is not known"));
    }
    let mut deciding: BTreeMap<DeviceId, Vec<Shard>> = BTreeMap::new();
    for shard in (0..INDEX_SHARDS_DEFAULT).map(Shard) {
        for device in cluster.sets(index_placement(BucketId::ROOT, shard)).members() {
            deciding.entry(device).or_default().push(shard);
        }
    }
    let mut buckets = HashMap::new();
    let calls = deciding.into_iter().map(|(device, shards)| {
        list(cluster, QuerySource::Registers, device, of_root(shards, term))
    });
    let calls: Vec<_> = calls.collect();
    let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
    while let Some(entries) = calls.next().await {
        add(entries?, &mut buckets);
    }
    Ok(buckets)
}

async fn add_hints(
    cluster: &StepTopology,
    device: DeviceId,
    buckets: &mut HashMap<BucketId, KnownBucket>,
) -> Result<()> {
    add(list_hints(cluster, device).await?, buckets);
    Ok(())
}

async fn list_hints(cluster: &StepTopology, device: DeviceId) -> Result<Vec<(Bytes, Entry)>> {
    let request = of_root(all_shards(), cluster.named()?);
    list(cluster, QuerySource::Hints, device, request).await
}

fn add(entries: Vec<(Bytes, Entry)>, buckets: &mut HashMap<BucketId, KnownBucket>) {
    for (_, entry) in entries {
        if let Value::Bucket(bucket) = entry.value {
            buckets.insert(bucket.id, KnownBucket { shards: bucket.index_shards });
        }
    }
}

fn all_shards() -> Vec<Shard> {
    (0..INDEX_SHARDS_DEFAULT).map(Shard).collect()
}

fn of_root(shards: Vec<Shard>, term: Term) -> ListRequest {
    ListRequest {
        bucket: BucketId::ROOT,
        shards,
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: PAGE,
        fold: None,
        term,
    }
}

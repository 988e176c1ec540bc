//! Buckets and their settings, by a quorum. A later pass finds a missed bucket; its rules have no
//! effect until then.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{ListRequest, ListStart, Want};
use martlet_protocol::entry::{Bucket, Entry, Value};
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, Error, RegisterKey, RegisterKind, Result, Shard,
};
use martlet_ring::Sets;

use crate::cluster::{StepTopology, in_time};
use crate::needed_extents::{QuerySource, list};

/// Buckets of a listing requested at a time.
const PAGE: usize = 1000;

/// Returns the buckets with their names.
pub(super) async fn buckets(cluster: &StepTopology) -> Result<Vec<(Bytes, Box<Bucket>)>> {
    let shards: Vec<(Shard, Sets)> = (0..INDEX_SHARDS_DEFAULT)
        .map(|shard| (Shard(shard), cluster.sets(index_placement(BucketId::ROOT, Shard(shard)))))
        .collect();
    let mut shards_of: BTreeMap<DeviceId, Vec<Shard>> = BTreeMap::new();
    for (shard, sets) in &shards {
        for device in sets.members() {
            shards_of.entry(device).or_default().push(*shard);
        }
    }
    let term = cluster.named()?;
    let answers = shards_of.into_iter().map(|(device, shards)| async move {
        let request = ListRequest {
            bucket: BucketId::ROOT,
            shards,
            kind: RegisterKind::Object,
            prefix: Bytes::new(),
            start: ListStart::First,
            limit: PAGE,
            fold: None,
            term,
        };
        (device, list(cluster, QuerySource::Registers, device, request).await)
    });
    let (mut answered, mut newest) = (BTreeSet::new(), BTreeMap::<Bytes, Entry>::new());
    for (device, answer) in join_all(answers).await {
        let entries = match answer {
            Ok(entries) => entries,
            Err(error) => {
                cluster.learn(&error);
                continue;
            }
        };
        answered.insert(device);
        for (name, entry) in entries {
            let held = newest.entry(name).or_insert_with(|| entry.clone());
            if entry.order > held.order {
                *held = entry;
            }
        }
    }
    if !shards.iter().all(|(_, sets)| sets.has_quorum(|id| answered.contains(&id))) {
        return Err(Error::unavailable("no quorum of primaries lists the buckets"));
    }
    let buckets = newest.into_iter().filter_map(|(name, entry)| match entry.value {
        Value::Bucket(bucket) => Some((name, bucket)),
        _ => None,
    });
    Ok(buckets.collect())
}

/// Returns the bucket of a name as a quorum holds it now; none if there is none.
pub(super) async fn current_bucket(
    cluster: &StepTopology,
    name: &Bytes,
) -> Result<Option<Box<Bucket>>> {
    let name = String::from_utf8_lossy(name);
    let key = &RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, &name);
    let (sets, term) = (cluster.sets(key.placement()), cluster.named()?);
    let reads = sets.members().map(|device| async move {
        let view = in_time(cluster.node(device)?.read(device, key, Want::Entry, term)).await?;
        Ok((device, view.entry))
    });
    let (mut answered, mut newest) = (BTreeSet::new(), None::<Entry>);
    for read in join_all(reads).await {
        match read {
            Ok((device, entry)) => {
                answered.insert(device);
                let order = |entry: &Option<Entry>| entry.as_ref().map(|it| it.order);
                newest = if order(&entry) > order(&newest) { entry } else { newest };
            }
            Err(error) => cluster.learn(&error),
        }
    }
    if !sets.has_quorum(|id| answered.contains(&id)) {
        return Err(Error::unavailable("no quorum of primaries returns the bucket"));
    }
    Ok(newest.and_then(|entry| match entry.value {
        Value::Bucket(bucket) => Some(bucket),
        _ => None,
    }))
}

//! Buckets and their settings, by a quorum. A later pass finds a missed bucket; its rules have no
//! effect until then.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{ListRequest, ListStart};
use martlet_protocol::entry::{Bucket, Entry, Value};
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BucketId, DeviceId, Error, RegisterKind, Result, Shard};
use martlet_ring::Sets;

use crate::cluster::StepTopology;
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

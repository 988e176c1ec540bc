//! List of all buckets known to any primary or hint.

use martlet_protocol::Term;
use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use martlet_protocol::backend::{ListRequest, ListStart};
use martlet_protocol::entry::Value;
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BucketId, DeviceId, Error, RegisterKind, Result, Shard};

use crate::cluster::StepTopology;
use crate::needed_extents::{QuerySource, list};

/// Buckets of a listing requested at a time.
const PAGE: usize = 1000;

/// A known bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBucket {
    /// Number of shards of its index.
    pub(crate) shards: u16,
}

/// Lists the buckets that any primary of the root bucket's shards, or any hint, knows.
pub(crate) async fn list_buckets(cluster: &StepTopology) -> Result<HashMap<BucketId, KnownBucket>> {
    let mut primaries: BTreeMap<DeviceId, Vec<Shard>> = BTreeMap::new();
    for shard in (0..INDEX_SHARDS_DEFAULT).map(Shard) {
        let holders = cluster.holders(index_placement(BucketId::ROOT, shard));
        if holders.in_transition {
            return Err(Error::unavailable("a replica of the list of buckets is moving"));
        }
        for device in holders.primaries {
            primaries.entry(device).or_default().push(shard);
        }
    }
    let everyone = cluster.index_devices().into_iter();
    let hints = everyone.map(|device| (QuerySource::Hints, device, all_shards()));
    let primaries =
        primaries.into_iter().map(|(device, shards)| (QuerySource::Registers, device, shards));
    let (term, mut buckets) = (cluster.named()?, HashMap::new());
    for (source, device, shards) in hints.chain(primaries) {
        for (_, entry) in list(cluster, source, device, of_root(shards, term)).await? {
            if let Value::Bucket(bucket) = entry.value {
                let known = KnownBucket { shards: bucket.index_shards };
                buckets.insert(bucket.id, known);
            }
        }
    }
    Ok(buckets)
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

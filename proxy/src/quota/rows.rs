//! Usage of buckets by the rows that devices keep: no object is listed.
//!
//! Each holder of a shard has a row with the usage of its registers. A holder that missed writes has
//! another row than the others. So the middle one of the rows counts, in their order: that of the
//! majority, if one holder lacks something. With two rows the larger one counts. A quorum of each
//! deciding set must answer, with votes: devices that are still being filled have none (rule G1).
//!
//! Writes that no quorum has yet, and hints, are not counted until they are delivered.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use martlet_protocol::backend::Backend;
use martlet_protocol::key::index_placement;
use martlet_protocol::run_usage::{Run, RunUsage};
use martlet_protocol::usage::{Countable, Usage};
use martlet_protocol::{BackendExt, DeviceId, Shard};

use crate::error::Result;
use crate::index::{RegisterClient, ReplicaSet, call_in_time};

/// Shards whose rows are held at a time, ≈ 15 MB: those of at least one bucket. In a large cluster a
/// request to a device then carries more than a row or two.
const SHARDS_MAX: usize = 32_768;
/// Rows of one request, and requests at a time.
const ROWS_MAX: usize = 1024;
const REQUESTS_AT_ONCE: usize = 64;

/// A shard of a bucket, and the rows of its holders.
struct ShardRows {
    run: Run,
    replica_set: ReplicaSet,
    rows: Vec<(DeviceId, RunUsage)>,
}

impl ShardRows {
    fn usage(&mut self) -> Option<Usage> {
        if !self.replica_set.has_quorum(&self.rows.iter().map(|(device, _)| *device)) {
            return None;
        }
        self.rows.sort_unstable_by_key(|(_, usage)| *usage);
        self.rows.get(self.rows.len() / 2).map(|(_, usage)| usage.totals())
    }
}

/// Adds up the usage of each bucket; none for a bucket if too few devices have rows of a shard.
///
/// # Errors
/// The ring waits for the change before its own.
pub(super) async fn add_up(
    registers: &RegisterClient,
    buckets: &[Countable],
) -> Result<Vec<Option<Usage>>> {
    let mut usages = Vec::with_capacity(buckets.len());
    let mut rest = buckets;
    while !rest.is_empty() {
        let mut shards = 0;
        let fits = rest.iter().take_while(|bucket| {
            shards += usize::from(bucket.index_shards);
            shards <= SHARDS_MAX
        });
        let (some, after) = rest.split_at(fits.count().max(1));
        usages.extend(add_up_some(registers, some).await?);
        rest = after;
    }
    Ok(usages)
}

async fn add_up_some(
    registers: &RegisterClient,
    buckets: &[Countable],
) -> Result<Vec<Option<Usage>>> {
    let mut shards = Vec::new();
    for bucket in buckets {
        for shard in (0..bucket.index_shards).map(Shard) {
            let run = Run { bucket: bucket.id, shard };
            let placement = index_placement(run.bucket, run.shard);
            let replica_set = registers.replicas.replica_set_at(placement)?;
            shards.push(ShardRows { run, replica_set, rows: Vec::new() });
        }
    }
    read(registers, &mut shards).await;
    let mut shards = shards.into_iter();
    let usages = buckets.iter().map(|bucket| {
        let of_bucket = shards.by_ref().take(usize::from(bucket.index_shards));
        let usages: Vec<Option<Usage>> = of_bucket.map(|mut shard| shard.usage()).collect();
        usages.into_iter().try_fold(bucket.own, |sum, usage| Some(sum.plus(usage?)))
    });
    Ok(usages.collect())
}

/// Reads the rows of all holders. Rows of silent devices stay out.
async fn read(registers: &RegisterClient, shards: &mut [ShardRows]) {
    let mut of_devices: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
    for (at, shard) in shards.iter().enumerate() {
        for device in shard.replica_set.members() {
            of_devices.entry(device).or_default().push(at);
        }
    }
    let mut requests = Vec::new();
    for (device, places) in &of_devices {
        for places in places.chunks(ROWS_MAX) {
            let runs: Vec<Run> = places.iter().map(|at| shards[*at].run).collect();
            let ReplicaSet { cluster, term, .. } = &shards[places[0]].replica_set;
            let (device, term) = (*device, *term);
            let call =
                move |node: Arc<dyn Backend>| async move { node.usage(device, &runs, term).await };
            let reply = call_in_time(cluster, device, registers.replicas.call_time(), call);
            requests.push(async move { (device, places, reply.await) });
        }
    }
    let mut replies = futures::stream::iter(requests).buffer_unordered(REQUESTS_AT_ONCE);
    let mut rows = Vec::new();
    while let Some((device, places, reply)) = replies.next().await {
        match reply {
            Ok(usages) if usages.len() == places.len() => {
                rows.extend(places.iter().zip(usages).map(|(at, usage)| (*at, device, usage)));
            }
            Ok(_) => tracing::debug!(%device, "a device's reply about usage is incomplete"),
            Err(error) => {
                registers.replicas.topology.learn(&error);
                tracing::debug!(%device, %error, "a device returns no usage");
            }
        }
    }
    drop(replies);
    for (at, device, usage) in rows {
        shards[at].rows.push((device, usage));
    }
}

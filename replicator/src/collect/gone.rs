//! Registers of buckets that are gone (rule M2).
//!
//! Whoever deletes a bucket takes its registers from every device afterwards. If it dies before it
//! does, or a device is out, some stay behind, closed to everyone; and a device that returns would
//! hand on what it has to those who let it go. They go once all of this holds:
//!
//! * they are older than any write that may still be on its way (rule T2), and so is their bucket;
//! * after they were met, all primaries of the list of buckets and every device's hints have said that
//!   there is no bucket of that id. Ids are never used again;
//! * a device that holds some was told that the bucket is closed. So a list of buckets that was lost
//!   takes nothing with it.
//!
//! Silence means keep.

use std::collections::{BTreeSet, HashSet};

use futures::future::join_all;
use martlet_protocol::backend::BucketFence;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::{BucketId, DeviceId, ErrorKind, Result, Stamp};

use crate::cluster::{Cluster, in_time};
use crate::sweep::list_buckets;

/// Which buckets there are, as far as one pass of a worker has asked.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// When they were last listed. One that is deleted later is the next pass's.
    there: HashSet<BucketId>,
    gone: HashSet<BucketId>,
}

impl Buckets {
    /// Takes what is left of buckets that are gone from `devices`. Of what was just met there: what
    /// stays, and how many registers went. `of` says the bucket of each, and its order.
    pub(crate) async fn purge<T>(
        &mut self,
        cluster: &Cluster,
        now_ms: u64,
        devices: &[DeviceId],
        mut met: Vec<T>,
        of: impl Fn(&T) -> Option<(BucketId, Stamp)>,
    ) -> (Vec<T>, u64) {
        let young = Stamp::at_ms(now_ms.saturating_sub(FIRST_HAND_AGE_MS_MAX));
        let old = met.iter().filter_map(&of);
        let old = old.filter(|(bucket, order)| *bucket != BucketId::ROOT && *order < young);
        let gone = match self.gone_of(cluster, old.map(|(bucket, _)| bucket).collect()).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::debug!(%error, "nobody can tell which buckets are gone");
                return (met, 0);
            }
        };
        let mut purged = BTreeSet::new();
        for bucket in gone {
            if purge(cluster, bucket, devices).await {
                tracing::info!(%bucket, "took what was left of a deleted bucket");
                purged.insert(bucket);
            }
        }
        let before = met.len();
        met.retain(|one| of(one).is_none_or(|(bucket, _)| !purged.contains(&bucket)));
        let went = (before - met.len()) as u64;
        (met, went)
    }

    /// Of buckets that were met, those that are gone.
    async fn gone_of(
        &mut self,
        cluster: &Cluster,
        met: BTreeSet<BucketId>,
    ) -> Result<BTreeSet<BucketId>> {
        if met.iter().any(|id| !self.there.contains(id) && !self.gone.contains(id)) {
            self.there = list_buckets(cluster).await?.into_keys().collect();
            self.gone.extend(met.iter().filter(|id| !self.there.contains(id)));
        }
        Ok(met.into_iter().filter(|id| self.gone.contains(id)).collect())
    }
}

/// Takes everything of a bucket that is gone from devices, which stay closed to it; whether all of
/// them have let go.
async fn purge(cluster: &Cluster, bucket: BucketId, devices: &[DeviceId]) -> bool {
    let purge = |device: &DeviceId| purge_one(cluster, *device, bucket);
    let told = join_all(devices.iter().map(purge)).await;
    let is_known_closed = told.iter().any(Result::is_ok);
    let (mut all, mut untold) = (true, Vec::new());
    for (device, told) in devices.iter().zip(told) {
        match told {
            Ok(()) => {}
            // The device has registers of the bucket from others, and was not told of its fence.
            Err(error) if error.kind() == ErrorKind::Conflict && is_known_closed => {
                untold.push(*device);
            }
            Err(error) => {
                tracing::debug!(%bucket, %device, %error, "registers of a deleted bucket are kept");
                all = false;
            }
        }
    }
    let close_and_purge = untold.into_iter().map(|device| async move {
        let fence = BucketFence::of_deleted(bucket);
        in_time(cluster.node(device)?.fence(device, fence)).await?;
        purge_one(cluster, device, bucket).await
    });
    all && join_all(close_and_purge).await.iter().all(Result::is_ok)
}

async fn purge_one(cluster: &Cluster, device: DeviceId, bucket: BucketId) -> Result<()> {
    in_time(cluster.node(device)?.purge_bucket(device, bucket)).await
}

#[cfg(test)]
mod tests;

//! Extents with a delete mark on a primary while another device still has them (rule X4).
//!
//! A device that was out missed the delete. The index decides: extents that it needs stay, and so
//! do extents in unknown state. While collection is held (rule X8), the index may have forgotten an
//! entry, and all extents stay. A delete that comes too long after the last look at the hold is refused.

use std::collections::{BTreeSet, HashMap};

use martlet_protocol::backend::DeleteCondition;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::key::shard_of;
use martlet_protocol::{BackendExt, BucketId, Clock, DeviceId, Error, ExtentId, Result};

use crate::cluster::{StepTopology, in_time};
use crate::needed_extents::{ExtentClaim, NeedCheck};
use crate::rebuild::loss::CollectionHold;
use crate::sweep::{KnownBucket, deleted_of, list_buckets};
use crate::worker::StepProgress;

/// Deletes the unneeded ones of `records` from a device; returns the needed ones.
pub(crate) async fn check_marks(
    cluster: &StepTopology,
    device: DeviceId,
    records: Vec<ExtentRecord>,
    clock: &dyn Clock,
    progress: &mut StepProgress,
) -> Result<Vec<ExtentRecord>> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    if CollectionHold::is_on_now(cluster).await {
        progress.kept += records.len() as u64;
        return Ok(Vec::new());
    }
    // They were deleted before this listing: their buckets are in it, or deleted.
    let buckets = match list_buckets(cluster).await {
        Ok(buckets) => buckets,
        Err(error) => {
            tracing::debug!(%device, %error, "keeping deleted extents: could not check their \
                                              entries");
            progress.kept += records.len() as u64;
            return Ok(Vec::new());
        }
    };
    let buckets = BucketStates::of(cluster, buckets, &records).await;
    let mut wanted = NeedCheck::new(cluster);
    let (mut ids, mut bytes, mut stay) = (Vec::new(), 0, Vec::new());
    let count = records.len();
    for record in records {
        let id = record.extent.id;
        match is_wanted(&buckets, &mut wanted, &record).await {
            Ok(false) => {
                ids.push(id);
                bytes += u64::from(record.extent.length);
            }
            Ok(true) => {
                tracing::warn!(extent = %id, "keeping a deleted extent that has an entry");
                stay.push(record);
            }
            Err(error) => {
                tracing::debug!(extent = %id, %error, "keeping an extent: could not check its \
                                                       entry");
            }
        }
    }
    // The answers took a while: a hold may have begun, and empty devices may have got votes under it.
    let condition = if ids.is_empty() {
        None
    } else {
        CollectionHold::deletes_now(cluster, clock.now_ms()).await
    };
    let Some(condition) = condition else {
        progress.kept += count as u64;
        return Ok(stay);
    };
    progress.kept += (count - ids.len()) as u64;
    match delete(cluster, device, &ids, condition).await {
        Ok(()) => {
            progress.done += ids.len() as u64;
            progress.freed += ids.len() as u64;
            progress.freed_bytes += bytes;
        }
        Err(error) => {
            // Late, or on a node of an earlier release. The copies that are missing elsewhere must not wait.
            tracing::debug!(%device, %error, "keeping deleted extents for now");
            progress.kept += ids.len() as u64;
        }
    }
    Ok(stay)
}

async fn delete(
    cluster: &StepTopology,
    device: DeviceId,
    ids: &[ExtentId],
    condition: DeleteCondition,
) -> Result<()> {
    in_time(cluster.node(device)?.delete_unneeded(device, ids, condition)).await?;
    tracing::info!(%device, extents = ids.len(), "deleted extents that other devices had deleted");
    Ok(())
}

/// Existing and deleted buckets.
pub(crate) struct BucketStates {
    listed: HashMap<BucketId, KnownBucket>,
    /// Buckets that no register names, and that their deletion closed.
    deleted: BTreeSet<BucketId>,
}

impl BucketStates {
    /// Finds which of the buckets of some extents were deleted.
    pub(crate) async fn of(
        cluster: &StepTopology,
        listed: HashMap<BucketId, KnownBucket>,
        records: impl IntoIterator<Item = &ExtentRecord>,
    ) -> Self {
        let buckets = records.into_iter().map(|record| record.owner.bucket);
        let unlisted = buckets.filter(|bucket| !listed.contains_key(bucket)).collect();
        // Without an answer none is known as deleted, and all of them stay.
        let deleted = deleted_of(cluster, &unlisted).await.unwrap_or_default();
        Self { listed, deleted }
    }
}

/// Returns true if the index needs an extent, by its owner; `buckets` were listed after it was
/// found.
///
/// # Errors
/// If the answer is unknown: also for a bucket that lost its register.
pub(crate) async fn is_wanted(
    buckets: &BucketStates,
    wanted: &mut NeedCheck<'_>,
    record: &ExtentRecord,
) -> Result<bool> {
    let owner = &record.owner;
    let Some(known) = buckets.listed.get(&owner.bucket) else {
        if buckets.deleted.contains(&owner.bucket) {
            return Ok(false);
        }
        return Err(Error::unavailable("the bucket's register is lost"));
    };
    let claim = ExtentClaim {
        bucket: owner.bucket,
        shard: shard_of(owner.key.as_bytes(), known.shards),
        key: owner.key.clone(),
        upload: owner.upload,
    };
    wanted.is_needed(&claim, record.named()).await
}

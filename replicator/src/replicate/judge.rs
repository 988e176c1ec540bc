//! Extents that a primary was told to delete while another device still has them (rule X4).
//!
//! Whoever was out at the time missed it. The index has the last word: what it wants stays, and so
//! does what nobody can tell about.

use std::collections::HashMap;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::key::shard_of;
use martlet_protocol::{BucketId, DeviceId, ExtentId, Result};

use crate::cluster::{Cluster, in_time};
use crate::sweep::{Known, list_buckets};
use crate::wanted::{Claim, Wanted};
use crate::worker::Progress;

/// Deletes those of `records` on a device that nobody wants.
pub(super) async fn judge(
    cluster: &Cluster,
    device: DeviceId,
    records: Vec<ExtentRecord>,
    progress: &mut Progress,
) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    // They were deleted before this list is read: their buckets are in it, or gone.
    let buckets = match list_buckets(cluster).await {
        Ok(buckets) => buckets,
        Err(error) => {
            tracing::debug!(%device, %error, "deleted extents are kept: nobody can tell");
            progress.kept += records.len() as u64;
            return Ok(());
        }
    };
    let mut wanted = Wanted::new(cluster);
    let (mut ids, mut bytes) = (Vec::new(), 0);
    for record in &records {
        if is_unwanted(&buckets, &mut wanted, record).await {
            ids.push(record.extent.id);
            bytes += u64::from(record.extent.length);
        }
    }
    progress.kept += (records.len() - ids.len()) as u64;
    if ids.is_empty() {
        return Ok(());
    }
    in_time(cluster.node(device)?.delete_extents(device, &ids)).await?;
    tracing::info!(%device, extents = ids.len(), "deleted extents that others were told to delete");
    progress.done += ids.len() as u64;
    progress.freed += ids.len() as u64;
    progress.freed_bytes += bytes;
    Ok(())
}

async fn is_unwanted(
    buckets: &HashMap<BucketId, Known>,
    wanted: &mut Wanted<'_>,
    record: &ExtentRecord,
) -> bool {
    let owner = &record.owner;
    let Some(known) = buckets.get(&owner.bucket) else { return true };
    let claim = Claim {
        bucket: owner.bucket,
        shard: shard_of(owner.key.as_bytes(), known.shards),
        key: owner.key.clone(),
        upload: owner.upload,
    };
    let id: ExtentId = record.extent.id;
    match wanted.extents(&claim).await {
        Ok(extents) if extents.contains(&id) => {
            tracing::warn!(extent = %id, "an extent that was deleted is wanted: it is kept");
            false
        }
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(extent = %id, %error, "an extent is kept: nobody can tell");
            false
        }
    }
}

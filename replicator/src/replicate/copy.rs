//! One more copy of an extent: read where it is, written where it is missing, compared.

use std::time::Duration;

use martlet_protocol::backend::{NewExtent, Presence};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{DeviceId, Error, ErrorKind, ExtentId, Result};

use crate::cluster::{Cluster, in_time};

/// What a copy has to begin, end and wait for disks.
const PATIENCE: Duration = Duration::from_secs(30);
/// A copy that is slower than this is given up.
const BYTES_PER_SECOND_MIN: u64 = 512 * 1024;

/// How long the bytes of extents may take on their way.
pub(crate) fn patience(bytes: u64) -> Duration {
    PATIENCE + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Gives `to` the copy of an extent that `from` has; the bytes written, none if it had it by then.
///
/// The copy keeps owner and birth, is on disk when this returns, and is the same: one that differs
/// is let go again.
///
/// # Errors
/// When there is no new copy. [`ErrorKind::Conflict`]: it was deleted there.
pub(crate) async fn copy(
    cluster: &Cluster,
    record: &ExtentRecord,
    from: DeviceId,
    to: DeviceId,
) -> Result<u64> {
    let ExtentRef { id, length, .. } = record.extent;
    let (source, target) = (cluster.node(from)?, cluster.node(to)?);
    let new = NewExtent {
        id,
        owner: record.owner.clone(),
        length: Some(u64::from(length)),
        birth_ms: Some(record.birth_ms),
        layout: record.layout,
    };
    let copying = async {
        let body = source.read_extent(from, id, 0..u64::from(length)).await?;
        target.write_extent(to, new, body).await
    };
    let late = || Error::unavailable(format!("a copy of extent {id} to device {to} is too slow"));
    let written = tokio::time::timeout(patience(u64::from(length)), copying).await;
    match written.unwrap_or_else(|_| Err(late())) {
        Ok(written) if written == record.extent => Ok(u64::from(length)),
        Ok(_) => {
            in_time(target.release_extents(to, &[id])).await?;
            Err(Error::corrupt(format!(
                "device {from} has other bytes of extent {id} than it says"
            )))
        }
        // Somebody else was quicker, or it was deleted.
        Err(error) if error.kind() == ErrorKind::Conflict => {
            match in_time(target.presence(to, &[id])).await?.first() {
                Some(Presence::Here) => Ok(0),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Gives a device its copy of an extent back, from whoever has one; the bytes written. None when the
/// device is no primary of it.
pub(crate) async fn copy_back(
    cluster: &Cluster,
    device: DeviceId,
    id: ExtentId,
) -> Result<Option<u64>> {
    let mut failed = None;
    for (policy, ring) in &cluster.data {
        if ring.primaries(ring.partition(id.placement())).all(|primary| primary != device) {
            continue;
        }
        let others = cluster.holders_of(*policy, id)?.into_iter().filter(|it| *it != device);
        for from in others {
            let again = async {
                let stat = in_time(cluster.node(from)?.stat_extent(from, id)).await?;
                copy(cluster, &stat.record, from, device).await
            };
            match again.await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => failed = Some(error),
            }
        }
        let nobody = || Error::not_found(format!("no other device has extent {id}"));
        return Err(failed.unwrap_or_else(nobody));
    }
    Ok(None)
}

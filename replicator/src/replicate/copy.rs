//! Copies an extent: read from a holder, written where it is missing, compared.

use std::collections::HashSet;

use futures::future::join_all;
use martlet_erasure::{Code, FragmentIndex};
use martlet_protocol::backend::{NewExtent, ReleaseCondition, Sought};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{BackendExt, DeviceId, Error, ErrorKind, ExtentId, PolicyId, Result};

use crate::cluster::{StepTopology, in_time};
use crate::coded::{CodedExtent, code_of};
use crate::reconstruct::Rebuild;
use crate::sent_copies::{compare_held, hashed_copy, is_same};
use crate::transfer_timeout::transfer_timeout;

/// Copies an extent from `from` to `to`. Returns the bytes written, none if `to` had the extent
/// already.
///
/// The copy keeps owner and birth, is on disk when this returns, and is identical. Its hashes follow
/// its bytes, so that no other bytes are stored, even if the reply is lost or the worker dies.
///
/// # Errors
/// If no new copy was made. [`ErrorKind::Conflict`]: the extent was deleted on `to`.
/// [`ErrorKind::Corrupt`]: `from` sent other bytes than its record names, or `to` has other bytes.
pub(crate) async fn copy(
    cluster: &StepTopology,
    record: &ExtentRecord,
    from: DeviceId,
    to: DeviceId,
) -> Result<u64> {
    let ExtentRef { id, length, .. } = record.extent;
    let (source, target) = (cluster.node(from)?, cluster.node(to)?);
    let copying = async {
        let body = source.read_extent(from, id, 0..u64::from(length)).await?;
        let (body, hashes) = hashed_copy(body, record.extent, from);
        let new = NewExtent {
            id,
            owner: record.owner.clone(),
            length: Some(u64::from(length)),
            birth_ms: Some(record.birth_ms),
            layout: record.layout,
            hashes: Some(hashes),
        };
        target.write_extent(to, new, body).await
    };
    let late = || Error::unavailable(format!("a copy of extent {id} to device {to} is too slow"));
    let written = tokio::time::timeout(transfer_timeout(u64::from(length)), copying).await;
    match written.unwrap_or_else(|_| Err(late())) {
        Ok(written) if written == record.extent => Ok(u64::from(length)),
        Ok(written) => {
            let wrong = [ExtentRef { id, ..written }];
            let condition = ReleaseCondition::of_wrong_copies();
            in_time(target.release_copies(to, &wrong, &condition)).await?;
            Err(Error::corrupt(format!("device {to} stored other bytes of extent {id}")))
        }
        // Another worker was faster, or the extent was deleted.
        Err(error) if error.kind() == ErrorKind::Conflict => {
            compare_held(cluster, to, record.extent, error).await.map(|()| 0)
        }
        Err(error) => Err(error),
    }
}

/// Restores a device's copy, or its fragment, of an extent: from a device with a copy, or rebuilt
/// from other fragments. Returns the bytes written; none if the extent doesn't belong on the
/// device.
pub(crate) async fn copy_back(
    cluster: &StepTopology,
    device: DeviceId,
    id: ExtentId,
) -> Result<Option<u64>> {
    let mut failed = None;
    for ring in cluster.policies() {
        let policy = ring.identity().policy;
        let mut primaries = ring.primaries(ring.partition(id.placement()));
        let again = if let Some(code) = code_of(ring) {
            if primaries.nth(usize::from(id.fragment_number())) != Some(device) {
                continue;
            }
            make_again(cluster, device, policy, code, id).await
        } else {
            if primaries.all(|primary| primary != device) {
                continue;
            }
            copy_again(cluster, device, policy, id).await
        };
        match again {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound && failed.is_some() => {}
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

async fn copy_again(
    cluster: &StepTopology,
    device: DeviceId,
    policy: PolicyId,
    id: ExtentId,
) -> Result<u64> {
    check_agreement(cluster, device, policy, id).await?;
    let mut failed = None;
    for from in cluster.holders_of(policy, id)?.into_iter().filter(|it| *it != device) {
        let again = async {
            let stat = in_time(cluster.node(from)?.stat_extent(from, id)).await?;
            copy(cluster, &stat.record, from, device).await
        };
        match again.await {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => failed = Some(error),
        }
    }
    let nobody = || Error::not_found(format!("no other device has extent {id}"));
    Err(failed.unwrap_or_else(nobody))
}

/// Checks that the other primaries of an extent have the same bytes: with two contents, either may be
/// wrong. Silent primaries count as none.
async fn check_agreement(
    cluster: &StepTopology,
    device: DeviceId,
    policy: PolicyId,
    id: ExtentId,
) -> Result<()> {
    let ring = cluster.data(policy)?;
    let others = ring.primaries(ring.partition(id.placement())).filter(|it| *it != device);
    let queries = others.map(|primary| async move {
        let sought =
            in_time(cluster.node(primary).ok()?.seek_extents(primary, &[id])).await.ok()?;
        match sought.into_iter().next() {
            Some(Sought::Here(record)) => Some((primary, *record)),
            _ => None,
        }
    });
    let held: Vec<(DeviceId, ExtentRecord)> =
        join_all(queries).await.into_iter().flatten().collect();
    let Some(((_, first), others)) = held.split_first() else { return Ok(()) };
    if others.iter().all(|(primary, record)| is_same(*primary, record, first.extent)) {
        return Ok(());
    }
    Err(Error::corrupt(format!("devices have different bytes of extent {id}")))
}

/// Rebuilds a fragment from its siblings that are at home.
async fn make_again(
    cluster: &StepTopology,
    device: DeviceId,
    policy: PolicyId,
    code: Code,
    id: ExtentId,
) -> Result<u64> {
    let mut sources = Vec::new();
    let mut known = None;
    for (home, number) in cluster.holders_of(policy, id)?.into_iter().zip(0..code.total()) {
        let sibling = id.fragment(number);
        let stat = async { in_time(cluster.node(home)?.stat_extent(home, sibling)).await };
        let Ok(stat) = stat.await else { continue };
        if sibling != id && stat.record.layout.policy == policy {
            sources.push((FragmentIndex(number), home));
            known = Some(stat.record);
        }
    }
    let nobody =
        || Error::not_found(format!("no other fragment of extent {} is at home", id.whole()));
    let record = known.ok_or_else(nobody)?;
    let coded = CodedExtent::of_record(cluster, &record)
        .unwrap_or_else(|| Err(Error::invalid("a copied extent under a policy of fragments")))?;
    let lost = vec![code.fragment(id.fragment_number())?];
    let job = Rebuild { coded, record, lost, sources };
    let built = job.build(cluster, &HashSet::new(), u64::MAX).await?;
    match built.map(|built| (built.made_bytes, built.failed)) {
        Some((bytes, failed)) if failed.is_empty() => Ok(bytes),
        _ => Err(Error::unavailable(format!("device {device} did not store fragment {id} again"))),
    }
}

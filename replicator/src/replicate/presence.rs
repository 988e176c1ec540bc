//! Queries of primaries about extents, and release of copies that all primaries have.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use martlet_protocol::backend::{Presence, ReleaseCondition, RingEpoch};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::limits::CONDITION_MS;
use martlet_protocol::{BackendExt, Clock, DeviceId, ExtentId, PolicyId, Result};

use super::agreement::agreement;
use super::plan::{CopyAction, CopyTurn, DevicePresence, plan};
use super::required_devices::RequiredDevices;
use crate::cluster::in_time;
use crate::worker::StepProgress;

/// Devices queried concurrently.
const AT_ONCE: usize = 16;

/// Returns the presence of each extent on its primaries; `device` itself is known to have it.
pub(super) async fn presence(
    places: &RequiredDevices<'_>,
    device: DeviceId,
    records: &[ExtentRecord],
) -> Result<Vec<Vec<DevicePresence>>> {
    presence_by(places, device, records, None).await
}

/// Returns presences as [`presence`]. With `rings`, primaries of nodes with earlier rings are silent,
/// and the others release no copy by an earlier ring from then on (rule X9).
async fn presence_by(
    places: &RequiredDevices<'_>,
    device: DeviceId,
    records: &[ExtentRecord],
    rings: Option<&[RingEpoch]>,
) -> Result<Vec<Vec<DevicePresence>>> {
    let mut queries: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
    let mut presences: Vec<Vec<DevicePresence>> = Vec::with_capacity(records.len());
    for (at, record) in records.iter().enumerate() {
        let primaries = places.primaries(record);
        for primary in primaries.iter().filter(|it| **it != device) {
            queries.entry(*primary).or_default().push(at);
        }
        let known = |it| (it, (it == device).then_some(Presence::Here));
        presences.push(primaries.into_iter().map(known).collect());
    }
    let calls = queries.into_iter().map(|(primary, at)| async move {
        let ids: Vec<ExtentId> = at.iter().map(|at| records[*at].extent.id).collect();
        let answer = async {
            let node = places.cluster().node(primary)?;
            match rings {
                Some(rings) => in_time(node.presence_by(primary, &ids, rings)).await,
                None => in_time(node.presence(primary, &ids)).await,
            }
        };
        (primary, at, answer.await)
    });
    let calls: Vec<_> = calls.collect();
    let answers: Vec<_> = futures::stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    for (primary, at, answer) in answers {
        let Ok(answer) = answer.inspect_err(|error| {
            tracing::debug!(device = %primary, %error, "could not list a device's extents");
        }) else {
            continue;
        };
        for (at, presence) in at.into_iter().zip(answer) {
            for (id, held) in &mut presences[at] {
                if *id == primary {
                    *held = Some(presence);
                }
            }
        }
    }
    Ok(presences)
}

/// Releases a device's copies that all primaries have with the same bytes, by a fresh query (rule
/// X9).
///
/// The device refuses the release if it comes too late, or if its node has a later ring by then. The
/// primaries of the ring stated their copies by that ring, so they release none by an earlier one. So
/// two releases by two rings never rely on each other's copies.
pub(super) async fn release_copies(
    places: &RequiredDevices<'_>,
    device: DeviceId,
    strays: &[ExtentRecord],
    clock: &dyn Clock,
    progress: &mut StepProgress,
) -> Result<()> {
    if strays.is_empty() {
        return Ok(());
    }
    // A process that was suspended knows nothing of what its peers lost meanwhile.
    let condition = ReleaseCondition {
        not_after_ms: clock.now_ms().saturating_add(CONDITION_MS),
        rings: rings_of(*places, strays)?,
    };
    let presences = presence_by(places, device, strays, Some(&condition.rings)).await?;
    let turn = |it: &ExtentRecord| CopyTurn::of(it.extent.id, 0);
    let all_have = |it: &ExtentRecord, presences: &[DevicePresence]| {
        plan(device, presences, turn(it)) == CopyAction::LetGo
    };
    let those = strays.iter().zip(&presences).filter(|(it, presences)| all_have(it, presences));
    let those: Vec<&ExtentRecord> = those.map(|(record, _)| record).collect();
    // After the primaries stated their copies by the ring: from then on they keep these bytes.
    let agreed = agreement(places, &those).await;
    let those = those.into_iter().zip(agreed).filter(|(_, agreed)| agreed.is_everywhere);
    let those: Vec<&ExtentRecord> = those.map(|(record, _)| record).collect();
    progress.kept += (strays.len() - those.len()) as u64;
    if those.is_empty() {
        return Ok(());
    }
    let copies: Vec<ExtentRef> = those.iter().map(|record| record.extent).collect();
    let node = places.cluster().node(device)?;
    in_time(node.release_copies(device, &copies, &condition)).await?;
    progress.done += copies.len() as u64;
    progress.freed += copies.len() as u64;
    progress.freed_bytes += those.iter().map(|it| u64::from(it.extent.length)).sum::<u64>();
    Ok(())
}

/// Returns the epochs of the rings of these extents.
fn rings_of(places: RequiredDevices<'_>, records: &[ExtentRecord]) -> Result<Vec<RingEpoch>> {
    let policies: BTreeSet<PolicyId> = records.iter().map(|it| it.layout.policy).collect();
    let ring = |policy| places.cluster().data(policy);
    let epoch = |policy| ring(policy).map(|ring| RingEpoch::of(policy, ring.epoch(), &ring.hash()));
    policies.into_iter().map(epoch).collect()
}

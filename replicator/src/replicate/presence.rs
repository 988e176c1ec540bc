//! Queries of primaries about extents, and release of copies that all primaries have.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::backend::Presence;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId, Result};
use tokio::time::Instant;

use super::plan::{CopyAction, CopyTurn, DevicePresence, plan};
use super::required_devices::RequiredDevices;
use crate::cluster::in_time;
use crate::worker::StepProgress;

/// Devices queried concurrently.
const AT_ONCE: usize = 16;
/// Maximum age of replies that justify a release.
const REPLY_AGE_MAX: Duration = Duration::from_mins(1);

/// Returns the presence of each extent on its primaries; `device` itself is known to have it.
pub(super) async fn presence(
    places: &RequiredDevices<'_>,
    device: DeviceId,
    records: &[ExtentRecord],
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
        let answer =
            async { in_time(places.cluster().node(primary)?.presence(primary, &ids)).await };
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

/// Releases a device's copies that all primaries have, by a fresh query.
pub(super) async fn release_copies(
    places: &RequiredDevices<'_>,
    device: DeviceId,
    strays: &[ExtentRecord],
    progress: &mut StepProgress,
) -> Result<()> {
    if strays.is_empty() {
        return Ok(());
    }
    let asked = Instant::now();
    let presences = presence(places, device, strays).await?;
    let turn = |it: &ExtentRecord| CopyTurn::of(it.extent.id, 0);
    let all_have = |it: &ExtentRecord, presences: &[DevicePresence]| {
        plan(device, presences, turn(it)) == CopyAction::LetGo
    };
    let those = strays.iter().zip(&presences).filter(|(it, presences)| all_have(it, presences));
    let those: Vec<&ExtentRecord> = those.map(|(record, _)| record).collect();
    progress.kept += (strays.len() - those.len()) as u64;
    if those.is_empty() {
        return Ok(());
    }
    let ids: Vec<ExtentId> = those.iter().map(|record| record.extent.id).collect();
    // A process that was suspended knows nothing of what its peers lost meanwhile.
    if asked.elapsed() > REPLY_AGE_MAX {
        return Err(Error::unavailable("the primaries' replies are too old to release copies"));
    }
    in_time(places.cluster().node(device)?.release_extents(device, &ids)).await?;
    progress.done += ids.len() as u64;
    progress.freed += ids.len() as u64;
    progress.freed_bytes += those.iter().map(|it| u64::from(it.extent.length)).sum::<u64>();
    Ok(())
}

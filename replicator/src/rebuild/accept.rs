//! Acceptance of a loss: devices that no peer can fill get their votes back.
//!
//! ```text
//! all devices answer ──▶ hold, with the devices ──▶ wait ──▶ copy what peers have ──▶ votes
//! ```
//!
//! A device that forgot gets its votes from `sync`, which needs a peer in each quorum that the device
//! was part of. Where most replicas of a partition forgot, there is no such peer, and the partition
//! answers 503 for ever. Only an operator can decide that its registers won't come back: the disks
//! may be in a drawer.
//!
//! The hold comes first. With votes, an empty partition is a quorum for "no entry names this extent".

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Clock, DeviceId, Error, Result};
use martlet_topology::Topology;

use super::loss::{HOLD_SETTLES_MS, IndexLoss};
use crate::cluster::{DeviceScope, StepTopology};
use crate::sync::SyncDevices;
use crate::worker::Worker;

/// Successive failures after which the acceptance ends. It continues when it is started again.
const FAILURES_MAX: u32 = 30;
/// Pause after a failure, and while the hold settles.
const PAUSE: Duration = Duration::from_secs(1);

/// Devices that lost their registers, and the partitions of which most replicas are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// The devices.
    pub devices: Vec<DeviceId>,
    /// The partitions of the index ring.
    pub partitions: Vec<u32>,
}

/// Returns the loss that an operator would accept.
///
/// # Errors
/// A device of the index ring doesn't answer; no device lacks votes; or peers can still fill all
/// that do.
pub async fn preview_loss(topology: &Topology) -> Result<AcceptedLoss> {
    let cluster = StepTopology::of(topology);
    let statuses = cluster.statuses().await;
    let devices = cluster.index_devices();
    if let Some(silent) = devices.iter().find(|device| !statuses.contains_key(device)) {
        return Err(Error::unavailable(format!(
            "device {silent} does not answer, and may hold what the others lost: bring it back, or \
             remove it from the index ring"
        )));
    }
    let lost: BTreeSet<DeviceId> = devices.into_iter().filter(|id| !statuses[id].voting).collect();
    if lost.is_empty() {
        return Err(Error::invalid("all devices of the index ring have their votes"));
    }
    let loss = IndexLoss { held_since_ms: None, lost };
    let partitions = loss.partitions(topology);
    if partitions.is_empty() {
        return Err(Error::invalid(
            "peers hold all registers of the devices without votes: a replicator's sync fills them",
        ));
    }
    Ok(AcceptedLoss { devices: loss.lost.into_iter().collect(), partitions })
}

/// Accepts a loss: holds collection, copies what peers hold, and returns votes to all devices of the
/// index ring. `observe` receives each stage as a sentence.
///
/// # Errors
/// As [`preview_loss`]; a device or peer fails meanwhile. The next run continues.
pub async fn accept_loss(
    topology: &Topology,
    clock: Arc<dyn Clock>,
    observe: &mut (dyn FnMut(String) + Send),
) -> Result<AcceptedLoss> {
    let loss = preview_loss(topology).await?;
    observe("holding the collection of extents".to_owned());
    let held = IndexLoss::note_lost(topology, &clock, &loss.devices).await?.held_since_ms;
    let held = held.ok_or_else(|| Error::unavailable("the hold on collection did not last"))?;
    let settled_ms = held.saturating_add(HOLD_SETTLES_MS);
    while clock.now_ms() < settled_ms {
        let left = (settled_ms - clock.now_ms()).div_ceil(1000);
        observe(format!("waiting until workers know of the hold: {left} s left"));
        tokio::time::sleep(PAUSE).await;
    }
    let mut sync = SyncDevices::new(topology.clone(), clock, DeviceScope::All).accepting_loss();
    let mut failures = 0;
    loop {
        match sync.step().await {
            Ok(progress) if progress.backlog == 0 => return Ok(loss),
            Ok(progress) => {
                failures = if progress.kept > 0 { failures + 1 } else { 0 };
                observe(format!("{} devices without votes are left", progress.backlog));
            }
            Err(error) => {
                failures += 1;
                observe(error.to_string());
            }
        }
        if failures > 0 {
            if failures >= FAILURES_MAX {
                let reason = sync.failure().unwrap_or("see the log of the process");
                return Err(Error::unavailable(format!(
                    "devices without votes are left: {reason}"
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

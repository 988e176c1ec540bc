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
//! The hold comes first. With votes, an empty partition is a quorum for "no entry names this extent". So
//! the hold is read again before each vote, and its release is refused while a device has none. Only
//! devices that lacked votes at the start get them: another one may have peers that can fill it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Clock, DeviceId, Error, Result};
use martlet_topology::Topology;
use tokio::time::Instant;

use super::loss::{HOLD_SETTLES_MS, IndexLoss};
use super::partitions::LostPartitions;
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
    pub partitions: LostPartitions,
}

/// Returns the loss that an operator would accept.
///
/// # Errors
/// The process lacks the ring of the change in progress; a device of the index ring doesn't answer; no
/// device lacks votes; or peers can still fill all that do.
pub async fn preview_loss(topology: &Topology) -> Result<AcceptedLoss> {
    let cluster = StepTopology::of(topology);
    let statuses = cluster.statuses().await;
    cluster.check_not_behind()?;
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
    let partitions = LostPartitions::of(&cluster, &lost);
    if partitions.is_empty() {
        return Err(Error::invalid(
            "peers hold all registers of the devices without votes: a replicator's sync fills them",
        ));
    }
    Ok(AcceptedLoss { devices: lost.into_iter().collect(), partitions })
}

/// Stage of an acceptance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptStage {
    /// Sentence for people.
    pub text: String,
    /// Number of accepted devices that have their votes again.
    pub done: u64,
}

/// Accepts a loss: holds collection, copies what peers hold, and returns votes to the devices that lack
/// them now. `observe` receives each stage.
///
/// # Errors
/// As [`preview_loss`]; `devices` are not the ones that lack votes; a device or peer fails meanwhile,
/// and the next run continues; another device loses its votes, or the hold ends, and the next run
/// begins anew.
pub async fn accept_loss(
    topology: &Topology,
    clock: Arc<dyn Clock>,
    devices: &BTreeSet<DeviceId>,
    observe: &mut (dyn FnMut(AcceptStage) + Send),
) -> Result<AcceptedLoss> {
    let loss = preview_loss(topology).await?;
    if !loss.devices.iter().eq(devices) {
        return Err(Error::conflict(
            "the devices without votes are not those that were named: look at martlet admin index \
             status again",
        ));
    }
    let total = loss.devices.len() as u64;
    let mut left = total;
    let mut observe =
        |text: String, left: u64| observe(AcceptStage { text, done: total.saturating_sub(left) });
    observe("holding the collection of extents".to_owned(), left);
    IndexLoss::note_lost(topology, &clock, &loss.devices).await?;
    // The start of the hold may be a time of another process's clock.
    let settled = Instant::now() + Duration::from_millis(HOLD_SETTLES_MS);
    while Instant::now() < settled {
        let seconds = settled.duration_since(Instant::now()).as_secs() + 1;
        observe(format!("waiting until workers know of the hold: {seconds} s left"), left);
        tokio::time::sleep(PAUSE).await;
    }
    let accepted: BTreeSet<DeviceId> = loss.devices.iter().copied().collect();
    let mut sync = SyncDevices::new(topology.clone(), clock, DeviceScope::All)
        .accepting_loss(accepted.clone());
    let mut failures = 0;
    loop {
        IndexLoss::check_accepted(topology, &accepted).await?;
        check_no_other(topology, &accepted).await?;
        match sync.step().await {
            Ok(progress) if progress.backlog == 0 => {
                if all_vote(topology, &accepted).await {
                    return Ok(loss);
                }
                failures += 1;
                observe("a device does not answer".to_owned(), left);
            }
            Ok(progress) => {
                failures = if progress.kept > 0 { failures + 1 } else { 0 };
                left = progress.backlog;
                observe(format!("{left} of {total} devices are without votes"), left);
            }
            Err(error) => {
                failures += 1;
                observe(error.to_string(), left);
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

async fn all_vote(topology: &Topology, devices: &BTreeSet<DeviceId>) -> bool {
    let statuses = StepTopology::of(topology).statuses().await;
    devices.iter().all(|device| statuses.get(device).is_some_and(|status| status.voting))
}

/// Returns an error if a device lacks votes that the operator did not accept as lost.
async fn check_no_other(topology: &Topology, accepted: &BTreeSet<DeviceId>) -> Result<()> {
    let statuses = StepTopology::of(topology).statuses().await;
    let index = StepTopology::of(topology).index_devices();
    let lacks_votes = |id: &&DeviceId| statuses.get(id).is_some_and(|status| !status.voting);
    match index.iter().filter(lacks_votes).find(|id| !accepted.contains(id)) {
        None => Ok(()),
        Some(other) => Err(Error::conflict(format!(
            "device {other} has lost its votes too: look at index status, and start accept-loss \
             again"
        ))),
    }
}

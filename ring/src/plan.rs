//! Predicted cost of a rebalance.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::ring::Ring;

/// Fill level of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Used bytes.
    pub used: u64,
    /// Capacity in bytes.
    pub capacity: u64,
}

/// Speed of moves, and limit of fill levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MovePace {
    /// Bytes per second that each device uses for moves.
    pub bytes_per_second: u64,
    /// Share of a device's capacity above which it accepts no more, such as 0.9.
    pub high_water: f64,
}

/// Predicted cost of a rebalance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RebalancePlan {
    /// Number of partitions with a moved replica.
    pub partitions: u64,
    /// Number of moved replicas.
    pub replicas: u64,
    /// Bytes that move; 0 without known usage.
    pub bytes: u64,
    /// Hours until the busiest device is finished, at the given pace.
    pub hours: f64,
    /// Each device of either ring, in the order of ids.
    pub devices: Vec<DevicePlan>,
    /// Warnings about devices that would exceed their high-water mark during the moves.
    pub warnings: Vec<String>,
}

/// Predicted cost for one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DevicePlan {
    /// Id of the device.
    pub id: DeviceId,
    /// Name of the device for display.
    pub name: String,
    /// Number of replicas before the moves.
    pub before: u64,
    /// Number of replicas after the moves.
    pub after: u64,
    /// Number of replicas gained.
    pub coming: u64,
    /// Number of replicas lost.
    pub going: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Hours until the device is finished.
    pub hours: f64,
    /// Highest share of capacity in use, after all incoming and before any outgoing moves. None if
    /// the capacity is unknown.
    pub peak: Option<f64>,
}

/// Counts of one device while a plan is computed.
#[derive(Clone, Debug, Default)]
struct DeviceTally {
    name: String,
    before: u64,
    after: u64,
    coming: u64,
    going: u64,
    bytes_in: f64,
    bytes_out: f64,
}

impl RebalancePlan {
    /// Computes the cost of replacing `before` by `after`. Devices without `usage` are assumed to
    /// hold the average bytes for each replica.
    pub fn new(
        before: &Ring,
        after: &Ring,
        usage: &BTreeMap<DeviceId, Usage>,
        pace: MovePace,
    ) -> Self {
        let mut tallies = tally_devices(before, after);
        let sizes = Sizes::new(&tallies, usage);
        let (mut partitions, mut replicas) = (0, 0);
        for partition in after.partitions() {
            let was = before.partition_of_child(after, partition);
            let mut moved = false;
            let mut left: Vec<DeviceId> = before
                .primaries(was)
                .filter(|id| !after.primaries(partition).any(|a| a == *id))
                .collect();
            for to in after.primaries(partition) {
                if before.primaries(was).any(|id| id == to) {
                    continue;
                }
                let from = left.pop();
                let bytes = sizes.of(from);
                moved = true;
                replicas += 1;
                let taker = tallies.entry(to).or_default();
                taker.coming += 1;
                taker.bytes_in += bytes;
                if let Some(giver) = from.and_then(|from| tallies.get_mut(&from)) {
                    giver.going += 1;
                    giver.bytes_out += bytes;
                }
            }
            partitions += u64::from(moved);
        }
        let devices: Vec<DevicePlan> =
            tallies.into_iter().map(|(id, tally)| tally.into_plan(id, usage, pace)).collect();
        let warnings = warnings(&devices, pace);
        let bytes = devices.iter().map(|device| device.bytes_in).sum();
        let hours = devices.iter().map(|device| device.hours).fold(0.0, f64::max);
        Self { partitions, replicas, bytes, hours, devices, warnings }
    }
}

fn tally_devices(before: &Ring, after: &Ring) -> BTreeMap<DeviceId, DeviceTally> {
    let mut tallies: BTreeMap<DeviceId, DeviceTally> = BTreeMap::new();
    for device in before.devices().iter().chain(after.devices()) {
        tallies.entry(device.id).or_default().name = Device::to_string(device);
    }
    let doubled = 1 << (after.part_power() - before.part_power());
    for (ring, times) in [(before, doubled), (after, 1)] {
        for id in ring.partitions().flat_map(|partition| ring.primaries(partition)) {
            let tally = tallies.entry(id).or_default();
            if std::ptr::eq(ring, after) {
                tally.after += times;
            } else {
                tally.before += times;
            }
        }
    }
    tallies
}

/// Bytes of one replica on each device.
struct Sizes {
    known: BTreeMap<DeviceId, f64>,
    average: f64,
}

impl Sizes {
    #[expect(clippy::cast_precision_loss, reason = "bytes are estimates here")]
    fn new(tallies: &BTreeMap<DeviceId, DeviceTally>, usage: &BTreeMap<DeviceId, Usage>) -> Self {
        let mut known = BTreeMap::new();
        let (mut bytes, mut replicas) = (0.0, 0.0);
        for (id, usage) in usage {
            let Some(tally) = tallies.get(id).filter(|tally| tally.before > 0) else { continue };
            known.insert(*id, usage.used as f64 / tally.before as f64);
            bytes += usage.used as f64;
            replicas += tally.before as f64;
        }
        Self { known, average: if replicas > 0.0 { bytes / replicas } else { 0.0 } }
    }

    fn of(&self, from: Option<DeviceId>) -> f64 {
        from.and_then(|id| self.known.get(&id)).copied().unwrap_or(self.average)
    }
}

impl DeviceTally {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes are estimates here, and never below zero"
    )]
    fn into_plan(
        self,
        id: DeviceId,
        usage: &BTreeMap<DeviceId, Usage>,
        pace: MovePace,
    ) -> DevicePlan {
        let busiest = self.bytes_in.max(self.bytes_out);
        let known = usage.get(&id).filter(|usage| usage.capacity > 0);
        DevicePlan {
            id,
            name: self.name,
            before: self.before,
            after: self.after,
            coming: self.coming,
            going: self.going,
            bytes_in: self.bytes_in.round() as u64,
            bytes_out: self.bytes_out.round() as u64,
            hours: busiest / pace.bytes_per_second.max(1) as f64 / 3600.0,
            peak: known.map(|known| (known.used as f64 + self.bytes_in) / known.capacity as f64),
        }
    }
}

fn warnings(devices: &[DevicePlan], pace: MovePace) -> Vec<String> {
    devices
        .iter()
        .filter(|device| device.coming > 0)
        .filter_map(|device| Some((device, device.peak.filter(|peak| *peak > pace.high_water)?)))
        .map(|(device, peak)| {
            format!(
                "{} ({}) would be up to {:.1} % full during the moves, above its high-water mark \
                 of {:.0} %: reduce its weight, or move in smaller steps",
                device.id,
                device.name,
                peak * 100.0,
                pace.high_water * 100.0
            )
        })
        .collect()
}

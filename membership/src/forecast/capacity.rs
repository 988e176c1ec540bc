//! Forecast of device fullness after pending moves, and of the bytes that can still be written.
//!
//! * A replica's size is the average of the device that it leaves. For a device without a report,
//!   the average of all devices counts. Index entries are ignored: they are small beside extents.
//! * If all replicas of a device are still arriving, its extent bytes are counted as arrived. On
//!   other devices every move in the rings counts as still to come.
//! * New bytes go to the primaries of the first policy's ring until the first device passes its
//!   high-water mark. After that they go to handoffs, until fewer than `replicas` distinct nodes
//!   have room (rule X5). Under a code of k+m each replica is one k-th of the bytes written.

use std::collections::BTreeMap;
use std::sync::Arc;

use martlet_admin_api::DeviceLine;
use martlet_admin_api::forecast::{Capacity, DeviceCapacity};
use martlet_protocol::{DeviceId, Redundancy};
use martlet_ring::Ring;

/// Usage report of a device, with the name of its node.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Name of the node.
    pub node: String,
    /// Status of the device.
    pub device: DeviceLine,
}

/// Replicas and bytes that the data rings assign to a device.
#[derive(Clone, Copy, Debug, Default)]
struct AssignedShare {
    replicas: u64,
    coming: u64,
    going: u64,
    bytes_in: f64,
    bytes_out: f64,
    /// Bytes that reach the device for each byte of an object.
    of_a_byte: f64,
}

/// Forecasts the capacity of a cluster with these data rings.
pub fn project(data: &[Arc<Ring>], reports: &[DeviceReport], silent: Vec<String>) -> Capacity {
    let shares = shares(data, reports);
    let devices: Vec<DeviceCapacity> = reports
        .iter()
        .map(|report| {
            let share = shares.get(&DeviceId(report.device.device)).copied().unwrap_or_default();
            let id = DeviceId(report.device.device);
            let placed = data.iter().find_map(|ring| ring.device(id));
            let (region, zone) = (placed.map(|it| it.region), placed.map(|it| it.zone));
            DeviceCapacity { region, zone, ..line(report, share) }
        })
        .collect();
    let replicas = data.first().map_or(1, |ring| ring.replicas());
    let redundancy = data.first().map(|ring| ring.identity().redundancy).unwrap_or_default();
    let sum = |of: fn(&DeviceCapacity) -> u64| devices.iter().map(of).sum();
    Capacity {
        replicas: u64::try_from(replicas).unwrap_or(u64::MAX),
        redundancy: redundancy.to_string(),
        total_bytes: sum(|it| it.total_bytes),
        used_bytes: sum(|it| it.used_bytes),
        extent_bytes: sum(|it| it.extent_bytes),
        writable_until_first_full_bytes: until_first_full(&devices, &shares),
        writable_until_all_full_bytes: until_all_full(&devices, replicas, pieces(redundancy)),
        warnings: devices.iter().filter_map(warning).collect(),
        devices,
        silent,
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes are estimates here")]
fn shares(data: &[Arc<Ring>], reports: &[DeviceReport]) -> BTreeMap<DeviceId, AssignedShare> {
    let mut shares: BTreeMap<DeviceId, AssignedShare> = BTreeMap::new();
    for (at, ring) in data.iter().enumerate() {
        let pieces = pieces(ring.identity().redundancy) as f64;
        let of_a_byte = 1.0 / (ring.partitions().count() as f64 * pieces);
        let part = if at == 0 { of_a_byte } else { 0.0 };
        for id in ring.partitions().flat_map(|partition| ring.primaries(partition)) {
            let share = shares.entry(id).or_default();
            share.replicas += 1;
            share.of_a_byte += part;
        }
        for step in ring.moves() {
            let to = ring.primaries(step.partition).nth(usize::from(step.replica));
            if let Some(to) = to {
                shares.entry(to).or_default().coming += 1;
            }
            shares.entry(step.previous).or_default().going += 1;
        }
    }
    let sizes = ReplicaSizes::new(&shares, reports);
    for step in data.iter().flat_map(|ring| ring.moves().iter().map(move |step| (ring, step))) {
        let (ring, step) = step;
        let bytes = sizes.of(step.previous);
        if let Some(to) = ring.primaries(step.partition).nth(usize::from(step.replica)) {
            shares.entry(to).or_default().bytes_in += bytes;
        }
        shares.entry(step.previous).or_default().bytes_out += bytes;
    }
    shares
}

/// Returns the number of data pieces that a policy cuts an extent into. Every replica holds one
/// piece.
fn pieces(redundancy: Redundancy) -> u64 {
    match redundancy {
        Redundancy::Replicated => 1,
        Redundancy::Erasure { k, .. } => k.into(),
    }
}

/// Average bytes of one replica on each device.
struct ReplicaSizes {
    known: BTreeMap<DeviceId, f64>,
    average: f64,
}

impl ReplicaSizes {
    #[expect(clippy::cast_precision_loss, reason = "bytes are estimates here")]
    fn new(shares: &BTreeMap<DeviceId, AssignedShare>, reports: &[DeviceReport]) -> Self {
        let (mut known, mut bytes, mut replicas) = (BTreeMap::new(), 0.0, 0.0);
        for DeviceReport { device, .. } in reports {
            let id = DeviceId(device.device);
            let share = shares.get(&id).copied().unwrap_or_default();
            let held = (share.replicas + share.going).saturating_sub(share.coming) as f64;
            if held > 0.0 {
                known.insert(id, device.extent_bytes as f64 / held);
                bytes += device.extent_bytes as f64;
                replicas += held;
            }
        }
        Self { known, average: if replicas > 0.0 { bytes / replicas } else { 0.0 } }
    }

    fn of(&self, device: DeviceId) -> f64 {
        self.known.get(&device).copied().unwrap_or(self.average)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes are estimates here, and never below zero"
)]
fn line(DeviceReport { node, device }: &DeviceReport, share: AssignedShare) -> DeviceCapacity {
    let (mut bytes_in, bytes_out) = (share.bytes_in.round() as u64, share.bytes_out.round() as u64);
    if share.coming >= share.replicas {
        bytes_in = bytes_in.saturating_sub(device.extent_bytes);
    }
    let used = device.used_bytes;
    let come = used.saturating_add(bytes_in);
    let of_total = |bytes: u64| of(bytes, device.total_bytes);
    DeviceCapacity {
        device: device.device,
        node: node.clone(),
        name: device.name.clone(),
        total_bytes: device.total_bytes,
        used_bytes: used,
        extent_bytes: device.extent_bytes,
        reserve_bytes: device.reserve_bytes,
        replicas: share.replicas,
        replicas_coming: share.coming,
        replicas_going: share.going,
        bytes_in,
        bytes_out,
        fullness: of_total(used),
        fullness_projected: of_total(come.saturating_sub(bytes_out.min(device.extent_bytes))),
        fullness_peak: of_total(come),
        high_water: of_total(device.total_bytes.saturating_sub(device.reserve_bytes)),
        ..DeviceCapacity::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn of(bytes: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { bytes as f64 / total as f64 }
}

/// Free bytes of a device above its reserve, after pending moves.
fn room(device: &DeviceCapacity) -> u64 {
    let out = device.bytes_out.min(device.extent_bytes);
    let projected = device.used_bytes.saturating_add(device.bytes_in).saturating_sub(out);
    device.total_bytes.saturating_sub(device.reserve_bytes).saturating_sub(projected)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes are estimates here, and never below zero"
)]
fn until_first_full(devices: &[DeviceCapacity], shares: &BTreeMap<DeviceId, AssignedShare>) -> u64 {
    let taken = |device: &DeviceCapacity| {
        let of_a_byte = shares.get(&DeviceId(device.device)).map_or(0.0, |share| share.of_a_byte);
        (of_a_byte > 0.0).then(|| room(device) as f64 / of_a_byte)
    };
    let least = devices.iter().filter_map(taken).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least as u64 } else { 0 }
}

/// Returns the most bytes that can be written. Each of `replicas` distinct nodes stores one of
/// `pieces` pieces, or a whole copy if `pieces` is 1. With fewer nodes than replicas, devices count
/// instead of nodes.
fn until_all_full(devices: &[DeviceCapacity], replicas: usize, pieces: u64) -> u64 {
    let mut nodes: BTreeMap<&str, u64> = BTreeMap::new();
    for device in devices {
        let room = room(device);
        let node = nodes.entry(&device.node).or_default();
        *node = node.saturating_add(room);
    }
    let rooms: Vec<u64> = if nodes.len() >= replicas {
        nodes.into_values().collect()
    } else {
        devices.iter().map(room).collect()
    };
    let copies = replicas.max(1) as u128;
    // A node holds at most one copy of a byte.
    let fits = |bytes: u64| {
        let held: u128 = rooms.iter().map(|room| u128::from(bytes.min(*room))).sum();
        held >= copies * u128::from(bytes)
    };
    let all: u128 = rooms.iter().map(|room| u128::from(*room)).sum();
    let (mut low, mut high) = (0, u64::try_from(all / copies).unwrap_or(u64::MAX));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low.saturating_mul(pieces)
}

fn warning(device: &DeviceCapacity) -> Option<String> {
    let DeviceCapacity { fullness, fullness_projected, fullness_peak, high_water, .. } = device;
    let (when, full) = match device {
        _ if fullness > high_water => ("is", fullness),
        _ if fullness_projected > high_water => ("will be", fullness_projected),
        _ if device.replicas_coming > 0 && fullness_peak > high_water => {
            ("may temporarily be", fullness_peak)
        }
        _ => return None,
    };
    Some(format!(
        "d{} ({}/{}) {when} {:.1} % full, above its high-water mark of {:.1} %, where it refuses \
         new data: add devices, or reduce its weight",
        device.device,
        device.node,
        device.name,
        full * 100.0,
        high_water * 100.0
    ))
}

#[cfg(test)]
mod tests;

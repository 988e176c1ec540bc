//! Text output for capacity and dispersion.

use std::fmt::Write;

use martlet_admin_api::forecast::{Capacity, DeviceCapacity, RingSpread};

use super::cells::{bar, percent, row, size};
use crate::columns::table;

/// Formats the capacity forecast of the cluster.
pub(crate) fn capacity(capacity: &Capacity) -> String {
    let mut heads = vec!["device", "node", "name", "size", "used", "full", "mark", "now"];
    heads.extend(["coming", "going", "projected", "peak"]);
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(capacity.devices.iter().map(device));
    let mut text = table(&rows, &[3, 4, 6, 7, 8, 9, 10, 11]);
    let Capacity { total_bytes, used_bytes, extent_bytes, .. } = capacity;
    let _ = writeln!(
        text,
        "\nall devices: {} of {} used, {} of that by extents; each object has {}",
        size(*used_bytes),
        size(*total_bytes),
        size(*extent_bytes),
        keeps(capacity),
    );
    let _ = writeln!(
        text,
        "room for objects: {} until the first device is full, {} until all are",
        size(capacity.writable_until_first_full_bytes),
        size(capacity.writable_until_all_full_bytes),
    );
    for node in &capacity.silent {
        let _ = writeln!(text, "the node {node} does not answer: its devices are not included");
    }
    for warning in &capacity.warnings {
        let _ = writeln!(text, "WARNING {warning}");
    }
    text
}

fn keeps(capacity: &Capacity) -> String {
    match capacity.redundancy.as_str() {
        "" | "replicated" => format!("{} copies", capacity.replicas),
        code => format!("{} fragments ({code})", capacity.replicas),
    }
}

fn device(device: &DeviceCapacity) -> Vec<String> {
    row([
        &format!("d{}", device.device),
        &device.node,
        &device.name,
        &size(device.total_bytes),
        &size(device.used_bytes),
        &bar(device.fullness_projected, device.high_water),
        &percent(device.high_water),
        &percent(device.fullness),
        &size(device.bytes_in),
        &size(device.bytes_out),
        &percent(device.fullness_projected),
        &percent(device.fullness_peak),
    ])
}

/// Formats the balance and dispersion of the rings in use.
pub(crate) fn dispersion(rings: &[RingSpread]) -> String {
    let heads = ["ring", "epoch", "hash", "partitions", "replicas", "devices"];
    let mut rows = vec![[&row(heads)[..], &row(["dispersion", "balance", "moving"])].concat()];
    rows.extend(rings.iter().map(|ring| {
        row([
            &ring.ring,
            &ring.epoch.to_string(),
            if ring.hash.is_empty() { "-" } else { &ring.hash },
            &ring.partitions.to_string(),
            &format!("{:.2}", ring.replicas),
            &ring.devices.to_string(),
            &format!("{:.2} %", ring.dispersion),
            &format!("{:.2} %", ring.balance),
            &ring.replicas_moving.to_string(),
        ])
    }));
    let mut text = table(&rows, &[1, 3, 4, 5, 6, 7, 8]);
    for ring in rings {
        spread(&mut text, ring);
    }
    text
}

/// Appends the worst devices and the crowded places of a ring.
fn spread(text: &mut String, ring: &RingSpread) {
    if ring.balance > 0.0 {
        let mut rows = vec![row([&ring.ring, "device", "holds", "share", "deviation"])];
        rows.extend(ring.worst.iter().map(|device| {
            row([
                &format!("d{}", device.device),
                &device.place,
                &device.replicas.to_string(),
                &format!("{:.1}", device.desired),
                &format!("{:+.2} %", device.deviation),
            ])
        }));
        let _ = write!(text, "\n{}", table(&rows, &[2, 3, 4]));
    }
    if !ring.crowded.is_empty() {
        let mut rows = vec![row([&ring.ring, "replicas at most", "partitions with more"])];
        rows.extend(
            ring.crowded.iter().map(|it| {
                row([&it.place, &it.replicas_max.to_string(), &it.partitions.to_string()])
            }),
        );
        let _ = write!(text, "\n{}", table(&rows, &[1, 2]));
    }
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::forecast::{CrowdedLine, DeviceSpread};

    use super::*;

    #[test]
    fn a_device_that_will_be_too_full_is_seen() {
        let device = DeviceCapacity {
            device: 3,
            node: "n2".into(),
            name: "d1".into(),
            total_bytes: 100 << 30,
            used_bytes: 50 << 30,
            bytes_in: 45 << 30,
            fullness: 0.5,
            fullness_projected: 0.95,
            fullness_peak: 0.95,
            high_water: 0.9,
            ..DeviceCapacity::default()
        };
        let text = capacity(&Capacity {
            devices: vec![device],
            replicas: 3,
            warnings: vec!["d3 will be full".into()],
            silent: vec!["n4".into()],
            ..Capacity::default()
        });
        for words in [
            "d3      n2    d1    100.0 GiB  50.0 GiB  ██████████████████▓·",
            "45.0 GiB",
            "95.0 %",
            "WARNING d3 will be full",
            "the node n4 does not answer",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }

    #[test]
    fn the_worst_of_a_ring_are_named() {
        let text = dispersion(&[RingSpread {
            ring: "data-0".into(),
            epoch: 2,
            hash: "0a1b2c3d4e5f6071".into(),
            partitions: 4096,
            replicas: 3.0,
            devices: 8,
            balance: 1.5,
            dispersion: 2.25,
            replicas_moving: 9,
            worst: vec![DeviceSpread {
                device: 4,
                place: "r1z1-n3/d1".into(),
                replicas: 1600,
                desired: 1536.0,
                deviation: 4.17,
            }],
            crowded: vec![CrowdedLine { place: "r1z1".into(), replicas_max: 2, partitions: 17 }],
        }]);
        for words in [
            "data-0      2  0a1b2c3d4e5f6071        4096      3.00        8      2.25 %   1.50 %       9",
            "d4      r1z1-n3/d1   1600  1536.0    +4.17 %",
            "r1z1                   2                    17",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }
}

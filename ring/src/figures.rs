//! Quality figures of a ring, as defined by Swift.
//!
//! * **Balance**: for each device, the deviation of its replicas from its share by weight, in
//!   percent; for the ring, the worst deviation. A device of weight zero that holds replicas counts
//!   999.99.
//! * **Dispersion**: the percentage of replicas that are closer together than the numbers of
//!   regions, zones, nodes and devices allow. Weights are not considered.

use martlet_protocol::DeviceId;
use serde::Serialize;

use crate::builder::spread;
use crate::builder::tree::{LEVELS, Tree};
use crate::device::Device;
use crate::ring::Ring;
use crate::table::{NOBODY, Table};

/// Balance of a device that should hold nothing, as in Swift.
pub const BALANCE_WORST: f64 = 999.99;

/// Quality figures of a ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Worst deviation of a device from its share, in percent.
    pub balance: f64,
    /// Replicas too close together, in percent.
    pub dispersion: f64,
    /// Figures of each device.
    pub devices: Vec<DeviceFigures>,
    /// Places with replicas too close together, worst first.
    pub crowded: Vec<CrowdedElement>,
}

/// Figures of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Id of the device.
    pub id: DeviceId,
    /// Number of replicas that the device holds.
    pub parts: u32,
    /// Number of replicas that are the device's share by weight.
    pub desired: f64,
    /// Deviation in percent; positive if the device holds too much.
    pub balance: f64,
}

/// A region, zone, node or device that holds too many replicas of some partitions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CrowdedElement {
    /// Name: `r1`, `r1z2`, `r1z2-alpha` or `r1z2-alpha/sdb`.
    pub place: String,
    /// Most replicas of one partition here, if all were as far apart as possible.
    pub most: u32,
    /// Number of partitions with more replicas here.
    pub partitions: u32,
}

impl Figures {
    /// Computes the figures of a ring.
    pub fn of_ring(ring: &Ring) -> Self {
        let removed = vec![false; ring.devices.len()];
        figures(&ring.devices, &removed, &ring.table)
    }
}

/// Computes the figures of an assignment over devices by slot; `removed` devices count as gone.
pub(crate) fn figures(devices: &[Device], removed: &[bool], table: &Table) -> Figures {
    let slots = (0u16..).zip(removed).filter(|(_, gone)| !**gone).map(|(slot, _)| slot);
    let tree = Tree::new(devices, slots);
    let by_device = balances(devices, removed, table);
    let (dispersion, crowded) = dispersion(&tree, devices, removed, table);
    let balance = by_device.iter().map(|device| device.balance.abs()).fold(0.0, f64::max);
    Figures { balance, dispersion, devices: by_device, crowded }
}

fn balances(devices: &[Device], removed: &[bool], table: &Table) -> Vec<DeviceFigures> {
    let mut parts = vec![0u32; devices.len()];
    for (_, row) in table.rows() {
        for &slot in row.iter().filter(|slot| **slot != NOBODY) {
            parts[usize::from(slot)] += 1;
        }
    }
    let live = || devices.iter().zip(removed).zip(&parts).filter(|((_, gone), _)| !**gone);
    let weight: f64 = live().map(|((device, _), _)| device.weight).sum();
    #[expect(clippy::cast_precision_loss, reason = "at most 2^30 replicas")]
    let share = if weight > 0.0 { table.replicas_total() as f64 / weight } else { 0.0 };
    live()
        .map(|((device, _), &parts)| {
            let desired = device.weight * share;
            let balance = match (desired > 0.0, parts) {
                (true, _) => 100.0 * f64::from(parts) / desired - 100.0,
                (false, 0) => 0.0,
                (false, _) => BALANCE_WORST,
            };
            DeviceFigures { id: device.id, parts, desired, balance }
        })
        .collect()
}

fn dispersion(
    tree: &Tree,
    devices: &[Device],
    removed: &[bool],
    table: &Table,
) -> (f64, Vec<CrowdedElement>) {
    #[expect(clippy::cast_precision_loss, reason = "at most 2^30 replicas")]
    let total = table.replicas_total() as f64;
    let replicas = total / f64::from(table.parts());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole numbers up to REPLICAS_MAX"
    )]
    let most: Vec<u32> = spread(tree, replicas).iter().map(|(_, most)| *most as u32).collect();
    let mut crowded = vec![0u32; tree.elements.len()];
    let mut at_risk = 0u64;
    for (_, row) in table.rows() {
        let mut worst = 0;
        for level in 1..LEVELS {
            let mut beyond = 0;
            for (at, &slot) in row.iter().enumerate() {
                if slot == NOBODY || removed[usize::from(slot)] {
                    continue;
                }
                let element = tree.paths[usize::from(slot)][level];
                let same = |other: &&u16| {
                    **other != NOBODY
                        && !removed[usize::from(**other)]
                        && tree.paths[usize::from(**other)][level] == element
                };
                let before = row[..at].iter().filter(same).count();
                let limit = most[element as usize] as usize;
                beyond += u64::from(before >= limit);
                crowded[element as usize] += u32::from(before == limit);
            }
            worst = worst.max(beyond);
        }
        at_risk += worst;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 2^30 replicas")]
    let dispersion = 100.0 * at_risk as f64 / total;
    (dispersion, name_crowded(tree, devices, &most, &crowded))
}

fn name_crowded(
    tree: &Tree,
    devices: &[Device],
    most: &[u32],
    crowded: &[u32],
) -> Vec<CrowdedElement> {
    let mut named = Vec::new();
    for level in 1..LEVELS {
        for index in tree.level(level).filter(|index| crowded[*index as usize] > 0) {
            let device = &devices[usize::from(tree.element(index).slot)];
            let place = match level {
                1 => format!("r{}", device.region),
                2 => format!("r{}z{}", device.region, device.zone),
                3 => format!("r{}z{}-{}", device.region, device.zone, device.node.name),
                _ => device.to_string(),
            };
            let partitions = crowded[index as usize];
            named.push(CrowdedElement { place, most: most[index as usize], partitions });
        }
    }
    named.sort_by(|a, b| b.partitions.cmp(&a.partitions).then(a.place.cmp(&b.place)));
    named
}

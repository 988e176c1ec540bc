//! How good a ring is, in the two figures that Swift uses.
//!
//! * **Balance**: for each device, how far what it holds is from its share by weight, in percent; for
//!   the ring the worst of them. A device of weight zero that still holds something counts 999.99.
//! * **Dispersion**: of all replicas those, in percent, that lie closer together than the number of
//!   regions, zones, nodes and devices would allow. Weights excuse nothing here.

use martlet_protocol::DeviceId;
use serde::Serialize;

use crate::builder::tree::{LEVELS, Tree};
use crate::builder::{Builder, spread};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::table::{NOBODY, Table};

/// Stands for "infinitely much too much", as in Swift.
pub const BALANCE_WORST: f64 = 999.99;

/// How good a ring is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Worst deviation of a device from its share, in percent.
    pub balance: f64,
    /// Replicas too close together, in percent.
    pub dispersion: f64,
    /// Each device.
    pub devices: Vec<DeviceFigures>,
    /// Where replicas lie too close, worst first.
    pub crowded: Vec<Crowded>,
}

/// How one device stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Which.
    pub id: DeviceId,
    /// Replicas that it holds.
    pub parts: u32,
    /// Replicas that are its share by weight.
    pub desired: f64,
    /// Its deviation in percent: above zero it holds too much.
    pub balance: f64,
}

/// A region, zone or node that holds too many replicas of some partitions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crowded {
    /// `r1`, `r1z2` or `r1z2-alpha`.
    pub place: String,
    /// Replicas of one partition that it would hold if all were as far apart as they can be.
    pub most: u32,
    /// Partitions of which it holds more.
    pub partitions: u32,
}

impl Figures {
    /// Of a ring.
    pub fn of_ring(ring: &Ring) -> Self {
        let removed = vec![false; ring.devices.len()];
        figures(&ring.devices, &removed, &ring.table)
    }

    /// Of a builder as it was last rebalanced, over the devices that it has now.
    pub fn of_builder(builder: &Builder) -> Result<Self> {
        let table = builder
            .table()
            .ok_or_else(|| Error::conflict("there is no ring yet: add devices, then rebalance"))?;
        let (devices, removed) = builder.slots();
        Ok(figures(devices, removed, table))
    }
}

fn figures(devices: &[Device], removed: &[bool], table: &Table) -> Figures {
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
) -> (f64, Vec<Crowded>) {
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

fn name_crowded(tree: &Tree, devices: &[Device], most: &[u32], crowded: &[u32]) -> Vec<Crowded> {
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
            named.push(Crowded { place, most: most[index as usize], partitions });
        }
    }
    named.sort_by(|a, b| b.partitions.cmp(&a.partitions).then(a.place.cmp(&b.place)));
    named
}

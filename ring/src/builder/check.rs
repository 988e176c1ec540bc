//! Validation of a builder, and advice on its settings.

use martlet_protocol::DeviceId;

use super::targets::Targets;
use super::tree::Tree;
use super::{Builder, no_ring_yet};
use crate::device::Device;
use crate::error::{Error, Result};

/// Below this number of replicas, a device can't be balanced within a percent.
const PARTS_FEW: f64 = 100.0;
/// Above this number of replicas on a device, partitions waste memory and comparisons: there is
/// room for a cluster a thousand times larger.
const PARTS_MANY: f64 = 200_000.0;

impl Builder {
    /// Checks the assignment: every replica has a device, and no device holds two of a partition.
    pub fn validate(&self) -> Result<()> {
        let Some(table) = &self.table else { return Err(no_ring_yet()) };
        for (partition, row) in table.rows() {
            for (column, slot) in row.iter().enumerate() {
                if usize::from(*slot) >= self.devices.len() {
                    return Err(Error::corrupt(format!(
                        "replica {column} of partition {partition} has no device: restore the \
                         builder from its ring file"
                    )));
                }
                if row[..column].contains(slot) {
                    let id = self.devices[usize::from(*slot)].id;
                    return Err(Error::corrupt(format!(
                        "{id} holds two replicas of partition {partition}: rebalance"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns advice on the settings, as sentences for operators.
    pub fn advice(&self) -> Vec<String> {
        let live: Vec<&Device> = self.devices().filter(|device| device.weight > 0.0).collect();
        let heaviest = live.iter().map(|device| device.weight).fold(0.0, f64::max);
        let total: f64 = live.iter().map(|device| device.weight).sum();
        if live.is_empty() {
            return vec!["no device has weight: add devices".to_owned()];
        }
        let parts = f64::from(1u32 << self.settings.part_power);
        let total_replicas = parts * self.settings.replicas;
        let count = f64::from(u32::try_from(live.len()).expect("at most 2^16 devices"));
        // A device holds at most one replica of a partition.
        let each = (total_replicas / count).min(parts);
        let mut advice = Vec::new();
        if each < PARTS_FEW {
            advice.push(format!(
                "part power {} gives each device about {each:.0} replicas, too few to balance \
                 within 1 %: use `increase-part-power`, or start with a larger part power",
                self.settings.part_power
            ));
        }
        if each > PARTS_MANY {
            advice.push(format!(
                "part power {} gives each device about {each:.0} replicas, more than useful: every \
                 partition costs memory and comparisons; start with a smaller part power",
                self.settings.part_power
            ));
        }
        if heaviest / total * self.settings.replicas > 1.0 && count > self.settings.replicas {
            advice.push(format!(
                "the heaviest device has {:.0} % of all weight but holds only one replica of each \
                 partition: part of it stays empty",
                heaviest / total * 100.0
            ));
        }
        advice
    }

    /// Devices being drained.
    pub fn draining(&self) -> impl Iterator<Item = DeviceId> {
        self.drains.iter().map(|drain| drain.device)
    }

    /// Overload at which replicas would be as far apart as the devices allow.
    pub fn required_overload(&self) -> f64 {
        let (devices, removed) = self.slots();
        let slots = (0u16..).zip(removed).filter(|(_, gone)| !**gone).map(|(slot, _)| slot);
        let tree = Tree::new(devices, slots);
        if tree.elements.is_empty() {
            return 0.0;
        }
        if f64::from(tree.element(super::tree::ROOT).devices) < self.settings.replicas {
            return 0.0;
        }
        Targets::new(&tree, devices, self.settings.replicas, 0.0).required_overload
    }
}

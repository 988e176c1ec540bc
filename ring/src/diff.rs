//! Differences between two rings.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;
use serde::Serialize;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::ring::Ring;

/// Differences between two rings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Epochs, old and new.
    pub epoch: (u64, u64),
    /// Part powers, old and new.
    pub part_power: (u8, u8),
    /// Replicas, old and new.
    pub replicas: (f64, f64),
    /// Balances, old and new.
    pub balance: (f64, f64),
    /// Dispersions, old and new.
    pub dispersion: (f64, f64),
    /// Devices only in the new ring.
    pub added: Vec<Device>,
    /// Devices only in the old ring.
    pub removed: Vec<Device>,
    /// Devices whose weight or description changed, old and new.
    pub changed: Vec<(Device, Device)>,
    /// Number of partitions with another primary.
    pub partitions: u64,
    /// Number of replicas on another device.
    pub replicas_moved: u64,
    /// Replicas gained and lost by each device.
    pub by_device: BTreeMap<DeviceId, (u64, u64)>,
}

impl Diff {
    /// Computes the difference between `old` and `new`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `new` has fewer partitions.
    pub fn new(old: &Ring, new: &Ring) -> Result<Self> {
        if new.part_power() < old.part_power() {
            return Err(Error::invalid(
                "the second ring has fewer partitions than the first: name the older ring first",
            ));
        }
        let (before, after) = (Figures::of_ring(old), Figures::of_ring(new));
        let only = |a: &Ring, b: &Ring| {
            a.devices().iter().filter(|d| b.device(d.id).is_none()).cloned().collect()
        };
        let pairs = old.devices().iter().filter_map(|d| Some((d, new.device(d.id)?)));
        let mut diff = Self {
            epoch: (old.epoch(), new.epoch()),
            part_power: (old.part_power(), new.part_power()),
            replicas: (old.replicas_exact(), new.replicas_exact()),
            balance: (before.balance, after.balance),
            dispersion: (before.dispersion, after.dispersion),
            added: only(new, old),
            removed: only(old, new),
            changed: pairs.filter(|(a, b)| a != b).map(|(a, b)| (a.clone(), b.clone())).collect(),
            partitions: 0,
            replicas_moved: 0,
            by_device: BTreeMap::new(),
        };
        diff.count_moves(old, new);
        Ok(diff)
    }

    fn count_moves(&mut self, old: &Ring, new: &Ring) {
        for partition in new.partitions() {
            let was = old.partition_of_child(new, partition);
            let came: Vec<DeviceId> = new
                .primaries(partition)
                .filter(|id| !old.primaries(was).any(|o| o == *id))
                .collect();
            for left in old.primaries(was).filter(|id| !new.primaries(partition).any(|n| n == *id))
            {
                self.by_device.entry(left).or_default().1 += 1;
            }
            for id in &came {
                self.by_device.entry(*id).or_default().0 += 1;
            }
            self.partitions += u64::from(!came.is_empty());
            self.replicas_moved += came.len() as u64;
        }
    }
}

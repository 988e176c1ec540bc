//! Test helpers: devices, clusters and pseudo-random numbers.

use martlet_protocol::{DeviceId, PolicyId, Redundancy};

use crate::builder::edit::NewDevice;
use crate::builder::rebalance::RebalanceContext;
use crate::builder::{Builder, RingSettings};
use crate::device::{Device, Node};

/// A device of weight 100.
pub(crate) fn device(id: u32, region: u32, zone: u32, node: &str) -> Device {
    Device {
        id: DeviceId(id),
        region,
        zone,
        node: Node { name: node.to_owned(), address: format!("{node}:6200") },
        name: format!("sd{id}"),
        weight: 100.0,
        meta: String::new(),
    }
}

/// Three zones; the last has two devices, one of twice the weight of the others.
pub(crate) fn lopsided() -> Vec<Device> {
    let mut devices = vec![
        device(0, 1, 1, "a"),
        device(1, 1, 2, "b"),
        device(2, 1, 3, "c"),
        device(3, 1, 3, "d"),
    ];
    devices[3].weight = 200.0;
    devices
}

/// Settings of a ring of 2^`part_power` partitions that may be rebalanced at any time.
pub(crate) fn settings(part_power: u8, replicas: f64) -> RingSettings {
    RingSettings {
        policy: PolicyId(0),
        policy_name: "default".to_owned(),
        redundancy: Redundancy::Replicated,
        part_power,
        replicas,
        min_part_hours: 0,
        overload: 0.0,
    }
}

/// A builder without devices.
pub(crate) fn builder(part_power: u8, replicas: f64) -> Builder {
    Builder::create(settings(part_power, replicas), [7; 16]).unwrap()
}

/// A device to add; nodes of different zones have different addresses.
pub(crate) fn new_device(region: u32, zone: u32, node: u32, disk: u32, weight: f64) -> NewDevice {
    NewDevice {
        region,
        zone,
        node: Node { name: format!("n{node}"), address: format!("10.{region}.{zone}.{node}:6200") },
        name: format!("sd{disk}"),
        weight,
        meta: String::new(),
    }
}

/// Adds zones × nodes × disks to region 1, with zones and nodes numbered from 1.
pub(crate) fn add_zones(
    builder: &mut Builder,
    zones: std::ops::RangeInclusive<u32>,
    nodes: u32,
    disks: u32,
) {
    for zone in zones {
        for node in 1..=nodes {
            for disk in 0..disks {
                builder.add(new_device(1, zone, node, disk, 100.0)).unwrap();
            }
        }
    }
}

/// Settles all moves and rebalances with a seed.
pub(crate) fn rebalance(builder: &mut Builder, seed: u64) -> crate::Report {
    builder.settle().unwrap();
    builder.rebalance(RebalanceContext { now_ms: 1_000_000_000, seed }).unwrap()
}

/// Seeded pseudo-random numbers, so that a failure can be reproduced.
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from((self.next() >> 33) % u64::from(bound)).unwrap()
    }

    /// Returns one of several values.
    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(u32::try_from(of.len()).unwrap()) as usize]
    }
}

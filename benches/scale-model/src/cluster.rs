//! The modelled cluster: racks of nodes of devices, and real rings over them.

use martlet_protocol::{DeviceId, PolicyId, Redundancy};
use martlet_ring::{Builder, DeviceLocation, Node, RebalanceContext, Ring, RingSettings};
use serde::Serialize;

use crate::error::{Error, Result};

/// Least number of replicas on each device, which decides the number of partitions.
const REPLICAS_MIN: f64 = 200.0;
/// Hour of the first rebalance, in milliseconds.
const START_MS: u64 = 1;

/// Numbers of racks, nodes and devices. Devices have ids in the order of racks and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Shape {
    pub(crate) racks: u32,
    pub(crate) nodes_a_rack: u32,
    pub(crate) devices_a_node: u32,
}

impl Shape {
    /// Number of nodes.
    pub(crate) fn nodes(self) -> u32 {
        self.racks * self.nodes_a_rack
    }

    /// Number of devices.
    pub(crate) fn devices(self) -> u32 {
        self.nodes() * self.devices_a_node
    }

    /// Returns the node of a device.
    pub(crate) fn node_of(self, device: u16) -> usize {
        usize::from(device) / self.devices_a_node as usize
    }

    /// Returns the rack of a device.
    pub(crate) fn rack_of(self, device: u16) -> usize {
        self.node_of(device) / self.nodes_a_rack as usize
    }

    /// Devices of one rack.
    pub(crate) fn rack_devices(self) -> u32 {
        self.nodes_a_rack * self.devices_a_node
    }
}

/// Kind of data that a ring places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Content {
    /// Extents, which `replicate-data` or `reconstruct` repair on their walks.
    Extents,
    /// Registers of the index, which `sync` brings to a new holder.
    Registers,
}

/// A ring's redundancy.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Policy {
    pub(crate) name: &'static str,
    pub(crate) content: Content,
    /// Devices of a partition.
    pub(crate) width: u8,
    /// Devices of a partition that may be lost.
    pub(crate) spare: u8,
}

impl Policy {
    /// Policies of a run.
    pub(crate) const ALL: [Self; 4] = [
        Self { name: "3 copies", content: Content::Extents, width: 3, spare: 2 },
        Self { name: "4+2", content: Content::Extents, width: 6, spare: 2 },
        Self { name: "8+3", content: Content::Extents, width: 11, spare: 3 },
        Self { name: "index, 3 copies", content: Content::Registers, width: 3, spare: 2 },
    ];

    /// Returns true if replicas are fragments of a code.
    pub(crate) fn is_coded(self) -> bool {
        self.width > self.spare + 1
    }

    /// Number of replicas that restore a lost one.
    pub(crate) fn needed(self) -> u8 {
        self.width - self.spare
    }

    /// Devices with which a replica's sums are compared: all other holders of a copy, or those of
    /// the watched fragments.
    pub(crate) fn compared(self) -> f64 {
        f64::from(if self.is_coded() { self.spare } else { self.width - 1 })
    }

    fn redundancy(self) -> Result<Redundancy> {
        if !self.is_coded() {
            return Ok(Redundancy::Replicated);
        }
        Redundancy::erasure(self.needed(), self.spare)
            .map_err(|error| Error::Invalid(error.to_string()))
    }
}

/// Returns the builder of a policy's ring, placed and settled.
pub(crate) fn build(shape: Shape, policy: Policy, seed: u64) -> Result<Builder> {
    let replicas = f64::from(policy.width);
    let devices = f64::from(shape.devices());
    let part_power = (REPLICAS_MIN * devices / replicas).log2().ceil().clamp(1.0, 23.0) as u8;
    let settings = RingSettings {
        policy: PolicyId(0),
        policy_name: policy.name.replace([' ', ','], "-"),
        redundancy: policy.redundancy()?,
        part_power,
        replicas,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [1; 16])?;
    add_racks(&mut builder, shape, shape.racks)?;
    rebalance(&mut builder, seed)?;
    Ok(builder)
}

/// Adds racks behind the present ones.
pub(crate) fn add_racks(builder: &mut Builder, shape: Shape, racks: u32) -> Result<()> {
    let first = builder.devices().count() as u32 / shape.rack_devices();
    for rack in first..first + racks {
        for node in 0..shape.nodes_a_rack {
            let address = format!("10.{rack}.{}.{}:6200", node / 250, node % 250);
            for disk in 0..shape.devices_a_node {
                let node = Node { name: format!("n{node}"), address: address.clone() };
                let name = format!("d{disk}");
                let place = DeviceLocation { region: 1, zone: rack + 1, node, name };
                builder.add(place.with(100.0, ""))?;
            }
        }
    }
    Ok(())
}

/// Rebalances until nothing is left to move, and settles each time. Returns the number of replicas
/// that moved or were placed, and that of rebalances.
pub(crate) fn rebalance(builder: &mut Builder, seed: u64) -> Result<Rebalances> {
    let mut all = Rebalances::default();
    loop {
        let report = builder.rebalance(RebalanceContext { now_ms: START_MS, seed })?;
        builder.settle()?;
        all.replicas += report.moved + report.placed;
        all.count += 1;
        if report.rebalances_to_go == 0 || all.count == 8 {
            return Ok(all);
        }
    }
}

/// Rebalances of one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rebalances {
    pub(crate) replicas: u64,
    pub(crate) count: u32,
}

/// One replica of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) partition: u32,
    pub(crate) replica: u8,
}

/// Assignment of a ring in a form for simulation.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) shape: Shape,
    pub(crate) policy: Policy,
    width: usize,
    devices: Vec<u16>,
    slots: Vec<Vec<Slot>>,
}

impl Placement {
    /// Reads a ring whose devices have ids in the order of racks and nodes.
    pub(crate) fn new(shape: Shape, policy: Policy, ring: &Ring) -> Result<Self> {
        let width = ring.replicas();
        let all = usize::from(ring.devices().last().map_or(0, |it| it.id.0 as u16)) + 1;
        let mut devices = Vec::with_capacity(width << ring.part_power());
        let mut slots = vec![Vec::new(); all];
        for partition in ring.partitions() {
            for (replica, DeviceId(device)) in (0..).zip(ring.primaries(partition)) {
                let device = u16::try_from(device).map_err(|_| {
                    Error::Invalid(format!("device {device} is beyond 65,535: use fewer devices"))
                })?;
                devices.push(device);
                slots[usize::from(device)].push(Slot { partition: partition.0, replica });
            }
        }
        Ok(Self { shape, policy, width, devices, slots })
    }

    /// Devices of a partition, by replica.
    pub(crate) fn row(&self, partition: u32) -> &[u16] {
        let from = partition as usize * self.width;
        &self.devices[from..from + self.width]
    }

    /// Replicas on a device, by partition.
    pub(crate) fn slots(&self, device: usize) -> &[Slot] {
        &self.slots[device]
    }

    /// Number of partitions.
    pub(crate) fn partitions(&self) -> u32 {
        (self.devices.len() / self.width) as u32
    }

    /// Average replicas on a device.
    pub(crate) fn replicas_a_device(&self) -> f64 {
        self.devices.len() as f64 / f64::from(self.shape.devices())
    }

    /// Number of partitions with two replicas in one rack.
    pub(crate) fn crowded(&self) -> usize {
        let is_crowded = |row: &&[u16]| {
            (1..row.len()).any(|at| {
                row[..at].iter().any(|it| self.shape.rack_of(*it) == self.shape.rack_of(row[at]))
            })
        };
        self.devices.chunks(self.width).filter(is_crowded).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement, Policy, Shape, add_racks, build, rebalance};

    const SHAPE: Shape = Shape { racks: 6, nodes_a_rack: 2, devices_a_node: 3 };

    #[test]
    fn a_placement_has_each_replica_of_the_ring_once() {
        for policy in &Policy::ALL[..2] {
            let ring = build(SHAPE, *policy, 1).unwrap().ring().unwrap();
            let placement = Placement::new(SHAPE, *policy, &ring).unwrap();
            let all: usize = (0..36).map(|device| placement.slots(device).len()).sum();
            assert_eq!(all, placement.partitions() as usize * usize::from(policy.width));
            assert!(placement.replicas_a_device() >= 200.0);
            assert_eq!(placement.crowded(), 0, "{}", policy.name);
            for slot in placement.slots(7) {
                assert_eq!(placement.row(slot.partition)[usize::from(slot.replica)], 7);
            }
        }
    }

    #[test]
    fn racks_are_added_behind_the_others() {
        let mut builder = build(SHAPE, Policy::ALL[0], 1).unwrap();
        add_racks(&mut builder, SHAPE, 1).unwrap();
        rebalance(&mut builder, 2).unwrap();
        let ring = builder.ring().unwrap();
        let last = ring.devices().last().unwrap();
        assert_eq!((last.id.0, last.zone, ring.devices().len()), (41, 7, 42));
        assert_eq!(SHAPE.rack_of(41), 6);
    }
}

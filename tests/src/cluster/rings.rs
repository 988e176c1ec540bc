//! Rings of a cluster: the first epoch and later ones.
//!
//! One index ring holds entries, and each policy has a ring of extents. All rings have equal
//! devices with equal ids, and each node is a zone of its own. So three copies lie on three nodes,
//! and the fragments of an extent on as many nodes as possible.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use martlet_protocol::{Clock, DeviceId, PolicyId, Redundancy, SystemClock};
use martlet_ring::{Builder, DeviceInfo, NewDevice, Node, RebalanceContext, Ring, RingSettings};

use super::member::ClusterMember;
use super::plan::ClusterPlan;
pub use super::ring_files::{DATA, INDEX};
use super::ring_files::{names, path};

const PART_POWER: u8 = 5;
const COPIES: f64 = 3.0;

/// Builder of all rings; writes them to the folder of the cluster.
#[derive(Debug)]
pub struct RingMaker {
    folder: PathBuf,
    /// The index ring's builder, then one builder for each policy.
    builders: Vec<(String, Builder)>,
}

impl RingMaker {
    /// Makes the first rings over these nodes and writes them.
    pub(super) fn new(folder: &Path, nodes: &[ClusterMember], plan: &ClusterPlan) -> Self {
        let all = std::iter::once((PolicyId(0), Redundancy::Replicated));
        let all = all.chain((0..).map(PolicyId).zip(plan.policies.iter().copied()));
        let made = all.zip(1..).map(|((policy, redundancy), lineage)| {
            let mut builder = Builder::create(settings(policy, redundancy), [lineage; 16]).unwrap();
            for (number, node) in (1..).zip(nodes) {
                for device in 1..=plan.devices {
                    builder.add(new_device(number, node, device)).unwrap();
                }
            }
            rebalance(&mut builder);
            builder
        });
        let builders = names(plan.policies.len()).zip(made).collect();
        let maker = Self { folder: folder.to_owned(), builders };
        maker.save();
        maker
    }

    /// Names of all rings, the index ring first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.builders.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the newest ring of each policy.
    pub fn of_policies(&self) -> BTreeMap<PolicyId, Ring> {
        let rings = self.builders[1..].iter().map(|(_, builder)| builder.ring().unwrap());
        rings.map(|ring| (ring.identity().policy, ring)).collect()
    }

    /// Path of a ring's file.
    pub fn path(&self, name: &str) -> PathBuf {
        path(&self.folder, name)
    }

    /// Returns the newest ring of a name. Panics if the cluster has no such ring.
    pub fn ring(&self, name: &str) -> Ring {
        let (_, builder) = self.builders.iter().find(|(own, _)| own == name).expect(name);
        builder.ring().unwrap()
    }

    /// Returns a ring of the next epoch with unchanged placement.
    pub fn next_epoch(&mut self, name: &str) -> Ring {
        let builder = self.builders.iter_mut().find(|(own, _)| own == name);
        let (_, builder) = builder.expect("a ring of the cluster");
        let id = builder.devices().next().unwrap().id;
        let meta = Some(format!("after epoch {}", builder.epoch()));
        builder.set_info(id, DeviceInfo { meta, ..DeviceInfo::default() }).unwrap();
        rebalance(builder);
        self.ring(name)
    }

    /// Adds nodes with `devices` devices each to zones of all rings, in one change, and writes the
    /// rings.
    pub(super) fn add_nodes(&mut self, nodes: &[(u32, &ClusterMember)], devices: usize) {
        self.change(|builder| {
            for (zone, node) in nodes {
                for device in 1..=devices {
                    builder.add(new_device(*zone, node, device)).unwrap();
                }
            }
        });
    }

    /// Drains all devices of a node in new rings, and writes the rings.
    pub fn drain_node(&mut self, node: &str) {
        self.change(|builder| {
            for id in devices_of(builder, node) {
                builder.drain(id, 1).unwrap();
            }
        });
    }

    /// Removes a node from new rings, and writes the rings.
    pub fn remove_node(&mut self, node: &str) {
        self.change(|builder| {
            for id in devices_of(builder, node) {
                builder.remove(id, true).unwrap();
            }
        });
    }

    /// Marks all moves as done: later rings record no previous holders.
    pub fn settle(&mut self) {
        for (_, builder) in &mut self.builders {
            builder.settle().unwrap();
        }
    }

    /// Writes the newest rings to the files that processes read at their start.
    fn save(&self) {
        for name in self.names() {
            self.ring(name).save(&self.path(name)).unwrap();
        }
    }

    fn change(&mut self, change: impl Fn(&mut Builder)) {
        for (_, builder) in &mut self.builders {
            change(builder);
            rebalance(builder);
        }
        self.save();
    }
}

fn settings(policy: PolicyId, redundancy: Redundancy) -> RingSettings {
    let policy_name =
        if policy.0 == 0 { "default".to_owned() } else { format!("policy-{}", policy.0) };
    RingSettings {
        policy,
        policy_name,
        redundancy,
        part_power: PART_POWER,
        replicas: redundancy.fragments().map_or(COPIES, f64::from),
        min_part_hours: 0,
        overload: 0.1,
    }
}

fn devices_of(builder: &Builder, node: &str) -> Vec<DeviceId> {
    builder.devices().filter(|device| device.node.name == node).map(|device| device.id).collect()
}

fn new_device(zone: u32, node: &ClusterMember, device: usize) -> NewDevice {
    let address = node.address.to_string();
    let (region, weight, meta) = (1, 100.0, String::new());
    let node = Node { name: node.name.clone(), address };
    NewDevice { region, zone, node, name: format!("d{device}"), weight, meta }
}

fn rebalance(builder: &mut Builder) {
    let occasion = RebalanceContext { now_ms: SystemClock.now_ms(), seed: builder.epoch() + 1 };
    builder.rebalance(occasion).unwrap();
    builder.validate().unwrap();
}

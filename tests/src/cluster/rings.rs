//! The rings of a cluster: the first ones, and newer ones.
//!
//! There is one of entries, and one for each policy. All have the same devices under the same ids,
//! each node in a zone of its own, so that the three copies of everything lie on three nodes, and
//! the fragments of an extent on as many nodes as there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use martlet_protocol::{Clock, DeviceId, PolicyId, Redundancy, SystemClock};
use martlet_ring::{Builder, DeviceInfo, NewDevice, Node, Occasion, Ring, Settings};

use super::{Member, Plan};

/// The name of the ring of entries.
pub const INDEX: &str = "index";
/// The name of the ring of extents of policy 0, that of new buckets.
pub const DATA: &str = "data-0";
const PART_POWER: u8 = 5;
const COPIES: f64 = 3.0;

/// Makes rings, and writes them to the folder of the cluster.
#[derive(Debug)]
pub struct RingMaker {
    folder: PathBuf,
    /// That of entries, then one for each policy.
    builders: Vec<(String, Builder)>,
}

/// The names of all rings: that of entries, then one for each of so many policies.
pub(super) fn names(policies: usize) -> impl Iterator<Item = String> {
    let data = (0..policies).map(|policy| format!("data-{policy}"));
    std::iter::once(INDEX.to_owned()).chain(data)
}

/// Where a ring lies in the folder of its cluster.
pub(super) fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.ring"))
}

impl RingMaker {
    /// The first rings over these nodes, written.
    pub(super) fn new(folder: &Path, nodes: &[Member], plan: &Plan) -> Self {
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

    /// The names of all rings, that of entries first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.builders.iter().map(|(name, _)| name.as_str())
    }

    /// The newest ring of each policy.
    pub fn of_policies(&self) -> BTreeMap<PolicyId, Ring> {
        let rings = self.builders[1..].iter().map(|(_, builder)| builder.ring().unwrap());
        rings.map(|ring| (ring.identity().policy, ring)).collect()
    }

    /// Where a ring is written.
    pub fn path(&self, name: &str) -> PathBuf {
        path(&self.folder, name)
    }

    /// The newest ring of a name.
    pub fn ring(&self, name: &str) -> Ring {
        let (_, builder) = self.builders.iter().find(|(own, _)| own == name).expect(name);
        builder.ring().unwrap()
    }

    /// A ring of the next epoch that places everything where it was.
    pub fn next_epoch(&mut self, name: &str) -> Ring {
        let builder = self.builders.iter_mut().find(|(own, _)| own == name);
        let (_, builder) = builder.expect("a ring of the cluster");
        let id = builder.devices().next().unwrap().id;
        let meta = Some(format!("after epoch {}", builder.epoch()));
        builder.set_info(id, DeviceInfo { meta, ..DeviceInfo::default() }).unwrap();
        rebalance(builder);
        self.ring(name)
    }

    /// Adds nodes with so many devices each to zones of all rings, all at once.
    pub(super) fn add_nodes(&mut self, nodes: &[(u32, &Member)], devices: usize) {
        self.change(|builder| {
            for (zone, node) in nodes {
                for device in 1..=devices {
                    builder.add(new_device(*zone, node, device)).unwrap();
                }
            }
        });
    }

    /// Lets a node hold nothing in the rings that come next.
    pub fn drain_node(&mut self, node: &str) {
        self.change(|builder| {
            for id in devices_of(builder, node) {
                builder.drain(id, 1).unwrap();
            }
        });
    }

    /// Takes a node out of the rings that come next.
    pub fn remove_node(&mut self, node: &str) {
        self.change(|builder| {
            for id in devices_of(builder, node) {
                builder.remove(id, true).unwrap();
            }
        });
    }

    /// Says that all moves are done: rings that follow remember no previous holders.
    pub fn settle(&mut self) {
        for (_, builder) in &mut self.builders {
            builder.settle().unwrap();
        }
    }

    /// Writes the newest rings where processes find them when they start.
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

fn settings(policy: PolicyId, redundancy: Redundancy) -> Settings {
    let policy_name =
        if policy.0 == 0 { "default".to_owned() } else { format!("policy-{}", policy.0) };
    Settings {
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

fn new_device(zone: u32, node: &Member, device: usize) -> NewDevice {
    let address = node.address.to_string();
    let (region, weight, meta) = (1, 100.0, String::new());
    let node = Node { name: node.name.clone(), address };
    NewDevice { region, zone, node, name: format!("d{device}"), weight, meta }
}

fn rebalance(builder: &mut Builder) {
    let occasion = Occasion { now_ms: SystemClock.now_ms(), seed: builder.epoch() + 1 };
    builder.rebalance(occasion).unwrap();
    builder.validate().unwrap();
}

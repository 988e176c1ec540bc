//! The rings of a cluster: the first ones, and newer ones.
//!
//! Both rings have the same devices under the same ids, each node in a zone of its own, so that the
//! three copies of everything lie on three nodes.

use std::path::{Path, PathBuf};

use martlet_protocol::{Clock, DeviceId, PolicyId, SystemClock};
use martlet_ring::{Builder, DeviceInfo, NewDevice, Node, Occasion, Ring, Settings};

use super::Member;

/// The name of the ring of entries.
pub const INDEX: &str = "index";
/// The name of the ring of extents.
pub const DATA: &str = "data-0";
const PART_POWER: u8 = 5;
const COPIES: f64 = 3.0;

/// Makes rings, and writes them to the folder of the cluster.
#[derive(Debug)]
pub struct RingMaker {
    folder: PathBuf,
    index: Builder,
    data: Builder,
}

impl RingMaker {
    /// The first rings over these nodes, written.
    pub(super) fn new(folder: &Path, nodes: &[Member], devices: usize) -> Self {
        let made = |lineage| {
            let mut builder = Builder::create(settings(), [lineage; 16]).unwrap();
            for (number, node) in (1..).zip(nodes) {
                for device in 1..=devices {
                    builder.add(new_device(number, node, device)).unwrap();
                }
            }
            rebalance(&mut builder);
            builder
        };
        let maker = Self { folder: folder.to_owned(), index: made(1), data: made(2) };
        maker.save();
        maker
    }

    /// Where a ring is written.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ring"))
    }

    /// The newest ring of a name.
    pub fn ring(&self, name: &str) -> Ring {
        self.builder(name).ring().unwrap()
    }

    /// A ring of the next epoch that places everything where it was.
    pub fn next_epoch(&mut self, name: &str) -> Ring {
        let builder = if name == INDEX { &mut self.index } else { &mut self.data };
        let id = builder.devices().next().unwrap().id;
        let meta = Some(format!("after epoch {}", builder.epoch()));
        builder.set_info(id, DeviceInfo { meta, ..DeviceInfo::default() }).unwrap();
        rebalance(builder);
        self.ring(name)
    }

    /// Adds nodes with so many devices each to zones of both rings, all at once.
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
        for builder in [&mut self.index, &mut self.data] {
            builder.settle().unwrap();
        }
    }

    /// Writes the newest rings where processes find them when they start.
    fn save(&self) {
        for name in [INDEX, DATA] {
            self.ring(name).save(&self.path(name)).unwrap();
        }
    }

    fn change(&mut self, change: impl Fn(&mut Builder)) {
        for builder in [&mut self.index, &mut self.data] {
            change(builder);
            rebalance(builder);
        }
        self.save();
    }

    fn builder(&self, name: &str) -> &Builder {
        if name == INDEX { &self.index } else { &self.data }
    }
}

fn settings() -> Settings {
    Settings {
        policy: PolicyId(0),
        policy_name: "default".to_owned(),
        redundancy: martlet_protocol::Redundancy::Replicated,
        part_power: PART_POWER,
        replicas: COPIES,
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

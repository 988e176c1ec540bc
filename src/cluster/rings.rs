//! The rings of a cluster, and the builders that make them.
//!
//! ```text
//! <dir>/index.builder    ─▶ index.ring      where entries lie
//! <dir>/data-0.builder   ─▶ data-0.ring     where new extents go
//! ```
//!
//! * A device has the same id in both rings: nodes know a device by one id.
//! * A node that joins gets its share of both rings. Their moves name the previous holders: extents
//!   written before are found there until the replicators have brought them over, and entries are
//!   decided upon by both holders until the ring change is over.

use std::path::{Path, PathBuf};

use martlet_protocol::{Clock, PolicyId, SystemClock};
use martlet_ring::{Builder, NewDevice, Occasion, Report, Ring, Settings};

use super::layout::{Layout, Node, loopback};
use crate::failure::Failure;

pub(super) const INDEX: &str = "index";
pub(super) const DATA: &str = "data-0";
const POLICY: PolicyId = PolicyId(0);
/// Replicas that a device should hold about, so that each gets its share within a few percent.
const REPLICAS_A_DEVICE: usize = 200;
/// A ring keeps its number of partitions: leave room for a cluster that grows.
const GROWTH: usize = 4;
const MIN_PART_HOURS: u32 = 1;
/// A device may hold a tenth more than its share, so that copies lie in different zones.
const OVERLOAD: f64 = 0.1;
/// All devices are as large as each other: they share a disk.
const WEIGHT: f64 = 100.0;
const WHO: &str = "martlet cluster";

/// The ring file of a name.
pub(super) fn ring_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.ring"))
}

fn builder_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.builder"))
}

/// Makes the rings that are missing.
pub(super) fn make_missing(dir: &Path, layout: &Layout) -> Result<(), Failure> {
    for name in [INDEX, DATA] {
        let (builder_path, ring_path) = (builder_path(dir, name), ring_path(dir, name));
        if ring_path.exists() {
            continue;
        }
        let builder = if builder_path.exists() {
            Builder::load(&builder_path)?
        } else {
            let builder = first_builder(name, layout)?;
            builder.save(&builder_path)?;
            builder
        };
        builder.ring()?.save(&ring_path)?;
    }
    Ok(())
}

fn first_builder(name: &str, layout: &Layout) -> Result<Builder, Failure> {
    let mut lineage = [0; 16];
    getrandom::fill(&mut lineage)
        .map_err(|error| Failure::refused(format!("no random numbers can be had: {error}")))?;
    #[expect(clippy::cast_precision_loss, reason = "a handful of replicas")]
    let settings = Settings {
        policy: POLICY,
        policy_name: if name == INDEX { INDEX } else { "default" }.to_owned(),
        redundancy: martlet_protocol::Redundancy::Replicated,
        part_power: part_power(layout),
        replicas: layout.replicas as f64,
        min_part_hours: MIN_PART_HOURS,
        overload: OVERLOAD,
    };
    let mut builder = Builder::create(settings, lineage)?;
    for device in layout.nodes.iter().flat_map(devices) {
        builder.add(device)?;
    }
    rebalance(&mut builder, "made the first ring")?;
    Ok(builder)
}

fn part_power(layout: &Layout) -> u8 {
    let devices: usize = layout.nodes.iter().map(|node| node.devices.len()).sum();
    let parts = (devices * GROWTH * REPLICAS_A_DEVICE / layout.replicas).next_power_of_two();
    #[expect(clippy::cast_possible_truncation, reason = "at most 20")]
    let power = parts.trailing_zeros() as u8;
    power.clamp(8, 16)
}

fn devices(node: &Node) -> impl Iterator<Item = NewDevice> {
    node.devices.iter().map(move |name| NewDevice {
        region: 1,
        zone: node.zone,
        node: martlet_ring::Node {
            name: node.name.clone(),
            address: loopback(node.internal_port).to_string(),
        },
        name: name.clone(),
        weight: WEIGHT,
        meta: String::new(),
    })
}

fn rebalance(builder: &mut Builder, what: &str) -> Result<Report, Failure> {
    let now_ms = SystemClock.now_ms();
    let report = builder.rebalance(Occasion { now_ms, seed: builder.epoch() + 1 })?;
    builder.validate()?;
    builder.record(now_ms, WHO, what);
    Ok(report)
}

/// What a node's joining does to the rings, and the builders to be saved once nothing can fail any
/// more.
pub(super) struct Joining {
    pub(super) index: Report,
    pub(super) data: Report,
    builders: [(&'static str, Builder); 2],
}

impl Joining {
    /// Gives a node its share of both rings; writes nothing yet.
    pub(super) fn of(dir: &Path, node: &Node) -> Result<Self, Failure> {
        let widen = |name: &'static str| -> Result<_, Failure> {
            let mut builder = Builder::load(&builder_path(dir, name))?;
            for device in devices(node) {
                builder.add(device)?;
            }
            let report = rebalance(&mut builder, &format!("added {}", node.name))?;
            Ok((report, (name, builder)))
        };
        let ((index, index_builder), (data, data_builder)) = (widen(INDEX)?, widen(DATA)?);
        Ok(Self { index, data, builders: [index_builder, data_builder] })
    }

    /// Writes the builders and the rings.
    pub(super) fn save(&self, dir: &Path) -> Result<(), Failure> {
        for (name, builder) in &self.builders {
            builder.save(&builder_path(dir, name))?;
            builder.ring()?.save(&ring_path(dir, name))?;
        }
        Ok(())
    }
}

/// The rings that servers read, by name.
pub(super) fn load(dir: &Path) -> Result<[(&'static str, Ring); 2], Failure> {
    let ring = |name| Ok::<_, Failure>((name, Ring::load(&ring_path(dir, name))?));
    Ok([ring(INDEX)?, ring(DATA)?])
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{Phase, Term};

    use super::super::layout::tests::layout;
    use super::super::ports::Ports;
    use super::*;

    fn made() -> (tempfile::TempDir, Layout) {
        let (place, layout) = (tempfile::tempdir().unwrap(), layout());
        make_missing(place.path(), &layout).unwrap();
        (place, layout)
    }

    #[test]
    fn both_rings_know_a_device_by_the_same_id_and_address() {
        let (place, layout) = made();
        let [(_, index), (_, data)] = load(place.path()).unwrap();
        assert_eq!(index.devices(), data.devices());
        assert_eq!((index.replicas(), index.devices().len()), (3, 8));
        let address = loopback(layout.nodes[3].internal_port).to_string();
        assert_eq!(index.devices()[7].node.address, address);
        for partition in index.partitions() {
            let nodes = index.primaries(partition).filter_map(|id| index.device(id));
            let nodes: std::collections::HashSet<_> = nodes.map(|it| &it.node.name).collect();
            assert_eq!(nodes.len(), 3, "{partition:?} has copies on one node");
        }
    }

    #[test]
    fn a_second_start_keeps_the_rings() {
        let (place, layout) = made();
        let before = load(place.path()).unwrap().map(|(_, ring)| ring.hash());
        make_missing(place.path(), &layout).unwrap();
        assert_eq!(load(place.path()).unwrap().map(|(_, ring)| ring.hash()), before);
        // A ring that was lost is written again from its builder.
        std::fs::remove_file(ring_path(place.path(), DATA)).unwrap();
        make_missing(place.path(), &layout).unwrap();
        assert_eq!(load(place.path()).unwrap().map(|(_, ring)| ring.hash()), before);
    }

    #[test]
    fn a_node_that_joins_gets_its_share_of_both_rings() {
        let (place, mut layout) = made();
        let before = load(place.path()).unwrap();
        let node = layout.add_node(None, &mut Ports::default()).unwrap().clone();
        let joining = Joining::of(place.path(), &node).unwrap();
        assert_eq!(load(place.path()).unwrap()[1].1.epoch(), 1, "written before it was asked");
        joining.save(place.path()).unwrap();
        let after = load(place.path()).unwrap();
        let reports = [&joining.index, &joining.data];
        for (((name, old), (_, new)), report) in before.iter().zip(&after).zip(reports) {
            assert_eq!((new.epoch(), new.devices().len()), (2, 10), "{name}");
            old.check_index_successor(new, Term::of(old.change(), Phase::New)).unwrap();
            // Every replica that went to the new node names who held it before.
            let mut moved = 0;
            for partition in new.partitions() {
                let pairs = old.primaries(partition).zip(new.primaries(partition));
                for (replica, (from, to)) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
                    moved += 1;
                    assert_eq!(new.previous(partition, replica), Some(from));
                    assert_eq!(new.device(to).unwrap().node.name, "n5");
                }
            }
            assert!(moved == report.moved && moved > 0, "{name}");
        }
    }

    #[test]
    fn ids_stay_the_same_in_both_builders_however_many_join() {
        let (place, mut layout) = made();
        let node = layout.add_node(None, &mut Ports::default()).unwrap().clone();
        Joining::of(place.path(), &node).unwrap().save(place.path()).unwrap();
        let ids = |name| {
            let builder = Builder::load(&builder_path(place.path(), name)).unwrap();
            builder
                .devices()
                .map(|it| (it.id, it.node.clone(), it.name.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(INDEX), ids(DATA));
    }

    #[test]
    fn a_second_node_waits_until_the_moves_for_the_first_are_done() {
        let (place, mut layout) = made();
        let ports = &mut Ports::default();
        let node = layout.add_node(None, ports).unwrap().clone();
        Joining::of(place.path(), &node).unwrap().save(place.path()).unwrap();
        let node = layout.add_node(None, ports).unwrap().clone();
        let Err(refusal) = Joining::of(place.path(), &node) else { panic!("it was allowed") };
        assert!(refusal.to_string().contains("min-part-hours"), "{refusal}");
    }
}

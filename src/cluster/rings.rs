//! The rings of a cluster, and the builders that make them.
//!
//! ```text
//! <dir>/index.builder    ─▶ index.ring      where entries lie
//! <dir>/data-0.builder   ─▶ data-0.ring     where new extents go, as copies
//! <dir>/data-1.builder   ─▶ data-1.ring     the first policy of fragments, and so on
//! ```
//!
//! * A device has the same id in all rings: nodes know a device by one id.
//! * A node that joins gets its share of all rings. Their moves name the previous holders: extents
//!   written before are found there until the replicators have brought them over, and entries are
//!   decided upon by both holders until the ring change is over.

use std::path::{Path, PathBuf};

use martlet_protocol::{Clock, PolicyId, Redundancy, SystemClock};
use martlet_ring::{Builder, NewDevice, Occasion, Report, Ring, Settings};

use super::layout::{Layout, Node, loopback};
use crate::failure::Failure;
use crate::policies::FIRST_NAME;

pub(super) const INDEX: &str = "index";
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

/// What a ring is for: the index, or a storage policy.
struct Purpose {
    file: String,
    policy: PolicyId,
    policy_name: String,
    redundancy: Redundancy,
}

impl Purpose {
    /// All that a layout has, the index first.
    fn all(layout: &Layout) -> Vec<Self> {
        let copies = |file: &str, policy_name: &str| Self {
            file: file.to_owned(),
            policy: PolicyId(0),
            policy_name: policy_name.to_owned(),
            redundancy: Redundancy::Replicated,
        };
        let mut all = vec![copies(INDEX, INDEX), copies("data-0", FIRST_NAME)];
        all.extend((1..).zip(&layout.policies).map(|(number, policy)| Self {
            file: format!("data-{number}"),
            policy: PolicyId(number),
            policy_name: policy.name.clone(),
            redundancy: policy.code,
        }));
        all
    }

    fn replicas(&self, layout: &Layout) -> usize {
        self.redundancy.fragments().map_or(layout.replicas, usize::from)
    }
}

/// The names of the rings of a layout: the index, then those of extents by the number of their policy.
pub(super) fn names(layout: &Layout) -> Vec<String> {
    Purpose::all(layout).into_iter().map(|purpose| purpose.file).collect()
}

/// Makes the rings that are missing.
pub(super) fn make_missing(dir: &Path, layout: &Layout) -> Result<(), Failure> {
    for purpose in Purpose::all(layout) {
        let name = &purpose.file;
        let (builder_path, ring_path) = (builder_path(dir, name), ring_path(dir, name));
        if ring_path.exists() {
            continue;
        }
        let builder = if builder_path.exists() {
            Builder::load(&builder_path)?
        } else {
            let builder = first_builder(&purpose, layout)?;
            builder.save(&builder_path)?;
            builder
        };
        builder.ring()?.save(&ring_path)?;
    }
    Ok(())
}

fn first_builder(purpose: &Purpose, layout: &Layout) -> Result<Builder, Failure> {
    let mut lineage = [0; 16];
    getrandom::fill(&mut lineage)
        .map_err(|error| Failure::refused(format!("no random numbers can be had: {error}")))?;
    #[expect(clippy::cast_precision_loss, reason = "a handful of replicas")]
    let settings = Settings {
        policy: purpose.policy,
        policy_name: purpose.policy_name.clone(),
        redundancy: purpose.redundancy,
        part_power: part_power(layout, purpose.replicas(layout)),
        replicas: purpose.replicas(layout) as f64,
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

fn part_power(layout: &Layout, replicas: usize) -> u8 {
    let devices: usize = layout.nodes.iter().map(|node| node.devices.len()).sum();
    let parts = (devices * GROWTH * REPLICAS_A_DEVICE / replicas).next_power_of_two();
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
pub(super) struct Joining(Vec<Widened>);

/// A ring with the devices of a node that joins.
pub(super) struct Widened {
    pub(super) name: String,
    pub(super) report: Report,
    builder: Builder,
}

impl Joining {
    /// Gives a node its share of all rings; writes nothing yet.
    pub(super) fn of(dir: &Path, layout: &Layout, node: &Node) -> Result<Self, Failure> {
        let widen = |name: String| -> Result<_, Failure> {
            let mut builder = Builder::load(&builder_path(dir, &name))?;
            for device in devices(node) {
                builder.add(device)?;
            }
            let report = rebalance(&mut builder, &format!("added {}", node.name))?;
            Ok(Widened { name, report, builder })
        };
        names(layout).into_iter().map(widen).collect::<Result<_, _>>().map(Self)
    }

    /// The rings: those of extents first, so that nobody looks in vain for what an entry names.
    pub(super) fn rings(&self) -> impl Iterator<Item = &Widened> {
        self.0.iter().skip(1).chain(self.0.first())
    }

    /// Writes the builders and the rings.
    pub(super) fn save(&self, dir: &Path) -> Result<(), Failure> {
        for Widened { name, builder, .. } in &self.0 {
            builder.save(&builder_path(dir, name))?;
            builder.ring()?.save(&ring_path(dir, name))?;
        }
        Ok(())
    }
}

/// The rings that servers read, by name.
pub(super) fn load(dir: &Path, layout: &Layout) -> Result<Vec<(String, Ring)>, Failure> {
    let ring = |name: String| {
        let ring = Ring::load(&ring_path(dir, &name))?;
        Ok((name, ring))
    };
    names(layout).into_iter().map(ring).collect()
}

#[cfg(test)]
mod tests;

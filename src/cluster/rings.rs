//! Rings of a cluster, and the builders that make them.
//!
//! ```text
//! <dir>/index.builder    ─▶ index.ring      places entries
//! <dir>/data-0.builder   ─▶ data-0.ring     places new extents, as copies
//! <dir>/data-1.builder   ─▶ data-1.ring     the first erasure-coded policy, and so on
//! ```
//!
//! * A device has one id in all rings.
//! * A node that joins gets its share of all rings. The rings' moves name the previous holders.
//!   Older extents are read from these until the replicators have copied them. Entries are decided
//!   by both holders until the ring change is over.

use std::path::{Path, PathBuf};

use martlet_protocol::{Clock, PolicyId, Redundancy, SystemClock};
use martlet_ring::{Builder, NewDevice, RebalanceContext, Report, Ring, RingSettings};
use martlet_ring_steps::policy::FIRST_NAME;
use martlet_serving::Failure;

use super::layout::{ClusterLayout, NodeLayout};
use super::ports::loopback;

pub(super) const INDEX: &str = "index";
/// Target number of replicas of a device, so that its share is exact within a few percent.
const REPLICAS_A_DEVICE: usize = 200;
/// Headroom of partitions for a growing cluster, since a ring's number of partitions is fixed.
const GROWTH: usize = 4;
const MIN_PART_HOURS: u32 = 1;
/// A device may hold a tenth more than its share, so that copies are in different zones.
const OVERLOAD: f64 = 0.1;
/// Weight of every device: equal, since all devices share one disk.
const WEIGHT: f64 = 100.0;
const WHO: &str = "martlet cluster";

/// Path of the ring file of this name.
pub(super) fn ring_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.ring"))
}

fn builder_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.builder"))
}

/// Purpose of a ring: the index or a storage policy.
struct RingPurpose {
    file: String,
    policy: PolicyId,
    policy_name: String,
    redundancy: Redundancy,
}

impl RingPurpose {
    /// All purposes of a layout, the index first.
    fn all(layout: &ClusterLayout) -> Vec<Self> {
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

    fn replicas(&self, layout: &ClusterLayout) -> usize {
        self.redundancy.fragments().map_or(layout.replicas, usize::from)
    }
}

/// Names of the rings of a layout: the index, then the rings of extents in the order of their
/// policies.
pub(super) fn names(layout: &ClusterLayout) -> Vec<String> {
    RingPurpose::all(layout).into_iter().map(|purpose| purpose.file).collect()
}

/// Makes missing ring files, and the builders that they need.
pub(super) fn make_missing(dir: &Path, layout: &ClusterLayout) -> Result<(), Failure> {
    for purpose in RingPurpose::all(layout) {
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

fn first_builder(purpose: &RingPurpose, layout: &ClusterLayout) -> Result<Builder, Failure> {
    let mut lineage = [0; 16];
    getrandom::fill(&mut lineage).map_err(|error| {
        Failure::refused(format!("the operating system provides no random numbers: {error}"))
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a handful of replicas")]
    let settings = RingSettings {
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

fn part_power(layout: &ClusterLayout, replicas: usize) -> u8 {
    let devices: usize = layout.nodes.iter().map(|node| node.devices.len()).sum();
    let parts = (devices * GROWTH * REPLICAS_A_DEVICE / replicas).next_power_of_two();
    #[expect(clippy::cast_possible_truncation, reason = "at most 20")]
    let power = parts.trailing_zeros() as u8;
    power.clamp(8, 16)
}

fn devices(node: &NodeLayout) -> impl Iterator<Item = NewDevice> {
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
    let report = builder.rebalance(RebalanceContext { now_ms, seed: builder.epoch() + 1 })?;
    builder.validate()?;
    builder.record(now_ms, WHO, what);
    Ok(report)
}

/// Rings and builders that include a joining node; unsaved until no step can fail any more.
pub(super) struct JoinRings(Vec<WidenedRing>);

/// Ring with the devices of a joining node.
pub(super) struct WidenedRing {
    pub(super) name: String,
    pub(super) report: Report,
    builder: Builder,
}

impl JoinRings {
    /// Assigns a node its share of all rings. Writes nothing yet.
    pub(super) fn of(
        dir: &Path,
        layout: &ClusterLayout,
        node: &NodeLayout,
    ) -> Result<Self, Failure> {
        let widen = |name: String| -> Result<_, Failure> {
            let mut builder = Builder::load(&builder_path(dir, &name))?;
            for device in devices(node) {
                builder.add(device)?;
            }
            let report = rebalance(&mut builder, &format!("added {}", node.name))?;
            Ok(WidenedRing { name, report, builder })
        };
        names(layout).into_iter().map(widen).collect::<Result<_, _>>().map(Self)
    }

    /// The rings in push order. Rings of extents come first, so that the extents of new entries can
    /// be found.
    pub(super) fn rings(&self) -> impl Iterator<Item = &WidenedRing> {
        self.0.iter().skip(1).chain(self.0.first())
    }

    /// Writes the builders and the rings.
    pub(super) fn save(&self, dir: &Path) -> Result<(), Failure> {
        for WidenedRing { name, builder, .. } in &self.0 {
            builder.save(&builder_path(dir, name))?;
            builder.ring()?.save(&ring_path(dir, name))?;
        }
        Ok(())
    }
}

/// Loads the ring files of a layout, with their names.
pub(super) fn load(dir: &Path, layout: &ClusterLayout) -> Result<Vec<(String, Ring)>, Failure> {
    let ring = |name: String| {
        let ring = Ring::load(&ring_path(dir, &name))?;
        Ok((name, ring))
    };
    names(layout).into_iter().map(ring).collect()
}

#[cfg(test)]
mod tests;

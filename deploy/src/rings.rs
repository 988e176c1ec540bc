//! Rings of a cluster: builders that follow the file.
//!
//! * A device has one id in all rings. So the rings change together, or none does.
//! * Replicas move in a rebalance alone, and min-part-hours must have passed since the one before,
//!   unless its moves are settled or a device has left the file.
//! * Moves of the index are settled before it moves on, if the devices show that its change is over.
//!   Those of extents are settled by the operator, after a census.

mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use martlet_admin_api::RingLine;
use martlet_protocol::id::random_bytes;
use martlet_protocol::{DeviceId, PolicyId, Redundancy};
use martlet_ring::{
    Builder, Device, DeviceInfo, ErrorKind, MovePace, NewDevice, RebalanceContext, RebalancePlan,
    Report, Ring, RingHash, RingSettings, Usage,
};
use martlet_serving::Failure;

use crate::made::MadeBefore;
use crate::names::CLUSTER_DIR;
use crate::reach::{NodeSurvey, is_hash};
use crate::spec::{ClusterSpec, INDEX, RingSpec};

/// Target number of replicas of a device, so that its share is exact within a few percent.
const REPLICAS_A_DEVICE: usize = 200;
/// Headroom of partitions for a growing cluster.
const GROWTH: usize = 8;
/// Smallest and largest part power that is chosen by itself.
const PART_POWERS: std::ops::RangeInclusive<u8> = 8..=20;
const AUTHOR: &str = "martlet cluster apply";

/// Circumstances of a plan.
pub(crate) struct RingContext<'a> {
    pub(crate) now_ms: u64,
    /// True if all moves are complete, as a clean census has shown.
    pub(crate) settle: bool,
    /// True if the last device of a zone may leave, and the last holders of a partition.
    pub(crate) force: bool,
    pub(crate) usage: &'a BTreeMap<DeviceId, Usage>,
    pub(crate) pace: MovePace,
    /// Storage nodes of the file, as far as they were reached.
    pub(crate) survey: &'a [NodeSurvey],
}

/// A ring as it will be.
pub(crate) struct RingOutcome {
    pub(crate) name: String,
    pub(crate) builder: Builder,
    pub(crate) ring: Ring,
    /// Path of the builder's file within the output folder.
    pub(crate) path: PathBuf,
    /// True if the builder must be saved.
    pub(crate) is_changed: bool,
    /// Edits of the builder, in sentences.
    pub(crate) edits: Vec<String>,
    /// Result of the rebalance, if one is due.
    pub(crate) report: Option<Report>,
    /// Cost of the moves; none for a new ring.
    pub(crate) cost: Option<RebalancePlan>,
}

/// All rings of a cluster.
pub(crate) struct RingsOutcome {
    pub(crate) rings: Vec<RingOutcome>,
    /// Reason for which no ring changes now, although the file asks for a change.
    pub(crate) waits: Option<String>,
}

/// Builder with the edits of the file, before its rebalance.
struct EditedBuilder {
    name: String,
    path: PathBuf,
    /// Builder of the output folder; none for a new ring.
    stored: Option<Builder>,
    builder: Builder,
    edits: Vec<String>,
}

/// Computes the rings of a file from the builders in the output folder.
pub(crate) fn follow(
    spec: &ClusterSpec,
    made: &MadeBefore,
    context: &RingContext,
) -> Result<RingsOutcome, Failure> {
    let out = made.out;
    check_lost_policies(spec, out)?;
    let folder = Path::new(CLUSTER_DIR);
    let wanted: Vec<NewDevice> = spec.devices().collect();
    let mut edited: Vec<EditedBuilder> = Vec::new();
    for ring in spec.rings() {
        let path = folder.join(format!("{}.builder", ring.file));
        let full = out.join(&path);
        let stored = full.exists().then(|| Builder::load(&full)).transpose()?;
        let known = edited.first().and_then(|first| first.stored.as_ref());
        let mut builder = match &stored {
            Some(builder) => builder.clone(),
            None => new_builder(spec, &ring, known)?,
        };
        let mut edits = settle::by_order(&mut builder, &ring.file, spec, context)?;
        edits.extend(edit_settings(&mut builder, &ring, spec)?);
        edits.extend(edit_devices(&mut builder, &wanted, context.force)?);
        if ring.file == INDEX && builder.is_changed() {
            edits.extend(settle::by_terms(&mut builder, stored.as_ref(), context.survey)?);
        }
        edited.push(EditedBuilder { name: ring.file, path, stored, builder, edits });
    }
    check_lost_builders(made, &edited)?;
    check_old_builders(out, &edited, context.survey)?;
    let outcome = rebalance_all(&edited, context)?;
    check_ids(&outcome.rings)?;
    Ok(outcome)
}

/// Refuses to drop a policy: its objects would stay under a ring that no edit reaches any more.
fn check_lost_policies(spec: &ClusterSpec, out: &Path) -> Result<(), Failure> {
    let Ok(entries) = std::fs::read_dir(out.join(CLUSTER_DIR)) else { return Ok(()) };
    let named: BTreeSet<String> = spec.rings().into_iter().map(|ring| ring.file).collect();
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut lost: Vec<String> = names
        .filter(|name| name.strip_suffix(".builder").is_some_and(|ring| !named.contains(ring)))
        .collect();
    lost.sort();
    match lost.first() {
        None => Ok(()),
        Some(file) => Err(Failure::refused(format!(
            "the policy of {CLUSTER_DIR}/{file} is in the cluster for life: write its [[policy]] \
             again"
        ))),
    }
}

/// Refuses to make new builders beside ring files: a ring of another lineage would be refused by
/// all nodes.
fn check_lost_builders(made: &MadeBefore, edited: &[EditedBuilder]) -> Result<(), Failure> {
    for EditedBuilder { name, path, stored, .. } in edited {
        if let (None, Some(mark)) = (stored, made.ring(name)) {
            return Err(Failure::refused(format!(
                "{} is missing, and its ring {} is there: restore the builder from a copy, or make \
                 it with `martlet ring {} reconstruct {}`",
                path.display(),
                mark.display(),
                made.out.join(path).display(),
                mark.display()
            )));
        }
    }
    Ok(())
}

/// Refuses builders that are older than the rings of running nodes, or of another history.
fn check_old_builders(
    out: &Path,
    edited: &[EditedBuilder],
    survey: &[NodeSurvey],
) -> Result<(), Failure> {
    let known: BTreeMap<&str, (u64, Option<RingHash>)> = edited
        .iter()
        .filter_map(|one| Some((one.name.as_str(), one.stored.as_ref()?)))
        // A builder with edits by hand has no ring of its epoch to compare.
        .map(|(name, stored)| (name, (stored.epoch(), stored.ring().ok().map(|it| it.hash()))))
        .collect();
    let is_known = |line: &RingLine| match known.get(line.name.as_str()) {
        Some((epoch, hash)) if line.epoch == *epoch => {
            hash.as_ref().is_none_or(|hash| is_hash(line, hash))
        }
        Some((epoch, _)) => line.epoch < *epoch,
        None => false,
    };
    for node in survey {
        if let Some(line) = node.rings().iter().find(|line| !is_known(line)) {
            return Err(Failure::refused(format!(
                "the builders in {} are older than the cluster: restore the newest copy. The node \
                 {} uses the ring {} of epoch {}, which they don't know",
                out.join(CLUSTER_DIR).display(),
                node.name,
                line.name,
                line.epoch
            )));
        }
    }
    Ok(())
}

/// Makes the builder of a new ring. Devices of the rings that exist keep their ids.
fn new_builder(
    spec: &ClusterSpec,
    ring: &RingSpec,
    known: Option<&Builder>,
) -> Result<Builder, Failure> {
    let settings = RingSettings {
        policy: PolicyId(ring.policy),
        policy_name: ring.policy_name.clone(),
        redundancy: ring.redundancy,
        part_power: spec.part_power.unwrap_or_else(|| part_power(spec, ring)),
        replicas: f64::from(ring.replicas),
        min_part_hours: spec.min_part_hours,
        overload: spec.overload,
    };
    let mut builder = Builder::create(settings, random_bytes::<16>())?;
    let Some(known) = known else { return Ok(builder) };
    let devices: BTreeMap<DeviceId, &Device> =
        known.devices().map(|device| (device.id, device)).collect();
    let any = devices.values().next().copied();
    for id in (0..known.current_ring()?.identity().next_id).map(DeviceId) {
        match (devices.get(&id), any) {
            (Some(device), _) => {
                builder.add(same_device(device))?;
            }
            // The id of a device that has left is used up.
            (None, Some(any)) => {
                let gone = NewDevice { name: format!("left-{}", id.0), ..same_device(any) };
                let id = builder.add(gone)?;
                builder.remove(id, true)?;
            }
            (None, None) => {}
        }
    }
    Ok(builder)
}

fn same_device(device: &Device) -> NewDevice {
    let Device { region, zone, node, name, weight, meta, .. } = device.clone();
    NewDevice { region, zone, node, name, weight, meta }
}

/// Part power of a new ring, for eight times the devices of the file.
fn part_power(spec: &ClusterSpec, ring: &RingSpec) -> u8 {
    let devices = spec.devices().count();
    let replicas = usize::from(ring.replicas).max(1);
    let parts = (devices * GROWTH * REPLICAS_A_DEVICE / replicas).next_power_of_two();
    let power = u8::try_from(parts.trailing_zeros()).unwrap_or(u8::MAX);
    power.clamp(*PART_POWERS.start(), *PART_POWERS.end())
}

/// Follows the settings of the file. Settings that a ring keeps for life are refused.
fn edit_settings(
    builder: &mut Builder,
    ring: &RingSpec,
    spec: &ClusterSpec,
) -> Result<Vec<String>, Failure> {
    let settings = builder.settings().clone();
    let fixed = |what: &str, has: &dyn std::fmt::Display, asks: &dyn std::fmt::Display| {
        Err(Failure::refused(format!(
            "the ring {} has {what} {has} for life, and the file asks for {asks}: write {has} \
             again, or add another [[policy]]",
            ring.file
        )))
    };
    if settings.replicas.to_bits() != f64::from(ring.replicas).to_bits() {
        return fixed("replicas", &settings.replicas, &ring.replicas);
    }
    if settings.redundancy != ring.redundancy {
        return fixed("the code", &settings.redundancy, &ring.redundancy);
    }
    if settings.policy_name != ring.policy_name {
        return fixed("the policy", &settings.policy_name, &ring.policy_name);
    }
    if let Some(power) = spec.part_power.filter(|power| *power != settings.part_power) {
        return fixed("part_power", &settings.part_power, &power);
    }
    let mut edits = Vec::new();
    if settings.min_part_hours != spec.min_part_hours {
        builder.set_min_part_hours(spec.min_part_hours);
        edits.push(format!("min_part_hours is {}", spec.min_part_hours));
    }
    if settings.overload.to_bits() != spec.overload.to_bits() {
        builder.set_overload(spec.overload)?;
        edits.push(format!("overload is {}", spec.overload));
    }
    Ok(edits)
}

/// Follows the devices of the file.
fn edit_devices(
    builder: &mut Builder,
    wanted: &[NewDevice],
    force: bool,
) -> Result<Vec<String>, Failure> {
    let mut edits = Vec::new();
    for new in wanted {
        let known = builder
            .devices()
            .find(|device| device.node.name == new.node.name && device.name == new.name)
            .cloned();
        let shown = format!("{}/{}", new.node.name, new.name);
        let Some(known) = known else {
            builder.add(new.clone())?;
            edits.push(format!("{shown} joins zone {}, weight {}", new.zone, new.weight));
            continue;
        };
        if (known.region, known.zone) != (new.region, new.zone) {
            return Err(Failure::refused(format!(
                "{shown} is in region {} zone {} for life, and the file asks for region {} zone \
                 {}: drain the node, remove it, and add it under another name",
                known.region, known.zone, new.region, new.zone
            )));
        }
        if known.node.address != new.node.address {
            let address = Some(new.node.address.clone());
            builder.set_info(known.id, DeviceInfo { address, ..DeviceInfo::default() })?;
            edits.push(format!("{} moves to {}", new.node.name, new.node.address));
        }
        if known.weight.to_bits() != new.weight.to_bits() {
            builder.set_weight(known.id, new.weight)?;
            edits.push(if new.weight > 0.0 {
                format!("{shown} has weight {}, after {}", new.weight, known.weight)
            } else {
                format!("{shown} drains")
            });
        }
    }
    let names: BTreeSet<(&str, &str)> =
        wanted.iter().map(|new| (new.node.name.as_str(), new.name.as_str())).collect();
    let gone: Vec<Device> = builder
        .devices()
        .filter(|device| !names.contains(&(device.node.name.as_str(), device.name.as_str())))
        .cloned()
        .collect();
    for device in gone {
        builder.remove(device.id, force)?;
        edits.push(format!("{}/{} leaves", device.node.name, device.name));
    }
    Ok(edits)
}

fn rebalance_all(edited: &[EditedBuilder], context: &RingContext) -> Result<RingsOutcome, Failure> {
    let mut waits = None;
    let mut rings = Vec::new();
    for one in edited {
        match rebalance(one, context)? {
            Ok(outcome) => rings.push(outcome),
            Err(why) => waits = Some(why),
        }
    }
    if waits.is_none() {
        return Ok(RingsOutcome { rings, waits });
    }
    // Rings change together: a device has one id in all of them.
    let stored = edited.iter().filter_map(unchanged).collect::<Result<_, _>>()?;
    Ok(RingsOutcome { rings: stored, waits })
}

/// Rebalances one builder, if that changes anything. The inner error is a reason to wait.
fn rebalance(
    edited: &EditedBuilder,
    context: &RingContext,
) -> Result<Result<RingOutcome, String>, Failure> {
    let EditedBuilder { name, path, stored, builder, edits } = edited;
    let seed = builder.epoch() + 1;
    let rehearsed = builder.rehearse(RebalanceContext { now_ms: context.now_ms, seed });
    let (mut after, report) = match rehearsed {
        Ok((after, report)) if report.epoch > builder.epoch() => (after, Some(report)),
        Ok(_) => (builder.clone(), None),
        // The moves of the last rebalance are on their way, and nothing else is to be done.
        Err(error) if error.kind() == ErrorKind::Conflict && !builder.is_changed() => {
            (builder.clone(), None)
        }
        Err(error) if error.kind() == ErrorKind::Conflict => return Ok(Err(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    after.validate()?;
    let ring = after.ring()?;
    if stored.as_ref().is_some_and(|it| it.epoch() > 0) {
        let before = builder.current_ring()?;
        if !context.force {
            check_holders(name, &before, &ring)?;
        }
        if name == INDEX {
            check_index(&before, &ring)?;
        }
    }
    let is_changed = stored.is_none() || report.is_some() || !edits.is_empty();
    if is_changed {
        let what = if edits.is_empty() { "continued".to_owned() } else { edits.join("; ") };
        after.record(context.now_ms, AUTHOR, what);
    }
    let moved = report.as_ref().filter(|_| stored.is_some());
    let cost = moved
        .map(|_| Ok::<_, Failure>(cost(&builder.current_ring()?, &ring, context)))
        .transpose()?;
    let (name, path, edits) = (name.clone(), path.clone(), edits.clone());
    Ok(Ok(RingOutcome { name, builder: after, ring, path, is_changed, edits, report, cost }))
}

/// Refuses to remove so many holders of a partition at once that its entries or extents may be lost.
fn check_holders(name: &str, before: &Ring, after: &Ring) -> Result<(), Failure> {
    let redundancy = before.identity().redundancy;
    let needed = |replicas: usize| match redundancy {
        Redundancy::Erasure { k, .. } => usize::from(k),
        Redundancy::Replicated if name == INDEX => replicas / 2 + 1,
        Redundancy::Replicated => 1,
    };
    let count = before.partitions_endangered(needed, |id| after.device(id).is_none());
    if count == 0 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{count} partitions of the {name} ring would keep fewer than {} sure holders, since moves \
         that aren't settled prove nothing: let devices leave one after the other, or drain them, \
         with a clean census and --settle after each step. If their data is lost anyway, --force \
         removes them",
        needed(before.replicas())
    )))
}

/// Refuses a ring of the index that nodes would refuse, before its builder is written.
fn check_index(before: &Ring, after: &Ring) -> Result<(), Failure> {
    before.check_index_change(after).map_err(|error| {
        Failure::refused(format!(
            "nodes would refuse the {INDEX} ring: {error}. Apply settles moves of the {INDEX} by \
             itself once their change is over, and most of its nodes use their ring and answer"
        ))
    })
}

fn cost(before: &Ring, after: &Ring, context: &RingContext) -> RebalancePlan {
    RebalancePlan::new(before, after, context.usage, context.pace)
}

/// The ring of a stored builder, without the edits of the file.
fn unchanged(edited: &EditedBuilder) -> Option<Result<RingOutcome, Failure>> {
    let builder = edited.stored.clone()?;
    let outcome = || {
        Ok(RingOutcome {
            name: edited.name.clone(),
            ring: builder.ring()?,
            builder,
            path: edited.path.clone(),
            is_changed: false,
            edits: edited.edits.clone(),
            report: None,
            cost: None,
        })
    };
    Some(outcome())
}

/// Checks that each device has one id in all rings.
fn check_ids(rings: &[RingOutcome]) -> Result<(), Failure> {
    let ids = |builder: &Builder| -> BTreeMap<(String, String), DeviceId> {
        let key = |device: &Device| (device.node.name.clone(), device.name.clone());
        builder.devices().map(|device| (key(device), device.id)).collect()
    };
    let Some((first, others)) = rings.split_first() else { return Ok(()) };
    let expected = ids(&first.builder);
    match others.iter().find(|other| ids(&other.builder) != expected) {
        None => Ok(()),
        Some(other) => Err(Failure::refused(format!(
            "the builders of {} and {} number their devices differently: restore both from a \
             copy",
            first.name, other.name
        ))),
    }
}

#[cfg(test)]
mod tests;

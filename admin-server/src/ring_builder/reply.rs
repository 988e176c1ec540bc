//! Values of a builder, a plan and a ring as messages.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use martlet_admin_api::forecast::CrowdedLine;
use martlet_admin_api::ring_builder::{
    BuilderDeviceLine, BuilderSettings, HistoryLine, PlanDeviceLine, PlanLine, RingBuilderReply,
};
use martlet_admin_api::ring_push::RingFile;
use martlet_protocol::{DeviceId, Redundancy};
use martlet_ring::{
    Builder, Device, DeviceFigures, DevicePlan, ErrorKind, Figures, HistoryEntry, RingSettings,
};
use martlet_ring_steps::Rehearsal;
use martlet_serving::Failure;

/// Number of records of the history in a reply.
const HISTORY_MAX: usize = 500;
/// Number of crowded places in a reply.
const CROWDED_MAX: usize = 100;

/// Describes a builder.
pub(super) fn of(builder: &Builder) -> RingBuilderReply {
    let figures = Figures::of_builder(builder).ok();
    let by_id: HashMap<DeviceId, &DeviceFigures> =
        figures.iter().flat_map(|it| &it.devices).map(|it| (it.id, it)).collect();
    let draining: std::collections::HashSet<DeviceId> = builder.draining().collect();
    let kept = builder.devices().map(|device| BuilderDeviceLine {
        draining: draining.contains(&device.id),
        ..device_line(device, by_id.get(&device.id).copied())
    });
    let removed = builder
        .removed()
        .map(|device| BuilderDeviceLine { removed: true, ..device_line(device, None) });
    let mut devices: Vec<BuilderDeviceLine> = kept.chain(removed).collect();
    devices.sort_by_key(|device| device.device);
    let history = builder.history();
    RingBuilderReply {
        settings: settings(builder.settings()),
        epoch: builder.epoch(),
        changed: builder.is_changed(),
        replicas_moving: builder.moving() as u64,
        devices,
        balance: figures.as_ref().map(|it| it.balance),
        dispersion: figures.as_ref().map(|it| it.dispersion),
        crowded: crowded(figures.as_ref()),
        overload_needed: builder.required_overload(),
        invalid: invalid(builder),
        advice: builder.advice(),
        history: history[history.len().saturating_sub(HISTORY_MAX)..].iter().map(record).collect(),
        ..RingBuilderReply::default()
    }
}

fn settings(of: &RingSettings) -> BuilderSettings {
    let RingSettings {
        policy,
        policy_name,
        redundancy,
        part_power,
        replicas,
        min_part_hours,
        overload,
    } = of;
    let is_code = matches!(redundancy, Redundancy::Erasure { .. });
    BuilderSettings {
        policy: policy.0,
        policy_name: policy_name.clone(),
        erasure: is_code.then(|| redundancy.to_string()),
        part_power: *part_power,
        replicas: *replicas,
        min_part_hours: *min_part_hours,
        overload: *overload,
    }
}

fn device_line(of: &Device, figures: Option<&DeviceFigures>) -> BuilderDeviceLine {
    BuilderDeviceLine {
        device: of.id.0,
        region: of.region,
        zone: of.zone,
        node: of.node.name.clone(),
        address: of.node.address.clone(),
        name: of.name.clone(),
        weight: of.weight,
        meta: of.meta.clone(),
        removed: false,
        draining: false,
        replicas: figures.map(|it| it.parts),
        desired: figures.map(|it| it.desired),
        deviation: figures.map(|it| it.balance),
    }
}

fn crowded(figures: Option<&Figures>) -> Vec<CrowdedLine> {
    let places = figures.iter().flat_map(|it| &it.crowded).take(CROWDED_MAX);
    places
        .map(|it| CrowdedLine {
            place: it.place.clone(),
            replicas_max: u64::from(it.most),
            partitions: u64::from(it.partitions),
        })
        .collect()
}

fn record(entry: &HistoryEntry) -> HistoryLine {
    let HistoryEntry { at_ms, who, what } = entry;
    HistoryLine { at_ms: *at_ms, who: who.clone(), what: what.clone() }
}

/// Returns the reason why an assignment is invalid. A builder without assignment has none.
fn invalid(builder: &Builder) -> Option<String> {
    let error = builder.validate().err().filter(|error| error.kind() != ErrorKind::Conflict);
    error.map(|error| error.to_string())
}

/// Describes the plan of a rehearsed rebalance. Bytes and hours are known `with_usage` of devices.
pub(super) fn plan_line(of: &Rehearsal, with_usage: bool) -> PlanLine {
    let Rehearsal { sentence, report, plan, done, .. } = of;
    let moving = plan.devices.iter().filter(|device| device.coming + device.going > 0);
    PlanLine {
        sentence: sentence.clone(),
        notes: done.notes.clone(),
        epoch: report.epoch,
        moved: report.moved,
        placed: report.placed,
        locked: report.locked,
        balance: report.balance,
        dispersion: report.dispersion,
        rebalances_to_go: report.rebalances_to_go,
        partitions: plan.partitions,
        replicas: plan.replicas,
        bytes: with_usage.then_some(plan.bytes),
        hours: with_usage.then_some(plan.hours),
        devices: moving.map(device_plan).collect(),
        warnings: plan.warnings.clone(),
    }
}

fn device_plan(of: &DevicePlan) -> PlanDeviceLine {
    PlanDeviceLine {
        device: of.id.0,
        place: of.name.clone(),
        before: of.before,
        after: of.after,
        coming: of.coming,
        going: of.going,
        bytes_in: of.bytes_in,
        bytes_out: of.bytes_out,
        hours: of.hours,
        peak: of.peak,
    }
}

/// Encodes the ring of the last rebalance.
///
/// # Errors
/// Devices or settings have changed since, or there is no ring yet.
pub(super) fn ring_file(builder: &Builder) -> Result<RingFile, Failure> {
    let ring = builder.ring()?;
    let name = format!("data-{}", ring.identity().policy.0);
    Ok(RingFile { name, file: STANDARD.encode(ring.encode()) })
}

//! Steps that edit a builder between rebalances.

use std::collections::BTreeSet;

use martlet_admin_api::ring_builder::{NewRingDevice, RingStep, StepLine};
use martlet_protocol::DeviceId;
use martlet_ring::{Builder, Device, DeviceInfo, DeviceLocation, NewDevice, moving_to};
use martlet_serving::Failure;

use crate::policy::may_be_index;
use crate::select::{name, select, select_all, select_one};
use crate::text::counted;

const NEXT: &str = "nothing moves until `rebalance`; `plan` shows the moves";

/// Applies a step. Returns its sentence with notes for the operator.
///
/// # Errors
/// The step names no device of the builder, its values are out of their bounds, or an earlier move
/// prevents it: the sentence of `martlet ring`. The builder may have changed in part.
pub fn apply(builder: &mut Builder, step: &RingStep) -> Result<StepLine, Failure> {
    match step {
        RingStep::Add { devices } => add(builder, devices),
        RingStep::Remove { devices, force } => remove(builder, devices, *force),
        RingStep::SetWeight { devices, weight } => set_weight(builder, devices, *weight),
        RingStep::SetInfo { device, address, name, meta } => {
            let info =
                DeviceInfo { address: address.clone(), name: name.clone(), meta: meta.clone() };
            set_info(builder, device, info)
        }
        RingStep::Drain { devices, steps } => drain(builder, devices, *steps),
        RingStep::SetOverload { overload } => {
            builder.set_overload(*overload)?;
            Ok(done(format!("overload is now {overload}"), &[NEXT]))
        }
        RingStep::SetReplicas { replicas } => {
            builder.set_replicas(*replicas)?;
            Ok(done(format!("replicas are now {replicas}"), &[NEXT]))
        }
        RingStep::SetMinPartHours { hours } => {
            builder.set_min_part_hours(*hours);
            Ok(done(format!("min-part-hours is now {hours}"), &[]))
        }
        RingStep::IncreasePartPower => increase_part_power(builder),
        RingStep::Settle => settle(builder),
        RingStep::PretendMinPartHoursPassed => {
            builder.pretend_min_part_hours_passed();
            let sentence = "the next rebalance may move recently moved partitions";
            let note = "servers refuse a ring that moves a partition again before its last move is \
                done; push the ring again afterwards";
            Ok(done(sentence.to_owned(), &[note]))
        }
    }
}

fn done(sentence: String, notes: &[&str]) -> StepLine {
    let notes = notes.iter().map(|note| (*note).to_owned()).collect();
    StepLine { done: sentence, notes, added: Vec::new() }
}

/// Parses the place of a device to add.
///
/// # Errors
/// The place is not `r1z2-alpha@10.0.0.5:6200/sdb` or the like.
pub fn new_device(new: &NewRingDevice) -> Result<NewDevice, Failure> {
    let place: DeviceLocation = new.place.parse()?;
    Ok(place.with(new.weight, new.meta.as_str()))
}

fn add(builder: &mut Builder, devices: &[NewRingDevice]) -> Result<StepLine, Failure> {
    let devices = devices.iter().map(new_device).collect::<Result<Vec<_>, _>>()?;
    let ids = devices.into_iter().map(|new| builder.add(new)).collect::<Result<Vec<_>, _>>()?;
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Err(Failure::refused(
            "no devices in the file: write a place and a weight on each line",
        ));
    };
    let sentence = match ids.len() {
        1 => format!("added {first}"),
        count => format!("added {count} devices, {first} to {last}"),
    };
    let mut line = done(sentence, &[NEXT]);
    line.notes.extend(builder.advice());
    line.added = ids.iter().map(|id| id.0).collect();
    Ok(line)
}

fn remove(builder: &mut Builder, words: &[String], force: bool) -> Result<StepLine, Failure> {
    let devices = select_all(builder, words)?;
    if !force && may_be_index(builder.settings()) {
        check_arrived(builder, &devices)?;
    }
    for device in &devices {
        builder.remove(device.id, force)?;
    }
    Ok(done(format!("removed {}", name(&devices)), &[NEXT]))
}

/// Refuses devices that took replicas by moves that aren't settled. The index could not move them on.
fn check_arrived(builder: &Builder, devices: &[Device]) -> Result<(), Failure> {
    let ids: BTreeSet<DeviceId> = devices.iter().map(|device| device.id).collect();
    match moving_to(builder, |id| ids.contains(&id)) {
        0 => Ok(()),
        moves => Err(Failure::refused(format!(
            "{} moved to {} and aren't settled: if this builder makes the ring of the index, run \
             `settle` first, when `martlet admin status` shows `new` beside the index; if it makes a \
             ring of extents, whose earlier holders stay named, repeat with --force",
            counted(moves as u64, "replica"),
            name(devices)
        ))),
    }
}

fn set_weight(builder: &mut Builder, word: &str, weight: f64) -> Result<StepLine, Failure> {
    let devices = select(builder, word)?;
    for device in &devices {
        builder.set_weight(device.id, weight)?;
    }
    Ok(done(format!("weight of {} is now {weight}", name(&devices)), &[NEXT]))
}

fn set_info(builder: &mut Builder, word: &str, info: DeviceInfo) -> Result<StepLine, Failure> {
    let device = select_one(builder, word)?;
    if info == DeviceInfo::default() {
        return Err(Failure::usage("nothing to change: set --address, --name or --meta"));
    }
    builder.set_info(device.id, info)?;
    let note = "servers get the change with the ring of the next `rebalance`; no data moves";
    Ok(done(format!("changed the information about {}", device.id), &[note]))
}

fn drain(builder: &mut Builder, words: &[String], steps: u32) -> Result<StepLine, Failure> {
    let devices = select_all(builder, words)?;
    for device in &devices {
        builder.drain(device.id, steps)?;
    }
    let note = "`rebalance` takes the first step; `remove` the devices when they are empty";
    Ok(done(format!("draining {} in {steps} rebalances", name(&devices)), &[note]))
}

fn increase_part_power(builder: &mut Builder) -> Result<StepLine, Failure> {
    let power = builder.increase_part_power()?;
    let mut notes = builder.advice();
    notes.push("each partition was split in two in place: no data moves".to_owned());
    let done = format!("the ring now has 2^{power} partitions");
    Ok(StepLine { done, notes, added: Vec::new() })
}

fn settle(builder: &mut Builder) -> Result<StepLine, Failure> {
    Ok(match builder.settle()? {
        0 => done("no replica was moving".to_owned(), &[]),
        count => done(
            format!("recorded {count} replicas as moved and forgot their previous holders"),
            &["`write-ring` writes the file for servers"],
        ),
    })
}

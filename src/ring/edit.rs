//! Commands that edit a builder between rebalances.

use std::path::Path;

use martlet_protocol::{PolicyId, Redundancy};
use martlet_ring::{Builder, DeviceInfo, DeviceLocation, NewDevice, Ring, RingSettings};
use martlet_serving::Failure;
use serde_json::json;

use super::args::{AddArgs, BuilderCommand, CreateArgs, InfoArgs};
use super::output::CommandOutput;
use super::select::{name, select, select_all, select_one};
use crate::policies;

/// Default number of replicas.
const REPLICAS: f64 = 3.0;
const NEXT: &str = "nothing moves until `rebalance`; `plan` shows the moves";

/// Creates a builder without devices. Returns it with a sentence and notes for the operator.
pub(super) fn create(args: &CreateArgs) -> Result<(Builder, String, Vec<String>), Failure> {
    let mut lineage = [0; 16];
    getrandom::fill(&mut lineage).map_err(|error| {
        Failure::refused(format!("the operating system provides no random numbers: {error}"))
    })?;
    let redundancy = args.erasure.as_deref().map(policies::code).transpose()?.unwrap_or_default();
    let fragments = redundancy.fragments().map(f64::from);
    let settings = RingSettings {
        policy: PolicyId(args.policy),
        policy_name: policy_name(args)?,
        redundancy,
        part_power: args.part_power,
        replicas: fragments.or(args.replicas).unwrap_or(REPLICAS),
        min_part_hours: args.min_part_hours,
        overload: args.overload,
    };
    let sentence = format!(
        "made a builder for policy {} ({}): 2^{} partitions × {}",
        args.policy,
        settings.policy_name,
        args.part_power,
        replicas(&settings)
    );
    let builder = Builder::create(settings, lineage)?;
    let mut notes = vec!["`add` devices next".to_owned()];
    if let Redundancy::Erasure { m, .. } = redundancy {
        notes.extend(policies::advice(m));
    }
    Ok((builder, sentence, notes))
}

fn policy_name(args: &CreateArgs) -> Result<String, Failure> {
    match &args.policy_name {
        Some(name) => policies::check_name(name).map(|()| name.clone()),
        None if args.policy == 0 => Ok(policies::FIRST_NAME.to_owned()),
        None => Err(Failure::usage(format!(
            "policy {} needs a name, by which buckets select it: set it with --policy-name",
            args.policy
        ))),
    }
}

/// Formats the replication of a ring: `3`, or `6 fragments (4+2)`.
pub(super) fn replicas(settings: &RingSettings) -> String {
    match settings.redundancy {
        Redundancy::Replicated => settings.replicas.to_string(),
        code @ Redundancy::Erasure { .. } => format!("{} fragments ({code})", settings.replicas),
    }
}

/// Reconstructs a builder from its ring file. Returns it with a sentence and notes for the
/// operator.
pub(super) fn reconstruct(
    ring: &Ring,
    min_part_hours: u32,
    overload: f64,
    now_ms: u64,
) -> Result<(Builder, String, Vec<String>), Failure> {
    let builder = Builder::from_ring(ring, min_part_hours, overload, now_ms)?;
    let sentence = format!(
        "reconstructed the builder from the ring of epoch {}: {} devices, no data moves",
        ring.epoch(),
        ring.devices().len()
    );
    let notes = format!(
        "a ring file lacks min-part-hours and overload: they are {min_part_hours} and {overload} \
         now; earlier history is lost"
    );
    Ok((builder, sentence, vec![notes]))
}

/// Applies an editing command to the builder.
pub(super) fn edit(
    builder: &mut Builder,
    command: &BuilderCommand,
) -> Result<CommandOutput, Failure> {
    match command {
        BuilderCommand::Add(args) => add(builder, args),
        BuilderCommand::Remove { devices, force } => remove(builder, devices, *force),
        BuilderCommand::SetWeight { devices, weight } => set_weight(builder, devices, *weight),
        BuilderCommand::SetInfo(args) => set_info(builder, args),
        BuilderCommand::Drain { devices, steps } => drain(builder, devices, *steps),
        BuilderCommand::SetOverload { overload } => {
            builder.set_overload(*overload)?;
            Ok(CommandOutput::done(&format!("overload is now {overload}"), &[NEXT.to_owned()]))
        }
        BuilderCommand::SetReplicas { replicas } => {
            builder.set_replicas(*replicas)?;
            Ok(CommandOutput::done(&format!("replicas are now {replicas}"), &[NEXT.to_owned()]))
        }
        BuilderCommand::SetMinPartHours { hours } => {
            builder.set_min_part_hours(*hours);
            Ok(CommandOutput::done(&format!("min-part-hours is now {hours}"), &[]))
        }
        BuilderCommand::IncreasePartPower => increase_part_power(builder),
        BuilderCommand::Settle => settle(builder),
        BuilderCommand::PretendMinPartHoursPassed => {
            builder.pretend_min_part_hours_passed();
            let sentence = "the next rebalance may move recently moved partitions";
            let note = "servers refuse a ring that moves a partition again before its last move is \
                done; push the ring again afterwards";
            Ok(CommandOutput::done(sentence, &[note.to_owned()]))
        }
        other => unreachable!("{other:?} does not edit a builder"),
    }
}

fn add(builder: &mut Builder, args: &AddArgs) -> Result<CommandOutput, Failure> {
    let devices = match &args.from {
        Some(file) => read_devices(file)?,
        None => read_words(&args.devices, &args.meta)?,
    };
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
    let mut notes = vec![NEXT.to_owned()];
    notes.extend(builder.advice());
    let mut answer = CommandOutput::done(&sentence, &notes);
    answer.json["ids"] = json!(ids);
    Ok(answer)
}

fn read_words(words: &[String], meta: &str) -> Result<Vec<NewDevice>, Failure> {
    if !words.len().is_multiple_of(2) {
        return Err(Failure::usage(
            "each device needs a place and a weight: add r1z1-a@10.0.0.1:6200/sdb 4000",
        ));
    }
    words.chunks(2).map(|pair| read_device(&pair[0], &pair[1], meta)).collect()
}

fn read_device(place: &str, weight: &str, meta: &str) -> Result<NewDevice, Failure> {
    let place: DeviceLocation = place.parse()?;
    let weight = weight.parse().map_err(|_| {
        Failure::refused(format!("`{weight}` is not a weight: write a number such as 4000"))
    })?;
    Ok(place.with(weight, meta))
}

fn read_devices(file: &Path) -> Result<Vec<NewDevice>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::refused(format!("{} can't be read: {error}", file.display())))?;
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| {
            let (place, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let (weight, meta) =
                rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
            read_device(place, weight, meta.trim()).map_err(|failure| {
                Failure::refused(format!("{}, line {}: {failure}", file.display(), at + 1))
            })
        })
        .collect()
}

fn remove(builder: &mut Builder, words: &[String], force: bool) -> Result<CommandOutput, Failure> {
    let devices = select_all(builder, words)?;
    for device in &devices {
        builder.remove(device.id, force)?;
    }
    Ok(CommandOutput::done(&format!("removed {}", name(&devices)), &[NEXT.to_owned()]))
}

fn set_weight(builder: &mut Builder, word: &str, weight: f64) -> Result<CommandOutput, Failure> {
    let devices = select(builder, word)?;
    for device in &devices {
        builder.set_weight(device.id, weight)?;
    }
    let sentence = format!("weight of {} is now {weight}", name(&devices));
    Ok(CommandOutput::done(&sentence, &[NEXT.to_owned()]))
}

fn set_info(builder: &mut Builder, args: &InfoArgs) -> Result<CommandOutput, Failure> {
    let device = select_one(builder, &args.device)?;
    let InfoArgs { address, name, meta, .. } = args;
    if address.is_none() && name.is_none() && meta.is_none() {
        return Err(Failure::usage("nothing to change: set --address, --name or --meta"));
    }
    let info = DeviceInfo { address: address.clone(), name: name.clone(), meta: meta.clone() };
    builder.set_info(device.id, info)?;
    let note = "servers get the change with the ring of the next `rebalance`; no data moves";
    Ok(CommandOutput::done(
        &format!("changed the information about {}", device.id),
        &[note.to_owned()],
    ))
}

fn drain(builder: &mut Builder, words: &[String], steps: u32) -> Result<CommandOutput, Failure> {
    let devices = select_all(builder, words)?;
    for device in &devices {
        builder.drain(device.id, steps)?;
    }
    let sentence = format!("draining {} in {steps} rebalances", name(&devices));
    let note = "`rebalance` takes the first step; `remove` the devices when they are empty";
    Ok(CommandOutput::done(&sentence, &[note.to_owned()]))
}

fn increase_part_power(builder: &mut Builder) -> Result<CommandOutput, Failure> {
    let power = builder.increase_part_power()?;
    let mut notes = builder.advice();
    notes.push("each partition was split in two in place: no data moves".to_owned());
    Ok(CommandOutput::done(&format!("the ring now has 2^{power} partitions"), &notes))
}

fn settle(builder: &mut Builder) -> Result<CommandOutput, Failure> {
    let settled = builder.settle()?;
    let sentence = match settled {
        0 => "no replica was moving".to_owned(),
        count => format!("recorded {count} replicas as moved and forgot their previous holders"),
    };
    let notes = if settled == 0 {
        Vec::new()
    } else {
        vec!["`write-ring` writes the file for servers".to_owned()]
    };
    Ok(CommandOutput::done(&sentence, &notes))
}

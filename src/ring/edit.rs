//! Commands that edit a builder between rebalances, as steps.

use std::path::Path;

use martlet_admin_api::ring_builder::{NewBuilder, NewRingDevice, RingStep, StepLine};
use martlet_ring::{Builder, DeviceLocation, Ring};
use martlet_ring_steps as steps;
use martlet_serving::Failure;
use serde_json::json;

use super::args::{AddArgs, BuilderCommand, CreateArgs};
use super::output::CommandOutput;

/// Creates a builder without devices. Returns it with a sentence and notes for the operator.
pub(super) fn create(args: &CreateArgs) -> Result<(Builder, StepLine), Failure> {
    let mut lineage = [0; 16];
    getrandom::fill(&mut lineage).map_err(|error| {
        Failure::refused(format!("the operating system provides no random numbers: {error}"))
    })?;
    let new = NewBuilder {
        part_power: args.part_power,
        replicas: args.replicas,
        erasure: args.erasure.clone(),
        min_part_hours: args.min_part_hours,
        overload: args.overload,
        policy: args.policy,
        policy_name: args.policy_name.clone(),
    };
    steps::create(&new, lineage)
}

/// Recreates a builder from its ring file. Returns it with a sentence and notes for the operator.
pub(super) fn reconstruct(
    ring: &Path,
    min_part_hours: u32,
    overload: f64,
    now_ms: u64,
) -> Result<(Builder, StepLine), Failure> {
    steps::reconstruct(&Ring::load(ring)?, min_part_hours, overload, now_ms)
}

/// Applies an editing command to the builder.
pub(super) fn edit(
    builder: &mut Builder,
    command: &BuilderCommand,
) -> Result<CommandOutput, Failure> {
    let step = step_of(command)?;
    let line = steps::apply(builder, &step)?;
    let mut answer = CommandOutput::done(&line);
    if matches!(step, RingStep::Add { .. }) {
        answer.json["ids"] = json!(line.added);
    }
    Ok(answer)
}

/// Returns the step of an editing command.
fn step_of(command: &BuilderCommand) -> Result<RingStep, Failure> {
    Ok(match command {
        BuilderCommand::Add(args) => RingStep::Add { devices: new_devices(args)? },
        BuilderCommand::Remove { devices, force } => {
            RingStep::Remove { devices: devices.clone(), force: *force }
        }
        BuilderCommand::SetWeight { devices, weight } => {
            RingStep::SetWeight { devices: devices.clone(), weight: *weight }
        }
        BuilderCommand::SetInfo(args) => RingStep::SetInfo {
            device: args.device.clone(),
            address: args.address.clone(),
            name: args.name.clone(),
            meta: args.meta.clone(),
        },
        BuilderCommand::Drain { devices, steps } => {
            RingStep::Drain { devices: devices.clone(), steps: *steps }
        }
        BuilderCommand::SetOverload { overload } => RingStep::SetOverload { overload: *overload },
        BuilderCommand::SetReplicas { replicas } => RingStep::SetReplicas { replicas: *replicas },
        BuilderCommand::SetMinPartHours { hours } => RingStep::SetMinPartHours { hours: *hours },
        BuilderCommand::IncreasePartPower => RingStep::IncreasePartPower,
        BuilderCommand::Settle => RingStep::Settle,
        BuilderCommand::PretendMinPartHoursPassed => RingStep::PretendMinPartHoursPassed,
        other => unreachable!("{other:?} does not edit a builder"),
    })
}

fn new_devices(args: &AddArgs) -> Result<Vec<NewRingDevice>, Failure> {
    match &args.from {
        Some(file) => read_devices(file),
        None => read_words(&args.devices, &args.meta),
    }
}

fn read_words(words: &[String], meta: &str) -> Result<Vec<NewRingDevice>, Failure> {
    if !words.len().is_multiple_of(2) {
        return Err(Failure::usage(
            "each device needs a place and a weight: add r1z1-a@10.0.0.1:6200/sda 4000",
        ));
    }
    words.chunks(2).map(|pair| read_device(&pair[0], &pair[1], meta)).collect()
}

fn read_device(place: &str, weight: &str, meta: &str) -> Result<NewRingDevice, Failure> {
    // Checked here too, so that the refusal can name the line of a file.
    place.parse::<DeviceLocation>()?;
    let weight = weight.parse().map_err(|_| {
        Failure::refused(format!("`{weight}` is not a weight: write a number such as 4000"))
    })?;
    Ok(NewRingDevice { place: place.to_owned(), weight, meta: meta.to_owned() })
}

fn read_devices(file: &Path) -> Result<Vec<NewRingDevice>, Failure> {
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

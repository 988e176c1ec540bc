//! Read-only commands: show, balance, dispersion, search, history, validate and diff.

use std::collections::HashMap;
use std::path::Path;

use martlet_admin_api::ring_builder::StepLine;
use martlet_protocol::DeviceId;
use martlet_ring::{Builder, Device, Diff, Figures, Ring};
use martlet_ring_steps::select;
use martlet_ring_steps::text::{count, counted};
use martlet_serving::Failure;
use serde_json::json;

use super::args::BuilderCommand;
use super::output::CommandOutput;
use super::text::{append_line, bar, deviation, row};
use super::tree;
use crate::columns::table;

/// Number of devices that `balance` lists without `--all`.
const WORST: usize = 20;

/// Runs a read-only command.
pub(super) fn look(
    builder: &Builder,
    path: &Path,
    command: &BuilderCommand,
) -> Result<CommandOutput, Failure> {
    match command {
        BuilderCommand::Show { depth } => Ok(tree::show(builder, path, *depth)),
        BuilderCommand::Balance { all } => balance(builder, *all),
        BuilderCommand::Dispersion => dispersion(builder),
        BuilderCommand::Search { devices } => search(builder, devices),
        BuilderCommand::History => Ok(history(builder)),
        BuilderCommand::Validate => validate(builder),
        other => unreachable!("{other:?} is not a read-only command"),
    }
}

fn balance(builder: &Builder, all: bool) -> Result<CommandOutput, Failure> {
    let figures = Figures::of_builder(builder)?;
    let devices: Vec<&Device> = builder.devices().collect();
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by(|&a, &b| {
        let worst = |at: usize| figures.devices[at].balance.abs();
        worst(b).total_cmp(&worst(a)).then(a.cmp(&b))
    });
    let shown = if all { order.len() } else { order.len().min(WORST) };
    let mut text = format!(
        "balance {:.2} %: the worst deviation of a device from its share\n",
        figures.balance
    );
    let mut rows = vec![row(["device", "place", "weight", "share", "holds", "deviation", ""])];
    for &at in &order[..shown] {
        let (device, figure) = (devices[at], &figures.devices[at]);
        rows.push(vec![
            device.id.to_string(),
            device.to_string(),
            device.weight.to_string(),
            format!("{:.1}", figure.desired),
            count(u64::from(figure.parts)),
            deviation(figure.balance),
            bar(f64::from(figure.parts), figure.desired),
        ]);
    }
    text += &table(&rows, &[2, 3, 4, 5]);
    if shown < order.len() {
        append_line(
            &mut text,
            format_args!("and {} that deviate less; list them with --all\n", order.len() - shown),
        );
    }
    Ok(CommandOutput::new(text, &json!({ "balance": figures.balance, "devices": figures.devices })))
}

fn dispersion(builder: &Builder) -> Result<CommandOutput, Failure> {
    let figures = Figures::of_builder(builder)?;
    let (required, overload) = (builder.required_overload(), builder.settings().overload);
    let mut text = format!(
        "dispersion {:.2} %: replicas that are closer together than the numbers of regions, zones, \
         nodes and devices allow\n",
        figures.dispersion
    );
    if !figures.crowded.is_empty() {
        let mut rows = vec![row(["place", "replicas at most", "partitions with more"])];
        rows.extend(figures.crowded.iter().take(WORST).map(|crowded| {
            let (most, partitions) =
                (crowded.most.to_string(), count(u64::from(crowded.partitions)));
            vec![crowded.place.clone(), most, partitions]
        }));
        text += &table(&rows, &[1, 2]);
    }
    append_line(
        &mut text,
        format_args!("overload is {overload:.4}; the best dispersion needs {required:.4}\n"),
    );
    let json = json!({
        "dispersion": figures.dispersion,
        "crowded": figures.crowded,
        "overload": overload,
        "required_overload": required,
    });
    Ok(CommandOutput::new(text, &json))
}

fn search(builder: &Builder, words: &str) -> Result<CommandOutput, Failure> {
    let devices = select(builder, words)?;
    let figures = Figures::of_builder(builder).ok();
    let parts: HashMap<DeviceId, u32> =
        figures.iter().flat_map(|it| &it.devices).map(|it| (it.id, it.parts)).collect();
    let mut rows = vec![row([
        "device", "region", "zone", "node", "address", "name", "weight", "holds", "metadata",
    ])];
    for device in &devices {
        rows.push(vec![
            device.id.to_string(),
            device.region.to_string(),
            device.zone.to_string(),
            device.node.name.clone(),
            device.node.address.clone(),
            device.name.clone(),
            device.weight.to_string(),
            parts.get(&device.id).map_or("–".to_owned(), |parts| count(u64::from(*parts))),
            device.meta.clone(),
        ]);
    }
    Ok(CommandOutput::new(table(&rows, &[1, 2, 6, 7]), &json!({ "devices": devices })))
}

fn validate(builder: &Builder) -> Result<CommandOutput, Failure> {
    builder.validate()?;
    let mut notes = builder.advice();
    if builder.is_changed() {
        notes.push("devices or settings have changed since the last rebalance".to_owned());
    }
    let done = "the builder is valid: every replica has its own device".to_owned();
    Ok(CommandOutput::done(&StepLine { done, notes, ..StepLine::default() }))
}

fn history(builder: &Builder) -> CommandOutput {
    let mut rows = vec![row(["when (UTC)", "who", "what"])];
    rows.extend(
        builder
            .history()
            .iter()
            .map(|entry| vec![moment(entry.at_ms), entry.who.clone(), entry.what.clone()]),
    );
    CommandOutput::new(table(&rows, &[]), &json!({ "history": builder.history() }))
}

fn moment(at_ms: u64) -> String {
    let format = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    i64::try_from(at_ms / 1000)
        .ok()
        .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|moment| moment.format(format).ok())
        .unwrap_or_else(|| format!("{at_ms} ms"))
}

/// Compares two ring files.
pub(super) fn diff(old: &Path, new: &Path) -> Result<CommandOutput, Failure> {
    let diff = Diff::new(&Ring::load(old)?, &Ring::load(new)?)?;
    let mut text = format!("epoch {} → {}\n", diff.epoch.0, diff.epoch.1);
    if diff.part_power.0 != diff.part_power.1 {
        append_line(
            &mut text,
            format_args!("partitions 2^{} → 2^{}\n", diff.part_power.0, diff.part_power.1),
        );
    }
    if diff.replicas.0.to_bits() != diff.replicas.1.to_bits() {
        append_line(
            &mut text,
            format_args!("replicas {} → {}\n", diff.replicas.0, diff.replicas.1),
        );
    }
    append_line(
        &mut text,
        format_args!("balance {:.2} % → {:.2} %\n", diff.balance.0, diff.balance.1),
    );
    append_line(
        &mut text,
        format_args!("dispersion {:.2} % → {:.2} %\n", diff.dispersion.0, diff.dispersion.1),
    );
    for device in &diff.added {
        append_line(
            &mut text,
            format_args!("added {} {device} weight {}\n", device.id, device.weight),
        );
    }
    for device in &diff.removed {
        append_line(
            &mut text,
            format_args!("removed {} {device} weight {}\n", device.id, device.weight),
        );
    }
    for (was, is) in &diff.changed {
        text += &changed(was, is);
    }
    append_line(
        &mut text,
        format_args!(
            "{} on other devices, of {}\n",
            counted(diff.replicas_moved, "replica"),
            counted(diff.partitions, "partition")
        ),
    );
    let mut rows = vec![row(["device", "in", "out"])];
    for (id, (came, went)) in &diff.by_device {
        rows.push(vec![id.to_string(), count(*came), count(*went)]);
    }
    if rows.len() > 1 {
        text += &table(&rows, &[1, 2]);
    }
    Ok(CommandOutput::new(text, &diff))
}

fn changed(was: &Device, is: &Device) -> String {
    let mut what = Vec::new();
    if was.weight.to_bits() != is.weight.to_bits() {
        what.push(format!("weight {} → {}", was.weight, is.weight));
    }
    if was.node.address != is.node.address {
        what.push(format!("address {} → {}", was.node.address, is.node.address));
    }
    if was.name != is.name {
        what.push(format!("name {} → {}", was.name, is.name));
    }
    if was.meta != is.meta {
        what.push("metadata".to_owned());
    }
    format!("changed {} {is}: {}\n", is.id, what.join(", "))
}

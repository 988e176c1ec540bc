//! Text form of a rebalance plan, and the usage file that the plan reads.

use std::collections::BTreeMap;
use std::path::Path;

use martlet_protocol::DeviceId;
use martlet_ring::{DevicePlan, RebalancePlan, Usage};
use martlet_ring_steps::text::{count, counted};
use martlet_serving::Failure;
use serde::Deserialize;

use super::args::PlanArgs;
use super::text::{append_line, row, size};
use crate::columns::table;

/// Usage by device, in the hand-written form or in the form of a server's report.
#[derive(Deserialize)]
#[serde(untagged)]
enum UsageFile {
    Reported { devices: Vec<ReportedDevice> },
    Given(BTreeMap<String, Usage>),
}

/// Device in the output of `martlet admin status --json`.
#[derive(Deserialize)]
struct ReportedDevice {
    device: u32,
    total_bytes: u64,
    free_bytes: u64,
}

/// Reads the usage of devices from a file.
pub(super) fn read_usage(file: &Path) -> Result<BTreeMap<DeviceId, Usage>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::refused(format!("{} can't be read: {error}", file.display())))?;
    let unclear = || {
        Failure::refused(format!(
            "{} lacks the usage of devices: write {{\"d0\": {{\"used\": 1000, \"capacity\": \
             4000}}}} in bytes, or the output of `martlet admin status --json`",
            file.display()
        ))
    };
    match serde_json::from_str(&text).map_err(|_| unclear())? {
        UsageFile::Reported { devices } => Ok(devices.iter().map(from_report).collect()),
        UsageFile::Given(given) => given
            .into_iter()
            .map(|(id, usage)| {
                let id = id.strip_prefix('d').unwrap_or(&id).parse().map_err(|_| unclear())?;
                Ok((DeviceId(id), usage))
            })
            .collect(),
    }
}

fn from_report(report: &ReportedDevice) -> (DeviceId, Usage) {
    let used = report.total_bytes.saturating_sub(report.free_bytes);
    (DeviceId(report.device), Usage { used, capacity: report.total_bytes })
}

/// Formats a plan: replicas to move, bytes, hours and warnings.
pub(super) fn plan(
    plan: &RebalancePlan,
    usage: &BTreeMap<DeviceId, Usage>,
    args: &PlanArgs,
) -> String {
    if plan.replicas == 0 {
        return "no data would move\n".to_owned();
    }
    let mut text = format!(
        "{} would be copied, of {}",
        counted(plan.replicas, "replica"),
        counted(plan.partitions, "partition")
    );
    if usage.is_empty() {
        text += "; add --usage to show bytes, duration and fullness\n";
    } else {
        append_line(
            &mut text,
            format_args!(
                ": {}, in {:.1} hours at {} per second and device\n",
                size(plan.bytes),
                plan.hours,
                size(args.bandwidth.0)
            ),
        );
    }
    text += &devices(plan, !usage.is_empty());
    for warning in &plan.warnings {
        append_line(&mut text, format_args!("warning: {warning}\n"));
    }
    text
}

fn devices(plan: &RebalancePlan, with_bytes: bool) -> String {
    let mut heads = row(["device", "place", "before", "in", "out", "after"]);
    if with_bytes {
        heads.extend(row(["bytes in", "bytes out", "hours", "peak"]));
    }
    let mut rows = vec![heads];
    let moving = plan.devices.iter().filter(|device| device.coming + device.going > 0);
    rows.extend(moving.map(|device| line(device, with_bytes)));
    table(&rows, &[2, 3, 4, 5, 6, 7, 8, 9])
}

fn line(device: &DevicePlan, with_bytes: bool) -> Vec<String> {
    let mut cells = vec![
        device.id.to_string(),
        device.name.clone(),
        count(device.before),
        count(device.coming),
        count(device.going),
        count(device.after),
    ];
    if with_bytes {
        let peak = device.peak.map_or("?".to_owned(), |peak| format!("{:.1} %", peak * 100.0));
        cells.extend([
            size(device.bytes_in),
            size(device.bytes_out),
            format!("{:.1}", device.hours),
            peak,
        ]);
    }
    cells
}

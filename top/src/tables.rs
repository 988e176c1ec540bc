//! Rows of all tables, from replies of the admin API. Each text passes [`escaped`] here.

use std::collections::{BTreeSet, HashMap};

use martlet_admin_api::forecast::{Capacity, DeviceCapacity, RingSpread};
use martlet_admin_api::jobs::JobLine;
use martlet_admin_api::{
    DeviceLine, MemberLine, MovesLine, NodeLine, ProcessReport, ServerStatus, WorkerLine,
};

use crate::cell::{Cell, Tone};
use crate::listing::{Column, Table};
use crate::text::{escaped, float};

const fn text(title: &'static str, rank: u8) -> Column {
    Column { title, is_figure: false, rank }
}

const fn figure(title: &'static str, rank: u8) -> Column {
    Column { title, is_figure: true, rank }
}

const WARNINGS: &[Column] = &[text("warning", 0)];
const DEVICES: &[Column] = &[
    text("zone", 2),
    text("node", 0),
    text("device", 0),
    text("state", 0),
    text("full", 4),
    figure("now", 0),
    figure("after moves", 1),
    figure("used", 5),
    figure("total", 3),
    text("reason", 6),
];
const NODES: &[Column] = &[
    text("name", 0),
    text("role", 1),
    text("state", 0),
    text("release", 3),
    figure("silent for", 0),
    figure("clock", 2),
    text("address", 4),
];
const RINGS: &[Column] = &[
    text("ring", 0),
    figure("epoch", 0),
    text("phase", 0),
    figure("balance", 1),
    figure("dispersion", 1),
    figure("moving", 2),
    figure("replicas", 4),
    figure("receivers left", 3),
    figure("devices", 5),
    figure("partitions", 6),
];
const WORKERS: &[Column] = &[
    text("process", 0),
    text("worker", 0),
    text("state", 0),
    figure("pace", 2),
    figure("backlog", 0),
    figure("oldest", 1),
    figure("time left", 3),
    figure("failures", 4),
    text("error", 5),
];
const JOBS: &[Column] = &[
    text("kind", 0),
    text("subject", 2),
    text("state", 0),
    text("progress", 3),
    figure("done", 0),
    figure("time left", 1),
    text("text", 4),
    text("id", 5),
];

fn name(of: &str) -> Cell {
    Cell::Text(escaped(of))
}

/// Returns the warnings of all nodes, processes and devices, each once.
pub(crate) fn warnings(status: Option<&ServerStatus>, capacity: Option<&Capacity>) -> Table {
    let mut all: Vec<String> = Vec::new();
    if let Some(status) = status {
        all.extend(status.own.reasons.iter().cloned());
        let silent = status.nodes.iter().filter(|node| node.report.is_none());
        all.extend(silent.map(|node| format!("the node {} does not answer", node.name)));
        let nodes = status.nodes.iter().filter_map(|node| node.report.as_ref());
        let reports = nodes.chain(status.members.iter().map(|member| &member.report));
        // The queried process is one of the nodes or members.
        for report in reports.filter(|report| report.role != status.own.role) {
            all.extend(report.reasons.iter().map(|reason| format!("{}: {reason}", report.role)));
        }
    }
    all.extend(capacity.iter().flat_map(|it| it.warnings.iter().cloned()));
    let mut seen = BTreeSet::new();
    let different = all.into_iter().map(|it| escaped(&it)).filter(|it| seen.insert(it.clone()));
    Table {
        columns: WARNINGS,
        rows: different.map(|text| vec![Cell::State(text, Tone::Warn)]).collect(),
    }
}

/// Returns the devices of all nodes that report their capacity.
pub(crate) fn devices(status: Option<&ServerStatus>, capacity: &Capacity) -> Table {
    let reports = status.iter().flat_map(|status| {
        let nodes = status.nodes.iter().filter_map(|node| node.report.as_ref());
        std::iter::once(&status.own).chain(nodes)
    });
    let lines: HashMap<u32, &DeviceLine> =
        reports.flat_map(|report| &report.devices).map(|line| (line.device, line)).collect();
    let row = |device: &DeviceCapacity| device_row(device, lines.get(&device.device).copied());
    Table { columns: DEVICES, rows: capacity.devices.iter().map(row).collect() }
}

fn device_row(device: &DeviceCapacity, line: Option<&DeviceLine>) -> Vec<Cell> {
    let zone = match (device.region, device.zone) {
        (Some(region), Some(zone)) => format!("r{region}z{zone}"),
        _ => "-".to_owned(),
    };
    let id = format!("d{}", device.device);
    let own = if device.name.is_empty() { id } else { escaped(&device.name) };
    let state = match line {
        Some(line) => {
            let tone = match line.health.as_str() {
                "ready" => Tone::Good,
                "full" => Tone::Warn,
                _ => Tone::Bad,
            };
            Cell::State(escaped(&line.health), tone)
        }
        None => Cell::State("unknown".to_owned(), Tone::Warn),
    };
    vec![
        Cell::Text(zone),
        name(&device.node),
        Cell::Text(own),
        state,
        Cell::Bar(device.fullness, device.high_water),
        Cell::Share(Some(device.fullness)),
        Cell::Share(Some(device.fullness_projected)),
        Cell::Bytes(device.used_bytes),
        Cell::Bytes(device.total_bytes),
        name(line.and_then(|line| line.reason.as_deref()).unwrap_or("")),
    ]
}

/// Returns the storage nodes and the other processes of the cluster. A server alone is one process.
pub(crate) fn nodes(status: &ServerStatus) -> Table {
    let mut rows: Vec<Vec<Cell>> = status.nodes.iter().map(node_row).collect();
    rows.extend(
        status.members.iter().map(|MemberLine { heard_ms_ago, report, .. }| {
            process_row(report, Some(*heard_ms_ago))
        }),
    );
    if rows.is_empty() {
        rows.push(process_row(&status.own, Some(0)));
    }
    Table { columns: NODES, rows }
}

fn node_row(node: &NodeLine) -> Vec<Cell> {
    let report = node.report.as_ref();
    vec![
        name(&node.name),
        Cell::Text("storage node".to_owned()),
        process_state(report),
        name(report.map_or("-", |report| &report.version)),
        Cell::Span(node.heard_ms_ago.map(|ms| ms / 1000)),
        Cell::Clock(node.clock_ahead_ms),
        name(&node.address),
    ]
}

/// Makes the row of a process, whose role is followed by its name: `proxy p1`.
fn process_row(report: &ProcessReport, heard_ms_ago: Option<u64>) -> Vec<Cell> {
    let (role, own) = report.role.rsplit_once(' ').unwrap_or((&report.role, &report.role));
    let address = report.admin_address.map_or_else(|| "-".to_owned(), |it| it.to_string());
    vec![
        name(own),
        name(role),
        process_state(Some(report)),
        name(&report.version),
        Cell::Span(heard_ms_ago.map(|ms| ms / 1000)),
        Cell::Clock(Some(report.clock_ahead_ms)),
        Cell::Text(address),
    ]
}

fn process_state(report: Option<&ProcessReport>) -> Cell {
    let (text, tone) = match report {
        None => ("silent", Tone::Bad),
        Some(report) if report.ready => ("ready", Tone::Good),
        Some(_) => ("not ready", Tone::Bad),
    };
    Cell::State(text.to_owned(), tone)
}

/// Returns the rings, with the progress of their changes.
pub(crate) fn rings(status: Option<&ServerStatus>, rings: &[RingSpread]) -> Table {
    let moves = |ring: &str| {
        let mut all = status.iter().flat_map(|status| &status.moves);
        all.find(|line| line.ring == ring)
    };
    let row = |ring: &RingSpread| ring_row(ring, moves(&ring.ring));
    Table { columns: RINGS, rows: rings.iter().map(row).collect() }
}

fn ring_row(ring: &RingSpread, moves: Option<&MovesLine>) -> Vec<Cell> {
    let change = moves.and_then(|line| line.change.as_ref());
    let phase = match change {
        Some(change) if change.phase == "new" => Cell::State(escaped(&change.phase), Tone::Calm),
        Some(change) => Cell::State(escaped(&change.phase), Tone::Busy),
        None => Cell::State("-".to_owned(), Tone::Calm),
    };
    let left = change.map_or(0, |change| change.receivers.saturating_sub(change.joined));
    vec![
        name(&ring.ring),
        Cell::Number(ring.epoch),
        phase,
        Cell::Percent(ring.balance),
        Cell::Percent(ring.dispersion),
        Cell::Number(ring.replicas_moving),
        Cell::Number(moves.map_or(0, |line| line.replicas)),
        Cell::Number(left),
        Cell::Number(ring.devices),
        Cell::Number(ring.partitions),
    ]
}

/// Returns the workers of all processes of a status.
pub(crate) fn workers(status: &ServerStatus) -> Table {
    let members = status.members.iter().map(|member| &member.report);
    let own = std::iter::once(&status.own).filter(|_| status.nodes.is_empty());
    // A server, which has no members, reports its own workers.
    let reports = members.chain(own.filter(|_| status.members.is_empty()));
    let rows = reports.flat_map(|it| it.workers.iter().map(|line| worker_row(&it.role, line)));
    Table { columns: WORKERS, rows: rows.collect() }
}

fn worker_row(process: &str, line: &WorkerLine) -> Vec<Cell> {
    let (state, tone) = match (&line.error, line.idle) {
        (Some(_), _) => ("failed", Tone::Bad),
        (None, true) => ("idle", Tone::Calm),
        (None, false) => ("working", Tone::Busy),
    };
    let oldest = (line.oldest_age_ms > 0).then_some(line.oldest_age_ms / 1000);
    vec![
        name(process),
        name(&line.worker),
        Cell::State(state.to_owned(), tone),
        Cell::Pace(line.rate),
        Cell::Number(line.backlog.saturating_add(line.ahead)),
        Cell::Span(oldest),
        Cell::Span(line.eta_s),
        Cell::Number(line.failures),
        name(line.error.as_deref().unwrap_or("")),
    ]
}

/// Returns the jobs, those that run first.
pub(crate) fn jobs(jobs: &[JobLine]) -> Table {
    let (running, ended): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.is_running());
    Table { columns: JOBS, rows: running.into_iter().chain(ended).map(job_row).collect() }
}

fn job_row(job: &JobLine) -> Vec<Cell> {
    let tone = match job.state.as_str() {
        "running" => Tone::Busy,
        "done" => Tone::Good,
        "failed" => Tone::Bad,
        _ => Tone::Calm,
    };
    let progress = &job.progress;
    let total = progress.total.filter(|total| *total > 0);
    let share = match total {
        _ if job.state == "done" => Some(1.0),
        Some(total) => Some((float(progress.done) / float(total)).min(1.0)),
        None => None,
    };
    let counted = || format!("{} {}", progress.done, progress.unit);
    let of_progress = if progress.text.is_empty() { counted() } else { progress.text.clone() };
    vec![
        name(&job.kind),
        name(&job.subject),
        Cell::State(escaped(&job.state), tone),
        Cell::Bar(share.unwrap_or(0.0), 1.0),
        Cell::Share(share),
        Cell::Span(job.eta_s),
        name(job.error.as_deref().unwrap_or(&of_progress)),
        name(&job.id),
    ]
}

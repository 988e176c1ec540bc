//! Text output for the status of a process and its cluster.

use std::fmt::Write;

use martlet_admin_api::{
    DeviceLine, MemberLine, MemoryLine, MovesLine, NodeLine, ProcessReport, ReleaseLine, RingLine,
    ServerStatus, WorkerLine,
};

use super::cells::{bar, percent, row, size, span};
use super::editions::NewestRings;
use super::workers::eta;
use crate::columns::table;

/// Formats the status of a process, with its view of the cluster.
pub(crate) fn status(status: &ServerStatus) -> String {
    let ServerStatus { own, nodes, members, moves, waiting_epoch, .. } = status;
    let ready = if own.ready { "ready" } else { "not ready" };
    let mut text = format!("martlet {} ({}) is {ready}\n", own.version, own.role);
    for reason in &own.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    if let Some(release) = &own.release {
        text += &versions(release);
    }
    if let Some(memory) = &own.memory {
        text += &memory_split(memory);
    }
    if nodes.is_empty() {
        text += &devices(own.devices.iter().map(|device| ("", device)));
        return text + &busy(&[(own, &own.workers)]);
    }
    text += &cluster(status);
    let newest = newest(nodes, members);
    let _ = write!(text, "\n{}", processes(nodes, members, &newest));
    let reported =
        nodes.iter().filter_map(|node| Some((node.name.as_str(), node.report.as_ref()?)));
    let all = reported.flat_map(|(name, report)| report.devices.iter().map(move |it| (name, it)));
    let _ = write!(text, "\n{}", devices(all));
    if !moves.is_empty() {
        let _ = write!(text, "\n{}", moving(moves));
    }
    if let Some(epoch) = waiting_epoch {
        let _ = writeln!(
            text,
            "the index ring of epoch {epoch} waits for the end of the change before it"
        );
    }
    let workers: Vec<_> =
        members.iter().map(|member| (&member.report, &member.report.workers)).collect();
    text + &busy(&workers)
}

/// Formats the versions that the process knows.
fn versions(release: &ReleaseLine) -> String {
    let ReleaseLine { wire_oldest, wire_newest, formats_newest, format_level, .. } = *release;
    let mut text = format!(
        "speaks versions {wire_oldest} to {wire_newest} of the internal protocol; format level \
         {format_level}"
    );
    if format_level < formats_newest {
        let _ = write!(text, " of {formats_newest}: not finalized");
    }
    text + "\n"
}

/// Formats the split of the memory.
pub(crate) fn memory_split(memory: &MemoryLine) -> String {
    let MemoryLine { memory_bytes, index_cache_bytes, index_write_bytes, body_bytes } = *memory;
    let [all, cache, writes, bodies] =
        [memory_bytes, index_cache_bytes, index_write_bytes, body_bytes].map(size);
    format!("memory {all}: index cache {cache}, index writes {writes}, bodies {bodies}\n")
}

/// Formats a summary of the cluster, and the problems of other processes.
fn cluster(status: &ServerStatus) -> String {
    let ServerStatus { nodes, members, own, .. } = status;
    let reports = || nodes.iter().filter_map(|node| node.report.as_ref());
    let devices: Vec<&DeviceLine> = reports().flat_map(|report| &report.devices).collect();
    let hints: u64 = devices.iter().map(|device| device.hints).sum();
    let without_votes = devices.iter().filter(|device| !device.voting).count();
    let up = reports().count();
    let mut text = format!(
        "{up} of {} nodes answer, with {} devices ({without_votes} without votes); {} other \
         processes; {hints} hints wait\nterm {}; this machine's clock is {} ms ahead of the cluster's\n",
        nodes.len(),
        devices.len(),
        members.len(),
        status.term,
        own.clock_ahead_ms,
    );
    for report in reports().chain(members.iter().map(|member| &member.report)) {
        for reason in report.reasons.iter().filter(|_| report.role != own.role) {
            let _ = writeln!(text, "  {}: {reason}", report.role);
        }
    }
    text
}

/// Returns the newest known edition of each ring.
fn newest(nodes: &[NodeLine], members: &[MemberLine]) -> NewestRings {
    let rings = nodes.iter().map(|node| &node.rings);
    NewestRings::of(rings.chain(members.iter().map(|member| &member.report.rings)).flatten())
}

/// Formats a process's rings: `index=2 data-0=1 (old)`.
fn editions(rings: &[RingLine], newest: &NewestRings) -> String {
    let edition = |name: &str| match rings.iter().find(|ring| ring.name == name) {
        None => format!("{name} (none)"),
        Some(ring) => format!("{name}={}{}", ring.epoch, newest.mark(ring)),
    };
    newest.names().map(edition).collect::<Vec<_>>().join(" ")
}

fn processes(nodes: &[NodeLine], members: &[MemberLine], newest: &NewestRings) -> String {
    let heads = ["process", "address", "state", "heard", "latency", "clock", "rings"];
    let mut rows = vec![row(heads)];
    rows.extend(nodes.iter().map(|node| {
        let heard = node.heard_ms_ago.map_or("never".to_owned(), ago);
        let clock = node.clock_ahead_ms.map_or("unknown".to_owned(), |ms| format!("{ms:+} ms"));
        row([
            &format!("storage node {}", node.name),
            &node.address,
            state(node.report.as_ref()),
            &heard,
            &format!("{} µs", node.latency_us),
            &clock,
            &editions(&node.rings, newest),
        ])
    }));
    rows.extend(members.iter().map(|MemberLine { heard_ms_ago, report, .. }| {
        let address = report.admin_address.map_or_else(|| "-".to_owned(), |it| it.to_string());
        row([
            &report.role,
            &address,
            state(Some(report)),
            &ago(*heard_ms_ago),
            "-",
            &format!("{:+} ms", report.clock_ahead_ms),
            &editions(&report.rings, newest),
        ])
    }));
    table(&rows, &[4, 5])
}

fn state(report: Option<&ProcessReport>) -> &'static str {
    match report {
        None => "silent",
        Some(report) if report.ready => "ready",
        Some(_) => "not ready",
    }
}

fn ago(ms: u64) -> String {
    if ms < 5000 { "now".to_owned() } else { format!("{} ago", span(ms)) }
}

fn devices<'a>(devices: impl Iterator<Item = (&'a str, &'a DeviceLine)>) -> String {
    let mut heads = vec!["device", "place", "health", "votes", "full", "", "free", "of"];
    heads.extend(["extents", "bytes", "hints", "quarantined", "folder"]);
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(devices.map(|(node, device)| {
        let place = if node.is_empty() { "-".into() } else { format!("{node}/{}", device.name) };
        row([
            &format!("d{}", device.device),
            &place,
            &device.health,
            if device.voting { "yes" } else { "no" },
            &bar(share(device.used_bytes, device), high_water(device)),
            &percent(share(device.used_bytes, device)),
            &size(device.free_bytes),
            &size(device.total_bytes),
            &device.extents.to_string(),
            &size(device.extent_bytes),
            &device.hints.to_string(),
            &device.quarantined.to_string(),
            &device.path.display().to_string(),
        ])
    }));
    table(&rows, &[5, 6, 7, 8, 9, 10, 11])
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn share(bytes: u64, device: &DeviceLine) -> f64 {
    bytes as f64 / device.total_bytes.max(1) as f64
}

fn high_water(device: &DeviceLine) -> f64 {
    share(device.total_bytes.saturating_sub(device.reserve_bytes), device)
}

fn moving(moves: &[MovesLine]) -> String {
    let mut heads = vec!["ring", "epoch", "partitions moving", "of", "replicas moving", "of"];
    heads.extend(["change", "phase", "receivers done"]);
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(moves.iter().map(|it| {
        let dash = || "-".to_owned();
        let change = it.change.as_ref();
        row([
            &it.ring,
            &it.epoch.to_string(),
            &it.partitions_moving.to_string(),
            &it.partitions.to_string(),
            &it.replicas_moving.to_string(),
            &it.replicas.to_string(),
            &change.map_or_else(dash, |it| it.change.to_string()),
            &change.map_or_else(dash, |it| it.phase.clone()),
            &change.map_or_else(dash, |it| format!("{} of {}", it.joined, it.receivers)),
        ])
    }));
    table(&rows, &[1, 2, 3, 4, 5, 6])
}

/// Formats the workers that have a backlog or an error.
fn busy(processes: &[(&ProcessReport, &Vec<WorkerLine>)]) -> String {
    let mut rows = vec![row(["process", "worker", "waiting", "oldest", "rate", "eta", "error"])];
    let lines = processes.iter().flat_map(|(it, lines)| lines.iter().map(move |line| (it, line)));
    for (process, line) in lines.filter(|(_, it)| it.backlog > 0 || it.error.is_some()) {
        rows.push(row([
            &process.role,
            &line.worker,
            &line.backlog.to_string(),
            &span(line.oldest_age_ms),
            &format!("{:.1}/s", line.rate),
            &eta(line),
            line.error.as_deref().unwrap_or("-"),
        ]));
    }
    let table = match rows.len() {
        1 => "\nno worker has a backlog\n".to_owned(),
        _ => format!("\n{}", table(&rows, &[2, 3, 4, 5])),
    };
    table + &differing(processes)
}

/// Formats a line for each process that knows of extents whose copies differ.
fn differing(processes: &[(&ProcessReport, &Vec<WorkerLine>)]) -> String {
    let lines = processes.iter().flat_map(|(it, lines)| lines.iter().map(move |line| (it, line)));
    let lines = lines.filter(|(_, line)| line.differing_extents > 0).map(|(process, line)| {
        let (count, role) = (line.differing_extents, &process.role);
        format!(
            "{count} extents have different bytes on two primaries, as the log of {role} shows\n"
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests;

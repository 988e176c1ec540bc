//! Answers for people, or as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::wire::{BucketLine, DeviceLine, NodeLine, ObjectExtents, ServerStatus, WorkerLine};
use crate::columns::table;

/// Prints an answer in the form that was asked for.
pub(crate) fn show<T: Serialize>(answer: &T, json: bool, text: impl Fn(&T) -> String) {
    if json {
        let json = serde_json::to_string_pretty(answer).expect("plain data can be encoded");
        println!("{json}");
    } else {
        print!("{}", text(answer));
    }
}

/// `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (0..UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    if power == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", UNITS[power]) }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Where an object's bytes are.
pub(crate) fn extents(object: &ObjectExtents) -> String {
    let ObjectExtents { bucket, key, size: bytes, etag, stored, extents } = object;
    let head = format!("{bucket}/{key}  {bytes} bytes  ETag {etag}\n");
    match stored.as_str() {
        "extents" => {}
        "inline" => return head + "inline: its bytes are within the index, not in an extent\n",
        _ => return head + "empty: there are no bytes\n",
    }
    let mut rows =
        vec![row(["object offset", "device", "file offset", "length", "BLAKE3", "file"])];
    rows.extend(extents.iter().map(|extent| {
        vec![
            extent.object_offset.to_string(),
            format!("d{}", extent.device),
            extent.offset.to_string(),
            extent.length.to_string(),
            extent.blake3.clone(),
            extent.path.display().to_string(),
        ]
    }));
    head + &table(&rows, &[])
}

/// How a process is.
pub(crate) fn status(status: &ServerStatus) -> String {
    let ready = if status.ready { "ready" } else { "not ready" };
    let mut text = format!("martlet {} ({}) is {ready}\n", status.version, status.role);
    for reason in &status.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    if !status.devices.is_empty() {
        text += &devices(&status.devices);
    }
    for ring in &status.rings {
        let _ = writeln!(text, "ring {} has epoch {} ({})", ring.name, ring.epoch, ring.hash);
    }
    if !status.nodes.is_empty() {
        text += &nodes(&status.nodes);
        let _ = writeln!(
            text,
            "this machine's clock is {} ms ahead of the cluster's",
            status.clock_ahead_ms
        );
    }
    text
}

fn devices(devices: &[DeviceLine]) -> String {
    let heads = [
        "device",
        "health",
        "votes",
        "free",
        "of",
        "extents",
        "bytes",
        "quarantined",
        "hints",
        "folder",
    ];
    let mut rows = vec![row(heads)];
    rows.extend(devices.iter().map(|device| {
        vec![
            format!("d{}", device.device),
            device.health.clone(),
            if device.voting { "yes" } else { "no" }.to_owned(),
            size(device.free_bytes),
            size(device.total_bytes),
            device.extents.to_string(),
            size(device.extent_bytes),
            device.quarantined.to_string(),
            device.hints.to_string(),
            device.path.display().to_string(),
        ]
    }));
    table(&rows, &[])
}

fn nodes(nodes: &[NodeLine]) -> String {
    let heads = ["node", "address", "answers", "heard", "latency", "clock", "rings"];
    let mut rows = vec![row(heads)];
    rows.extend(nodes.iter().map(|node| {
        let rings: Vec<String> =
            node.rings.iter().map(|ring| format!("{}={}", ring.name, ring.epoch)).collect();
        vec![
            node.name.clone(),
            node.address.clone(),
            if node.answers { "yes" } else { "no" }.to_owned(),
            node.heard_ms_ago.map_or("never".to_owned(), |ms| format!("{ms} ms ago")),
            format!("{} µs", node.latency_us),
            node.clock_ahead_ms.map_or("unknown".to_owned(), |ms| format!("{ms:+} ms")),
            rings.join(" "),
        ]
    }));
    table(&rows, &[])
}

/// What is set about a bucket.
pub(crate) fn bucket(line: &BucketLine) -> String {
    format!("{}: consistency {}\n", line.bucket, line.consistency)
}

/// How the workers are.
pub(crate) fn workers(workers: &[WorkerLine]) -> String {
    let heads = ["worker", "rate", "freed", "bytes", "waiting", "oldest", "kept", "state"];
    let mut rows = vec![row(heads)];
    rows.extend(workers.iter().map(|worker| {
        let state = match &worker.error {
            Some(error) => error.clone(),
            None if worker.idle => "idle".to_owned(),
            None => "working".to_owned(),
        };
        vec![
            worker.worker.clone(),
            format!("{:.1}/s", worker.rate),
            worker.freed_extents.to_string(),
            size(worker.freed_bytes),
            worker.backlog.to_string(),
            format!("{}s", worker.oldest_age_ms / 1000),
            worker.kept.to_string(),
            state,
        ]
    }));
    table(&rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
    }

    #[test]
    fn inline_objects_say_so() {
        let object = ObjectExtents {
            bucket: "b".into(),
            key: "k".into(),
            size: 3,
            etag: "e".into(),
            stored: "inline".into(),
            extents: Vec::new(),
        };
        assert!(extents(&object).contains("inline: its bytes are within the index"));
    }
}

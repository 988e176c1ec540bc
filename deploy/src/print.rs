//! Plans as text for people and as JSON for programs. Contents of secret files are never printed.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::files::{FileChange, FileKind};
use crate::machine::{PrintableSetting, printable};
use crate::names::CLUSTER_DIR;
use crate::plan::{ClusterPlan, RingStep};

/// Settings of a file by their names.
type Settings = BTreeMap<String, PrintableSetting>;

/// Most lines of a settings file's change.
const LINES_MAX: usize = 40;

impl ClusterPlan {
    /// Formats the plan for people.
    pub fn to_text(&self) -> String {
        let mut text = format!("cluster {}: {} machines\n", self.name, self.nodes.len());
        self.write_secrets(&mut text);
        for step in self.certificates.iter().filter(|step| step.reason.is_some()) {
            let (path, reason) = (step.path.display(), step.reason.as_deref().unwrap_or_default());
            line(&mut text, format_args!("certificate {path}: {reason}; until {}", step.ends));
        }
        for step in &self.steps {
            self.write_ring(&mut text, step);
        }
        if let Some(why) = &self.waits {
            line(
                &mut text,
                format_args!("the rings wait, and no file is written until then: {why}"),
            );
        }
        self.write_machines(&mut text);
        self.write_nodes(&mut text);
        for path in &self.left_over {
            let path = path.display();
            line(
                &mut text,
                format_args!(
                    "{path}: the file no longer names this machine; once a census is clean, stop \
                     it and remove the folder"
                ),
            );
        }
        if self.is_empty() && self.waits.is_none() {
            line(&mut text, format_args!("nothing to change"));
        }
        text
    }

    fn write_secrets(&self, text: &mut String) {
        let folders = self.by_folder();
        let own = folders.get(CLUSTER_DIR).map(Vec::as_slice).unwrap_or_default();
        let secrets = own.iter().filter(|change| change.wanted.kind == FileKind::Secret);
        let names: Vec<String> = secrets.map(|change| file_name(change)).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            line(text, format_args!("keys in {CLUSTER_DIR}/, mode 0600: {names}"));
        }
    }

    fn write_ring(&self, text: &mut String, step: &RingStep) {
        let RingStep { name, epoch, part_power, replicas, devices, .. } = step;
        let shape = format!("2^{part_power} partitions × {replicas} on {devices} devices");
        if !step.changes && self.waits.is_none() {
            line(text, format_args!("ring {name}: epoch {epoch}, {shape}; stays"));
            return;
        }
        line(text, format_args!("ring {name}: epoch {epoch}, {shape}"));
        for edit in &step.edits {
            line(text, format_args!("  {edit}"));
        }
        if let Some(cost) = &step.cost {
            let rate = size(self.bandwidth.0);
            line(
                text,
                format_args!(
                    "  {} replicas of {} partitions move: {}, {:.1} hours at {rate} a second and \
                     device",
                    cost.replicas,
                    cost.partitions,
                    size(cost.bytes),
                    cost.hours
                ),
            );
            let peak = |device: &&martlet_ring::DevicePlan| device.peak.unwrap_or_default();
            let fullest = cost.devices.iter().max_by(|a, b| peak(a).total_cmp(&peak(b)));
            if let Some((device, peak)) = fullest.and_then(|it| Some((it, it.peak?))) {
                let peak = peak * 100.0;
                line(text, format_args!("  at most {peak:.1} % full: {}", device.name));
            } else if cost.replicas > 0 {
                line(text, format_args!("  no node answers, so bytes and fullness are unknown"));
            }
            for warning in &cost.warnings {
                line(text, format_args!("  warning: {warning}"));
            }
        }
        let Some(report) = &step.report else { return };
        if report.locked > 0 {
            let locked = report.locked;
            line(
                text,
                format_args!(
                    "  {locked} partitions stay until their earlier moves are settled: apply with \
                     --settle after a clean census"
                ),
            );
        }
        if report.rebalances_to_go > 0 {
            let count = report.rebalances_to_go;
            line(
                text,
                format_args!("  {count} more steps follow: apply again after each clean census"),
            );
        }
    }

    fn write_machines(&self, text: &mut String) {
        let folders = self.by_folder();
        for name in &self.nodes {
            let Some(changes) = folders.get(name.as_str()) else { continue };
            let is_new = changes.iter().all(|change| change.before.is_none());
            let names: Vec<String> = changes.iter().map(|change| file_name(change)).collect();
            let state = if is_new { "new: " } else { "" };
            line(text, format_args!("machine {name}: {state}{}", names.join(", ")));
            let shown = [FileKind::Settings, FileKind::Unit];
            for change in changes.iter().filter(|it| shown.contains(&it.wanted.kind)) {
                write_lines(text, change);
            }
        }
    }

    fn write_nodes(&self, text: &mut String) {
        let stale: Vec<&str> = self.stale_rings().into_iter().map(|(name, _)| name).collect();
        for node in &self.survey {
            match &node.report {
                Ok(_) if stale.is_empty() => {}
                Ok(_) => {
                    let rings = node.rings().iter();
                    let rings: Vec<String> =
                        rings.map(|ring| format!("{} {}", ring.name, ring.epoch)).collect();
                    line(text, format_args!("node {} runs, with {}", node.name, rings.join(", ")));
                }
                Err(why) => {
                    let (name, address) = (&node.name, &node.address);
                    line(text, format_args!("node {name} at {address} is not reached: {why}"));
                }
            }
        }
        if !stale.is_empty() {
            line(text, format_args!("rings to push: {}", stale.join(", ")));
        }
    }

    /// Returns the plan for programs.
    pub fn to_json(&self) -> Value {
        let machines: Vec<Value> = self
            .by_folder()
            .into_iter()
            .map(|(name, changes)| {
                let files: Vec<String> = changes.into_iter().map(file_name).collect();
                json!({ "folder": name, "files": files })
            })
            .collect();
        let nodes: Vec<Value> = self
            .survey
            .iter()
            .map(|node| {
                let error = node.report.as_ref().err();
                json!({ "name": node.name, "address": node.address, "error": error })
            })
            .collect();
        let pushes: Vec<&str> = self.stale_rings().into_iter().map(|(name, _)| name).collect();
        json!({
            "cluster": self.name,
            "changes": !self.is_empty(),
            "rings": self.steps,
            "waits": self.waits,
            "certificates": self.certificates,
            "folders": machines,
            "nodes": nodes,
            "machines_to_copy": self.machines_to_copy(),
            "pushes": pushes,
            "left_over": self.left_over,
        })
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{arguments}");
}

fn file_name(change: &FileChange) -> String {
    change.wanted.path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Writes the lines that a settings file or a unit loses and gains.
fn write_lines(text: &mut String, change: &FileChange) {
    let Some(before) = &change.before else { return };
    let after = &change.wanted.bytes;
    let changed = match change.wanted.kind {
        FileKind::Settings => changed_settings(before, after),
        _ => changed_lines(&String::from_utf8_lossy(before), &String::from_utf8_lossy(after)),
    };
    for changed in changed.iter().take(LINES_MAX) {
        line(text, format_args!("  {changed}"));
    }
}

/// Settings that differ. A file with mistakes isn't shown: its secrets can't be found.
fn changed_settings(before: &[u8], after: &[u8]) -> Vec<String> {
    let (Some(before), Some(after)) = (printable(before), printable(after)) else {
        return vec!["its former text was no settings file".to_owned()];
    };
    let differs = |one: &Settings, other: &Settings, sign: char| -> Vec<String> {
        let is_other = |name: &String, it: &PrintableSetting| {
            other.get(name).is_none_or(|other| other.value != it.value)
        };
        let changed = one.iter().filter(|(name, it)| is_other(name, it));
        changed.map(|(_, it)| format!("{sign} {}", it.line)).collect()
    };
    [differs(&before, &after, '-'), differs(&after, &before, '+')].concat()
}

fn changed_lines(before: &str, after: &str) -> Vec<String> {
    let gone = before.lines().filter(|it| !after.lines().any(|other| other == *it));
    let come = after.lines().filter(|it| !before.lines().any(|other| other == *it));
    gone.map(|it| format!("- {it}")).chain(come.map(|it| format!("+ {it}"))).collect()
}

/// Formats bytes with a decimal unit.
fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = bytes as f64;
    let mut at = 0;
    while value >= 1000.0 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    if at == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[at]) }
}

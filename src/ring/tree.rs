//! Tree view of a ring: regions, zones, nodes and devices, with bars for their replicas.

use std::path::Path;

use martlet_protocol::Redundancy;
use martlet_ring::{Builder, Device, DeviceFigures, Figures};
use martlet_ring_steps::redundancy_text;
use martlet_ring_steps::text::{count, counted};
use serde_json::json;

use super::args::Depth;
use super::output::CommandOutput;
use super::text::{append_line, bar, deviation, row};
use crate::columns::table;

/// Maximum number of devices that are listed one by one without `--depth`.
const DEVICES_SHOWN: usize = 64;

/// Device with its figures; `None` before the first rebalance.
struct DeviceLeaf<'a> {
    device: &'a Device,
    figure: Option<&'a DeviceFigures>,
}

/// Formats a ring as a tree, and as JSON.
pub(super) fn show(builder: &Builder, path: &Path, depth: Option<Depth>) -> CommandOutput {
    let figures = Figures::of_builder(builder).ok();
    let mut leaves: Vec<DeviceLeaf<'_>> = builder
        .devices()
        .enumerate()
        .map(|(at, device)| DeviceLeaf {
            device,
            figure: figures.as_ref().and_then(|f| f.devices.get(at)),
        })
        .collect();
    leaves.sort_by(|a, b| {
        (a.device.node_path(), a.device.id).cmp(&(b.device.node_path(), b.device.id))
    });
    let few = leaves.len() <= DEVICES_SHOWN;
    let depth = depth.unwrap_or(if few { Depth::Device } else { Depth::Node });
    let mut rows = vec![row(["", "devices", "weight", "share", "holds", "deviation", ""])];
    branch(&mut rows, &leaves, Depth::Region, depth, "");
    let mut text = header(builder, path, figures.as_ref());
    if !leaves.is_empty() {
        text += &table(&rows, &[1, 2, 3, 4, 5]);
    }
    for device in builder.removed() {
        append_line(&mut text, format_args!("the next rebalance removes {} {device}\n", device.id));
    }
    let json = json!({
        "settings": builder.settings(),
        "epoch": builder.epoch(),
        "changed_since_rebalance": builder.is_changed(),
        "moving": builder.moving(),
        "draining": builder.draining().collect::<Vec<_>>(),
        "devices": builder.devices().collect::<Vec<_>>(),
        "removed": builder.removed().collect::<Vec<_>>(),
        "figures": figures,
    });
    CommandOutput::new(text, &json)
}

fn header(builder: &Builder, path: &Path, figures: Option<&Figures>) -> String {
    let settings = builder.settings();
    let mut text = format!(
        "{}: policy {} ({}), epoch {}, 2^{} partitions × {}\n{}, min-part-hours {}, overload {}",
        path.display(),
        settings.policy.0,
        settings.policy_name,
        builder.epoch(),
        settings.part_power,
        match settings.redundancy {
            Redundancy::Replicated => format!("{} replicas", settings.replicas),
            Redundancy::Erasure { .. } => redundancy_text(settings),
        },
        counted(builder.devices().count() as u64, "device"),
        settings.min_part_hours,
        settings.overload
    );
    if let Some(figures) = figures {
        append_line(
            &mut text,
            format_args!(
                ", balance {:.2} %, dispersion {:.2} %",
                figures.balance, figures.dispersion
            ),
        );
    }
    text.push('\n');
    if builder.moving() > 0 {
        append_line(
            &mut text,
            format_args!("{} moving\n", counted(builder.moving() as u64, "replica")),
        );
    }
    let draining = builder.draining().count() as u64;
    if draining > 0 {
        append_line(&mut text, format_args!("{} draining\n", counted(draining, "device")));
    }
    if builder.is_changed() {
        text += "changed since the last rebalance\n";
    }
    text
}

/// Appends the rows of one level: the regions, or the parts of one region, zone or node.
fn branch(
    rows: &mut Vec<Vec<String>>,
    leaves: &[DeviceLeaf<'_>],
    level: Depth,
    depth: Depth,
    lead: &str,
) {
    let groups: Vec<&[DeviceLeaf<'_>]> =
        leaves.chunk_by(|a, b| place(a, level) == place(b, level)).collect();
    for (at, group) in groups.iter().enumerate() {
        let is_last = at + 1 == groups.len();
        let (tick, below) = match (level, is_last) {
            (Depth::Region, _) => ("", ""),
            (_, true) => ("└─ ", "   "),
            (_, false) => ("├─ ", "│  "),
        };
        rows.push(line(&format!("{lead}{tick}{}", name(&group[0], level)), group, level));
        let next = match level {
            Depth::Region => Depth::Zone,
            Depth::Zone => Depth::Node,
            Depth::Node | Depth::Device => Depth::Device,
        };
        if level < depth {
            branch(rows, group, next, depth, &format!("{lead}{below}"));
        }
    }
}

fn line(name: &str, group: &[DeviceLeaf<'_>], level: Depth) -> Vec<String> {
    let weight: f64 = group.iter().map(|leaf| leaf.device.weight).sum();
    let figures = || group.iter().filter_map(|leaf| leaf.figure);
    let held = figures().map(|figure| f64::from(figure.parts)).fold(0.0, |a, b| a + b);
    let desired = figures().map(|figure| figure.desired).fold(0.0, |a, b| a + b);
    let balance = match (desired > 0.0, held > 0.0) {
        (true, _) => 100.0 * held / desired - 100.0,
        (false, true) => martlet_ring::BALANCE_WORST,
        (false, false) => 0.0,
    };
    let parts: u64 = figures().map(|figure| u64::from(figure.parts)).sum();
    vec![
        name.to_owned(),
        if level == Depth::Device { String::new() } else { count(group.len() as u64) },
        weight.to_string(),
        format!("{desired:.1}"),
        count(parts),
        deviation(balance),
        bar(held, desired),
    ]
}

/// Returns the sort key that separates the parts of a level.
fn place<'a>(leaf: &DeviceLeaf<'a>, level: Depth) -> (u32, u32, &'a str, u32) {
    let device = leaf.device;
    let (region, zone, node) = device.node_path();
    match level {
        Depth::Region => (region, 0, "", 0),
        Depth::Zone => (region, zone, "", 0),
        Depth::Node => (region, zone, node, 0),
        Depth::Device => (region, zone, node, device.id.0),
    }
}

fn name(leaf: &DeviceLeaf<'_>, level: Depth) -> String {
    let device = leaf.device;
    match level {
        Depth::Region => format!("r{}", device.region),
        Depth::Zone => format!("z{}", device.zone),
        Depth::Node => format!("{} {}", device.node.name, device.node.address),
        Depth::Device => format!("{} {}", device.id, device.name),
    }
}

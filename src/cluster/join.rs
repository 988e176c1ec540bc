//! A node joins a cluster that runs.
//!
//! 1. It gets a name, ports and a share of the data ring; if that can't be, nothing has changed.
//! 2. Builders, ring and layout are written: from here on a later `up` brings the node too.
//! 3. It starts with the new ring, and the ring is given to those that run.

use super::layout::Layout;
use super::ports::Ports;
use super::push;
use super::rings::{DATA, Joining, ring_path};
use super::supervisor::Supervisor;
use super::wire::Which;
use crate::failure::Failure;

/// Adds a node, in the zone given or in the next in turn. What was done, in sentences.
pub(super) async fn add_node(
    supervisor: &mut Supervisor,
    zone: Option<u32>,
) -> Result<Vec<String>, Failure> {
    let mut ports = Ports::default();
    let mut layout: Layout = supervisor.folder.layout.clone();
    let node = layout.add_node(zone, &mut ports)?.clone();
    let dir = supervisor.folder.path().to_owned();
    let joining = Joining::of(&dir, &node)?;
    joining.save(&dir)?;
    let number = layout.nodes.len();
    supervisor.folder.keep(layout)?;
    for member in node.members() {
        supervisor.folder.make_settings(&member)?;
        supervisor.watch(member);
    }
    drop(ports);
    let mut said = supervisor.start(&Which::Node(number)).await?;
    let bytes = std::fs::read(ring_path(&dir, DATA))
        .map_err(|error| Failure::refused(format!("the new ring can't be read: {error}")))?;
    let given = push::give(supervisor, DATA, bytes).await?;
    let report = &joining.report;
    said.push(format!(
        "{} has {} in zone {}; the data ring of epoch {} gives it {} of the replicas, and names who \
         held them before; {given} has it, and passes it on",
        node.name,
        node.devices.join(" and "),
        node.zone,
        report.epoch,
        report.moved,
    ));
    said.push(
        "the index ring stays as it is: entries stay on the nodes that have them, because partitions \
         of entries can't be moved between devices yet"
            .to_owned(),
    );
    Ok(said)
}

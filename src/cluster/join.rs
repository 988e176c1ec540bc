//! Addition of a node to a running cluster.
//!
//! 1. The node gets a name, ports and a share of all rings. A failure here changes nothing.
//! 2. Builders, rings and layout are written. From then on a later `up` starts the node too.
//! 3. The node starts with the new rings, and running nodes receive the rings. The replicators move
//!    the data.

use martlet_admin_api::control::TargetSelector;
use martlet_serving::Failure;

use super::layout::ClusterLayout;
use super::ports::Ports;
use super::push;
use super::rings::{INDEX, JoinRings, WidenedRing, ring_path};
use super::supervisor::Supervisor;

/// Adds a node, in the given zone or the next in turn. Returns sentences for the operator.
pub(super) async fn add_node(
    supervisor: &mut Supervisor,
    zone: Option<u32>,
) -> Result<Vec<String>, Failure> {
    let mut ports = Ports::default();
    let mut layout: ClusterLayout = supervisor.folder.layout.clone();
    let node = layout.add_node(zone, &mut ports)?.clone();
    let dir = supervisor.folder.path().to_owned();
    let joining = JoinRings::of(&dir, &layout, &node)?;
    joining.save(&dir)?;
    let number = layout.nodes.len();
    supervisor.folder.keep(layout)?;
    for member in node.members() {
        supervisor.folder.make_settings(&member)?;
        supervisor.watch(member);
    }
    drop(ports);
    let mut lines = supervisor.start(&TargetSelector::Node(number)).await?;
    for WidenedRing { name, report, .. } in joining.rings() {
        let what = if name == INDEX { "entries" } else { "extents" };
        let bytes = std::fs::read(ring_path(&dir, name))
            .map_err(|error| Failure::refused(format!("the new ring can't be read: {error}")))?;
        let given = push::push_ring(supervisor, name, bytes).await?;
        lines.push(format!(
            "{} has {} in zone {}; the {name} ring of epoch {} gives it {} replicas of {what} and \
             names their previous holders; {given} got the ring and passes it on",
            node.name,
            node.devices.join(" and "),
            node.zone,
            report.epoch,
            report.moved,
        ));
    }
    lines.push(
        "the replicators copy the moved data: `martlet cluster status` and `martlet admin status` \
         show their progress"
            .to_owned(),
    );
    Ok(lines)
}

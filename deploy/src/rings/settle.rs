//! Moves that are over: those that the operator settles after a census, and those of the index, whose
//! end the terms of the devices show.

use std::collections::BTreeSet;

use martlet_protocol::Term;
use martlet_ring::Builder;
use martlet_serving::Failure;

use super::RingContext;
use crate::reach::NodeSurvey;
use crate::spec::{ClusterSpec, INDEX};

/// Settles the moves of a ring that all nodes use, if the operator asks for it. A census before that
/// has counted by an older ring, and proves nothing about these moves.
///
/// The index isn't refused: a ring of settled moves waits at the nodes until its change is over.
pub(super) fn by_order(
    builder: &mut Builder,
    name: &str,
    spec: &ClusterSpec,
    context: &RingContext,
) -> Result<Vec<String>, Failure> {
    if !context.settle || builder.moving() == 0 {
        return Ok(Vec::new());
    }
    let (epoch, hash) = (builder.epoch(), builder.ring()?.hash());
    let uses = |name_of_node: &str| {
        let mut survey = context.survey.iter().filter(|node| node.name == name_of_node);
        survey.any(|node| node.uses(name, epoch, &hash))
    };
    let nodes = spec.storage_nodes().into_iter().map(|(name_of_node, _)| name_of_node);
    let late: Vec<String> = nodes.filter(|node| !uses(node)).collect();
    if !late.is_empty() && name == INDEX {
        return Ok(Vec::new());
    }
    if !late.is_empty() {
        return Err(Failure::refused(format!(
            "the moves of the {name} ring can't be settled: {} of the nodes don't use its epoch \
             {epoch} yet, {} among them: wait, take a census, and repeat",
            late.len(),
            late[0]
        )));
    }
    let settled = builder.settle()?;
    Ok(vec![format!("{settled} moves are settled")])
}

/// Settles the moves of the index, if its change is over by the terms of devices, and most nodes of
/// the stored ring use it. So no census is needed, and nodes that are lost prevent nothing. Moves of a
/// ring that no node has must stay: the change of a later ring would wait for them for ever.
pub(super) fn by_terms(
    builder: &mut Builder,
    stored: Option<&Builder>,
    survey: &[NodeSurvey],
) -> Result<Vec<String>, Failure> {
    let stored = stored.filter(|_| builder.moving() > 0).and_then(|it| it.ring().ok());
    let Some(ring) = stored else { return Ok(Vec::new()) };
    let (hash, over) = (ring.hash(), ring.last_term());
    let nodes: BTreeSet<&str> = ring.devices().iter().map(|it| it.node.name.as_str()).collect();
    let uses = |node: &&NodeSurvey| {
        nodes.contains(node.name.as_str()) && node.uses(INDEX, ring.epoch(), &hash)
    };
    let reports = survey.iter().filter_map(|node| node.report.as_ref().ok());
    let is_over = reports.flat_map(|it| &it.devices).any(|device| Term(device.term) >= over);
    if !is_over || survey.iter().filter(uses).count() * 2 <= nodes.len() {
        return Ok(Vec::new());
    }
    let settled = builder.settle()?;
    Ok(vec![format!("{settled} moves are settled, as their change is over")])
}

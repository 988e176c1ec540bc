//! Ring changes of a run: devices join, are drained and leave, one change after the other. Some
//! members receive the new rings late.
//!
//! The operator follows the documentation: a change is settled once the devices report its end, and
//! only then the next change begins. A dead device is removed at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Clock, Phase, Term};
use tokio::time::sleep;

use super::census;
use super::chance::SharedRng;
use super::clock::SimulatedClock;
use super::cluster::{SimulatedCluster, Size};
use super::membership::SimulatedMember;
use super::node::NodeCondition;
use super::rings::{Edit, REPLICAS, SimulatedRings, device_of};

/// Pause between two checks for the end of a change.
const LOOK: Duration = Duration::from_millis(500);

/// Ring changes of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingChangePlan {
    steps: Vec<RingChangeStep>,
}

#[derive(Clone, Copy, Debug)]
struct RingChangeStep {
    /// Pause before the change in milliseconds.
    after_ms: u64,
    edit: Edit,
    /// Maximum delay of the push of new rings in milliseconds.
    push_ms: u64,
    /// One member in so many receives no push.
    left_out: u64,
}

impl RingChangePlan {
    /// Draws at most three edits that leave enough devices, each settled before the next.
    pub(crate) fn drawn(
        chance: &SharedRng,
        size: Size,
        dead: Option<usize>,
        length_ms: u64,
    ) -> Self {
        let mut steps = Vec::new();
        let mut present: BTreeSet<usize> = (0..size.nodes).collect();
        let mut spares = (size.nodes..size.nodes + size.spares).peekable();
        let step = |edit, within_ms: u64| RingChangeStep {
            after_ms: chance.below(within_ms),
            edit,
            push_ms: chance.pick(&[0, 20, 1000, length_ms / 4]),
            left_out: chance.pick(&[1, 2, 4, 1000]),
        };
        for _ in 0..chance.between(1, 3) {
            let enough = present.len() > REPLICAS as usize;
            let leaving = dead.filter(|dead| enough && present.contains(dead));
            let nodes: Vec<usize> = present.iter().copied().collect();
            let edit = match (leaving, spares.peek()) {
                (Some(dead), _) => Edit::Remove(dead),
                (None, Some(new)) if !enough || chance.per_mille(700) => Edit::Add(*new),
                _ if enough => Edit::Drain(nodes[chance.index(nodes.len())]),
                _ => break,
            };
            steps.push(step(edit, length_ms / 2));
            steps.push(step(Edit::Settle, length_ms / 10));
            match edit {
                Edit::Drain(node) => {
                    present.remove(&node);
                    if chance.per_mille(500) {
                        steps.push(step(Edit::Remove(node), length_ms / 10));
                    }
                }
                Edit::Remove(node) => drop(present.remove(&node)),
                Edit::Add(node) => {
                    present.insert(node);
                    spares.next();
                }
                Edit::Settle => {}
            }
        }
        Self { steps }
    }

    /// Leaves out all changes but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.steps.truncate(count);
    }

    /// Number of changes.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Makes the changes one after the other.
    pub(crate) async fn carry_out(&self, simulated: &SimulatedCluster, chance: &SharedRng) {
        let clock = SimulatedClock::new(simulated.network.trace.begun);
        for step in &self.steps {
            sleep(Duration::from_millis(step.after_ms)).await;
            while !may_begin(simulated, step.edit) {
                sleep(LOOK).await;
            }
            if let Edit::Remove(node) = step.edit {
                simulated.nodes[node].crash(NodeCondition::Silent).await;
            }
            let rings = simulated.builders.lock().edit(step.edit, clock.now_ms());
            let moves = rings.index.moves().len();
            simulated.network.trace.note(format_args!("RING {step:?}, {moves} moves"));
            push(simulated, &rings, chance, step);
        }
    }
}

/// Returns true if an edit may begin. Most edits wait for the end of the change before. Settling
/// also waits for all extents to arrive, and removal of a drained device waits until it is empty. A
/// dead device may be removed at any time unless data moves to it: a change with that device could
/// never end.
fn may_begin(simulated: &SimulatedCluster, edit: Edit) -> bool {
    match edit {
        Edit::Add(_) | Edit::Drain(_) => is_over(simulated),
        Edit::Settle => is_over(simulated) && census::has_arrived(simulated),
        Edit::Remove(node) => {
            let (ring, id) = (simulated.rings().index, device_of(node));
            let receives = ring.moves().iter().any(|step| {
                ring.primaries(step.partition).nth(usize::from(step.replica)) == Some(id)
            });
            let is_drained = ring.device(id).is_some_and(|device| device.weight <= 0.0);
            (is_over(simulated) || !receives)
                && (!is_drained || census::is_empty(&simulated.nodes[node]))
        }
    }
}

/// Pushes rings to each member after a random delay; some members get no push.
fn push(
    simulated: &SimulatedCluster,
    rings: &SimulatedRings,
    chance: &SharedRng,
    step: &RingChangeStep,
) {
    for node in &simulated.nodes {
        let (node, rings, chance, ms) = (node.clone(), rings.clone(), chance.fork(), step.push_ms);
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(chance.below(ms + 1))).await;
                if node.standing() == NodeCondition::Up {
                    return node.member.offer(&rings);
                }
                sleep(LOOK).await;
            }
        });
    }
    for member in simulated.gateways.iter().chain(&simulated.replicators) {
        if chance.below(step.left_out) == 0 {
            continue;
        }
        let (member, rings): (Arc<SimulatedMember>, SimulatedRings) =
            (member.clone(), rings.clone());
        let ms = chance.below(step.push_ms + 1);
        tokio::spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            member.offer(&rings);
        });
    }
}

/// Returns true if the new holders of the newest index ring decide alone.
pub(crate) fn is_over(simulated: &SimulatedCluster) -> bool {
    let ring = simulated.rings().index;
    let over = Term::of(ring.change(), Phase::New);
    simulated.nodes.iter().any(|node| node.term() >= over)
}

/// Gives all members the newest rings, after recovery.
pub(crate) fn push_all(simulated: &SimulatedCluster) {
    let rings = simulated.rings();
    let nodes = simulated.nodes.iter().map(|node| &node.member);
    for member in nodes.chain(&simulated.gateways).chain(&simulated.replicators) {
        member.offer(&rings);
    }
}

/// Settles the present moves. Returns false without moves.
pub(crate) fn settle(simulated: &SimulatedCluster) -> bool {
    let moving = simulated.builders.lock().moving() > 0;
    if moving {
        simulated.builders.lock().edit(Edit::Settle, u64::MAX);
        simulated.network.trace.note(format_args!("SETTLED at the end"));
        push_all(simulated);
    }
    moving
}

//! Next action of a ring change: a pure function of the ring and of the devices' statuses.
//!
//! Invariants, for every ring and every set of statuses:
//! * a phase begins only after the previous one, and none is skipped;
//! * both sets decide only once the new holders have their votes;
//! * the new holders decide alone only after a quorum of each old and each new set has persisted
//!   the joint phase, and after every new holder has joined (rule P3);
//! * silence counts as no.

use std::collections::{BTreeSet, HashMap};

use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{DeviceId, Phase, Term};
use martlet_ring::{Ring, Sets};

use super::moves::PlannedMoves;

/// Next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Send every device this term: a phase begins.
    Begin(Term),
    /// The new holders copy the registers that move to them.
    Join,
    /// Wait for further statuses, for this reason.
    Wait(String),
    /// The change is over.
    Over,
}

/// Progress of the ring change of an index ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangeProgress {
    /// Number of the change.
    pub(super) change: u64,
    /// Moving replicas whose old holders still decide.
    pub(super) moving: u64,
    /// Moving replicas whose new holder has joined.
    pub(super) arrived: u64,
    /// New holders that the change waits for.
    pub(super) waits_for: Vec<DeviceId>,
}

impl ChangeProgress {
    /// Computes the progress from the devices' statuses.
    pub(super) fn of(
        moves: &PlannedMoves<'_>,
        term: Term,
        statuses: &HashMap<DeviceId, DeviceStatus>,
    ) -> Self {
        let mut progress = Self { change: moves.ring().change(), ..Self::default() };
        if is_over(moves.ring(), term) {
            return progress;
        }
        for (holder, partitions) in moves.holders() {
            let replicas = partitions.len() as u64;
            progress.moving += replicas;
            if has_joined(moves.ring(), *holder, statuses) {
                progress.arrived += replicas;
            } else {
                progress.waits_for.push(*holder);
            }
        }
        progress
    }
}

/// Returns true if the change of a ring is over at a term: its new holders decide alone.
pub(super) fn is_over(ring: &Ring, term: Term) -> bool {
    term.phase_of(ring.change()) == Some(Phase::New)
}

/// Returns the next action, if `term` is the highest that any device knows.
pub(super) async fn next(
    moves: &mut PlannedMoves<'_>,
    term: Term,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> NextAction {
    let ring = moves.ring();
    if term == Term::NONE {
        return bootstrap(ring, statuses);
    }
    if ring.term_at(term).is_none() {
        return NextAction::Wait(
            "the index ring waits for the end of the ring change before it".into(),
        );
    }
    match term.phase_of(ring.change()) {
        // A ring without moves is in use only after its change.
        None => NextAction::Wait("the ring change before this one is not over".into()),
        Some(Phase::Old) => after_old(moves, statuses),
        Some(Phase::Joint) => after_joint(moves, statuses).await,
        Some(Phase::New) => NextAction::Over,
    }
}

/// Returns the devices of the first set whose merge contains everything that a quorum of it
/// decided: they have persisted the joint phase, and have votes. None if they are no quorum, or if
/// too few devices of the second set would refuse decisions made without it.
pub(super) fn sources_of(
    sets: &Sets,
    joint: Term,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> Option<Vec<DeviceId>> {
    let knows = |id: &DeviceId| statuses.get(id).is_some_and(|status| status.term >= joint);
    if !sets.has_quorum(|id| knows(&id)) {
        return None;
    }
    let remembers = |id: &DeviceId| statuses.get(id).is_some_and(|status| status.voting);
    let sources: Vec<DeviceId> = sets.set(0).filter(|id| knows(id) && remembers(id)).collect();
    (sources.len() >= sets.quorum(0)).then_some(sources)
}

fn has_joined(ring: &Ring, holder: DeviceId, statuses: &HashMap<DeviceId, DeviceStatus>) -> bool {
    statuses.get(&holder).is_some_and(|it| it.voting && it.joined >= ring.change())
}

/// Begins with the ring's own term if no device knows a term, unless a silent device could know
/// one.
fn bootstrap(ring: &Ring, statuses: &HashMap<DeviceId, DeviceStatus>) -> NextAction {
    let votes = |id: DeviceId| statuses.get(&id).is_some_and(|status| status.voting);
    for partition in ring.partitions() {
        for term in [Phase::Old, Phase::New].map(|it| Term::of(ring.change(), it)) {
            if !ring.sets(partition, term).has_quorum(votes) {
                return NextAction::Wait(format!(
                    "no answering device knows a term, and no quorum of partition {} answers with \
                     votes",
                    partition.0
                ));
            }
        }
    }
    let phase = if ring.moves().is_empty() { Phase::New } else { Phase::Old };
    NextAction::Begin(Term::of(ring.change(), phase))
}

/// Decides if the joint phase may begin. A new holder must get its vote before it: later it
/// could not be distinguished from one that lost its vote, and each would wait for the other.
fn after_old(moves: &PlannedMoves<'_>, statuses: &HashMap<DeviceId, DeviceStatus>) -> NextAction {
    let votes = |id: &DeviceId| statuses.get(id).is_some_and(|status| status.voting);
    match moves.holders().keys().find(|holder| !votes(holder)) {
        Some(holder) => NextAction::Wait(format!(
            "device {holder}, to which replicas move, has no vote or does not answer"
        )),
        None => NextAction::Begin(Term::of(moves.ring().change(), Phase::Joint)),
    }
}

/// Decides if the new set may decide alone.
async fn after_joint(
    moves: &mut PlannedMoves<'_>,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> NextAction {
    let ring = moves.ring();
    let joint = Term::of(ring.change(), Phase::Joint);
    let knows = |id: DeviceId| statuses.get(&id).is_some_and(|status| status.term >= joint);
    let behind: BTreeSet<DeviceId> = moves.deciding().filter(|id| !knows(*id)).collect();
    if let Some(partition) = moves.without_quorum(behind).await {
        return NextAction::Wait(format!(
            "too few old or new holders of partition {} know of its move",
            partition.0
        ));
    }
    if moves.holders().keys().all(|holder| has_joined(ring, *holder, statuses)) {
        return NextAction::Begin(ring.last_term());
    }
    NextAction::Join
}

#[cfg(test)]
mod tests;

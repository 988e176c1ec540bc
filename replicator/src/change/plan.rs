//! Next action of a ring change: a pure function of the ring and of the devices' statuses.
//!
//! Invariants, for every ring and every set of statuses:
//! * a phase begins only after the previous one, and none is skipped;
//! * both sets decide only once the new holders have their votes;
//! * the new holders decide alone only after a quorum of each old and each new set has persisted
//!   the joint phase, and after every new holder has joined (rule P3);
//! * silence counts as no.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{DeviceId, Partition, Phase, Term};
use martlet_ring::{Ring, Sets};

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
pub struct ChangeProgress {
    /// Number of the change.
    pub change: u64,
    /// Its phase; none before it begins.
    pub phase: Option<Phase>,
    /// Moving replicas whose old holders still decide.
    pub moving: u64,
    /// Moving replicas whose new holder has joined.
    pub arrived: u64,
    /// New holders that the change waits for.
    pub waits_for: Vec<DeviceId>,
}

/// Moves in the change of a ring.
struct PlannedMoves<'a> {
    ring: &'a Ring,
    statuses: &'a HashMap<DeviceId, DeviceStatus>,
}

impl ChangeProgress {
    /// Computes the progress from the devices' statuses.
    pub fn of(ring: &Ring, term: Term, statuses: &HashMap<DeviceId, DeviceStatus>) -> Self {
        let moving = PlannedMoves { ring, statuses };
        let change = ring.change();
        let phase = term.phase_of(change);
        let mut progress = Self { change, phase, ..Self::default() };
        if phase == Some(Phase::New) {
            return progress;
        }
        for (holder, partitions) in moving.holders() {
            let replicas = partitions.len() as u64;
            progress.moving += replicas;
            if moving.has_joined(holder) {
                progress.arrived += replicas;
            } else {
                progress.waits_for.push(holder);
            }
        }
        progress
    }
}

/// Returns the next action, if `term` is the highest that any device knows.
pub(super) fn next(
    ring: &Ring,
    term: Term,
    statuses: &HashMap<DeviceId, DeviceStatus>,
) -> NextAction {
    let moving = PlannedMoves { ring, statuses };
    let change = ring.change();
    if term == Term::NONE {
        return moving.bootstrap();
    }
    if ring.term_at(term).is_none() {
        return NextAction::Wait(
            "the index ring waits for the end of the ring change before it".into(),
        );
    }
    match term.phase_of(change) {
        // A ring without moves is in use only after its change.
        None => NextAction::Wait("the ring change before this one is not over".into()),
        Some(Phase::Old) => moving.after_old(),
        Some(Phase::Joint) => moving.after_joint(),
        Some(Phase::New) => NextAction::Over,
    }
}

/// Returns the partitions of which a device is a new holder in a ring's change, in order.
pub(super) fn moving_to(ring: &Ring, holder: DeviceId) -> Vec<Partition> {
    let moving = PlannedMoves { ring, statuses: &HashMap::new() };
    moving.holders().remove(&holder).unwrap_or_default()
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

impl PlannedMoves<'_> {
    /// Returns the new holders, and the partitions that move to each.
    fn holders(&self) -> BTreeMap<DeviceId, Vec<Partition>> {
        let mut holders: BTreeMap<DeviceId, Vec<Partition>> = BTreeMap::new();
        for step in self.ring.moves().iter().filter(|step| step.change == self.ring.change()) {
            let mut primaries = self.ring.primaries(step.partition);
            let holder = primaries.nth(usize::from(step.replica));
            holders
                .entry(holder.expect("a ring moves only its own replicas"))
                .or_default()
                .push(step.partition);
        }
        holders
    }

    fn has_joined(&self, holder: DeviceId) -> bool {
        let change = self.ring.change();
        self.statuses.get(&holder).is_some_and(|it| it.voting && it.joined >= change)
    }

    /// Begins with the ring's own term if no device knows a term, unless a silent device could know
    /// one.
    fn bootstrap(&self) -> NextAction {
        let votes = |id: DeviceId| self.statuses.get(&id).is_some_and(|status| status.voting);
        for partition in self.ring.partitions() {
            for term in [Phase::Old, Phase::New].map(|it| Term::of(self.ring.change(), it)) {
                if !self.ring.sets(partition, term).has_quorum(votes) {
                    return NextAction::Wait(format!(
                        "no answering device knows a term, and no quorum of partition {} answers \
                         with votes",
                        partition.0
                    ));
                }
            }
        }
        let phase = if self.ring.moves().is_empty() { Phase::New } else { Phase::Old };
        NextAction::Begin(Term::of(self.ring.change(), phase))
    }

    /// Decides if the joint phase may begin. A new holder must get its vote before it: later it
    /// could not be distinguished from one that lost its vote, and each would wait for the other.
    fn after_old(&self) -> NextAction {
        let votes = |id: &DeviceId| self.statuses.get(id).is_some_and(|status| status.voting);
        match self.holders().keys().find(|holder| !votes(holder)) {
            Some(holder) => NextAction::Wait(format!(
                "device {holder}, to which replicas move, has no vote or does not answer"
            )),
            None => NextAction::Begin(Term::of(self.ring.change(), Phase::Joint)),
        }
    }

    /// Decides if the new set may decide alone.
    fn after_joint(&self) -> NextAction {
        let joint = Term::of(self.ring.change(), Phase::Joint);
        let knows =
            |id: DeviceId| self.statuses.get(&id).is_some_and(|status| status.term >= joint);
        let holders = self.holders();
        let partitions: BTreeSet<Partition> = holders.values().flatten().copied().collect();
        let unknown = |at: &&Partition| !self.ring.sets(**at, joint).has_quorum(knows);
        if let Some(partition) = partitions.iter().find(unknown) {
            return NextAction::Wait(format!(
                "too few old or new holders of partition {} know of its move",
                partition.0
            ));
        }
        if holders.keys().all(|holder| self.has_joined(*holder)) {
            return NextAction::Begin(self.ring.last_term());
        }
        NextAction::Join
    }
}

#[cfg(test)]
mod tests;

//! What is to be done next about the ring change that a ring stands for: a pure function of the ring
//! and of what the devices say of themselves.
//!
//! Invariants, for every ring and every set of answers:
//! * a phase begins only after the one before, and never is one skipped;
//! * both decide only once the new holders have their votes;
//! * the new holders decide alone only after a quorum of each old and each new set has persisted that
//!   both decide, and after every new holder has said that it holds what moved to it (rule P3);
//! * silence counts as no.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{DeviceId, Partition, Phase, Term};
use martlet_ring::{Ring, Sets};

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Tell every device of this term: a phase begins.
    Begin(Term),
    /// The new holders copy what moves to them.
    Join,
    /// Nothing can be done until somebody says more.
    Wait(String),
    /// The change is over.
    Over,
}

/// How far the ring change of an index ring has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeProgress {
    /// The change.
    pub change: u64,
    /// Its phase; none before it begins.
    pub phase: Option<Phase>,
    /// Replicas that it moves and whose old holders still have a say.
    pub moving: u64,
    /// Those of them whose new holder holds all that moved to it.
    pub arrived: u64,
    /// New holders that the change waits for.
    pub waits_for: Vec<DeviceId>,
}

/// What moves in the change of a ring.
struct Moving<'a> {
    ring: &'a Ring,
    statuses: &'a HashMap<DeviceId, DeviceStatus>,
}

impl ChangeProgress {
    /// As the devices tell it.
    pub fn of(ring: &Ring, term: Term, statuses: &HashMap<DeviceId, DeviceStatus>) -> Self {
        let moving = Moving { ring, statuses };
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

/// What is to be done next, when `term` is the highest that any device knows.
pub(super) fn next(ring: &Ring, term: Term, statuses: &HashMap<DeviceId, DeviceStatus>) -> Next {
    let moving = Moving { ring, statuses };
    let change = ring.change();
    if term == Term::NONE {
        return moving.bootstrap();
    }
    if ring.term_at(term).is_none() {
        return Next::Wait("the index ring waits for the ring change before it to be over".into());
    }
    match term.phase_of(change) {
        // Without moves, a ring is in use only after its change.
        None => Next::Wait("the ring change before this one is not over".into()),
        Some(Phase::Old) => moving.after_old(),
        Some(Phase::Joint) => moving.after_joint(),
        Some(Phase::New) => Next::Over,
    }
}

/// The partitions of which a device is a new holder in a ring's change, in their order.
pub(super) fn moving_to(ring: &Ring, holder: DeviceId) -> Vec<Partition> {
    let moving = Moving { ring, statuses: &HashMap::new() };
    moving.holders().remove(&holder).unwrap_or_default()
}

/// Of the devices of the first set, those whose answers say what a quorum of it decided: they have
/// persisted that both sets decide, and remember. None when they are no quorum, or when too few of the
/// second set would refuse what is decided without it.
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

impl Moving<'_> {
    /// The new holders, and the partitions that move to each.
    fn holders(&self) -> BTreeMap<DeviceId, Vec<Partition>> {
        let mut holders: BTreeMap<DeviceId, Vec<Partition>> = BTreeMap::new();
        for step in self.ring.moves().iter().filter(|step| step.change == self.ring.change()) {
            let mut primaries = self.ring.primaries(step.partition);
            let holder = primaries.nth(usize::from(step.replica));
            holders
                .entry(holder.expect("a ring moves only replicas that it has"))
                .or_default()
                .push(step.partition);
        }
        holders
    }

    fn has_joined(&self, holder: DeviceId) -> bool {
        let change = self.ring.change();
        self.statuses.get(&holder).is_some_and(|it| it.voting && it.joined >= change)
    }

    /// Nobody knows a term: it begins with what the ring says, if nobody who is silent can know better.
    fn bootstrap(&self) -> Next {
        let votes = |id: DeviceId| self.statuses.get(&id).is_some_and(|status| status.voting);
        for partition in self.ring.partitions() {
            for term in [Phase::Old, Phase::New].map(|it| Term::of(self.ring.change(), it)) {
                if !self.ring.sets(partition, term).has_quorum(votes) {
                    return Next::Wait(format!(
                        "no device that answers knows a term, and no quorum of partition {} \
                         answers with its votes",
                        partition.0
                    ));
                }
            }
        }
        let phase = if self.ring.moves().is_empty() { Phase::New } else { Phase::Old };
        Next::Begin(Term::of(self.ring.change(), phase))
    }

    /// The old set decides: may both? A new holder that had no vote then, and one that has forgotten
    /// its vote, would look alike: each would wait for the other's word before it gets its own.
    fn after_old(&self) -> Next {
        let votes = |id: &DeviceId| self.statuses.get(id).is_some_and(|status| status.voting);
        match self.holders().keys().find(|holder| !votes(holder)) {
            Some(holder) => Next::Wait(format!(
                "device {holder}, to which replicas move, has no vote or does not answer"
            )),
            None => Next::Begin(Term::of(self.ring.change(), Phase::Joint)),
        }
    }

    /// Both sets decide: may the new one decide alone?
    fn after_joint(&self) -> Next {
        let joint = Term::of(self.ring.change(), Phase::Joint);
        let knows =
            |id: DeviceId| self.statuses.get(&id).is_some_and(|status| status.term >= joint);
        let holders = self.holders();
        let partitions: BTreeSet<Partition> = holders.values().flatten().copied().collect();
        let unknown = |at: &&Partition| !self.ring.sets(**at, joint).has_quorum(knows);
        if let Some(partition) = partitions.iter().find(unknown) {
            return Next::Wait(format!(
                "too few old or new holders of partition {} have heard that it moves",
                partition.0
            ));
        }
        if holders.keys().all(|holder| self.has_joined(*holder)) {
            return Next::Begin(Term::of(self.ring.change(), Phase::New));
        }
        Next::Join
    }
}

#[cfg(test)]
mod tests;

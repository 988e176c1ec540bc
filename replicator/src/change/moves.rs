//! Moves of a ring's change, by devices: what the plan needs of a ring, found once for each ring.
//!
//! A step looks at devices, not at moves. The quorums of moving partitions depend on the devices that
//! don't know of the joint phase. A partition keeps its quorums while none of its devices falls behind.
//! So a look visits the partitions of devices that fell behind since the last look without an objection.
//! Nothing is remembered about the devices themselves: each step takes their statuses anew.
//!
//! The moves take 4 bytes each, and 4 bytes for each device that decides about a moving partition in the
//! joint phase: 20 bytes where one of three replicas moves, fewer than in the ring itself. They are
//! dropped when the change is over, or another ring is in use.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::{DeviceId, Partition, Phase, Term};
use martlet_ring::{Ring, RingHash};

/// Moves or partitions that are visited before other tasks run.
const SLICE: usize = 1 << 13;

/// Moves of the change of the ring that was used last.
#[derive(Debug, Default)]
pub(super) struct RingMoves {
    /// Hash of the ring; none before the first one.
    ring: Option<RingHash>,
    /// New holders, and the partitions that move to each, in order.
    holders: BTreeMap<DeviceId, Vec<Partition>>,
    /// Devices that decide about moving partitions in the joint phase, and these partitions of each.
    deciding: BTreeMap<DeviceId, Vec<Partition>>,
    /// Devices without which every moving partition had its quorums, at a look.
    spared: BTreeSet<DeviceId>,
    /// Partition that lacked a quorum at the last look.
    lacking: Option<Partition>,
}

/// Moves of the change of a ring.
pub(super) struct PlannedMoves<'a> {
    ring: &'a Ring,
    moves: &'a mut RingMoves,
}

impl RingMoves {
    /// Returns the moves of a ring. Finds them if the last ring was another one, and lets other tasks
    /// run on the way.
    pub(super) async fn of<'a>(&'a mut self, ring: &'a Ring) -> PlannedMoves<'a> {
        if !self.is_of(ring) {
            *self = Self::default();
            *self = Self::find(ring).await;
        }
        PlannedMoves { ring, moves: self }
    }

    /// Returns true if these are the moves of a ring.
    pub(super) fn is_of(&self, ring: &Ring) -> bool {
        self.ring == Some(ring.hash())
    }

    async fn find(ring: &Ring) -> Self {
        let joint = Term::of(ring.change(), Phase::Joint);
        let mut found = Self { ring: Some(ring.hash()), ..Self::default() };
        let mut last = None;
        for slice in ring.moves().chunks(SLICE) {
            for step in slice.iter().filter(|step| step.change == ring.change()) {
                let holder = ring.primaries(step.partition).nth(usize::from(step.replica));
                let holder = holder.expect("a ring moves only its own replicas");
                found.holders.entry(holder).or_default().push(step.partition);
                // Moves of a partition follow one another.
                if last.replace(step.partition) == Some(step.partition) {
                    continue;
                }
                let sets = ring.sets(step.partition, joint);
                for device in sets.members() {
                    found.deciding.entry(device).or_default().push(step.partition);
                }
            }
            tokio::task::yield_now().await;
        }
        for partitions in found.holders.values_mut().chain(found.deciding.values_mut()) {
            partitions.shrink_to_fit();
        }
        found
    }
}

impl<'a> PlannedMoves<'a> {
    /// The ring.
    pub(super) fn ring(&self) -> &'a Ring {
        self.ring
    }

    /// New holders, and the partitions that move to each, in order.
    pub(super) fn holders(&self) -> &BTreeMap<DeviceId, Vec<Partition>> {
        &self.moves.holders
    }

    /// Partitions of which a device is a new holder, in order.
    pub(super) fn moving_to(&self, holder: DeviceId) -> &[Partition] {
        self.moves.holders.get(&holder).map(Vec::as_slice).unwrap_or_default()
    }

    /// Devices that decide about moving partitions in the joint phase.
    pub(super) fn deciding(&self) -> impl Iterator<Item = DeviceId> {
        self.moves.deciding.keys().copied()
    }

    /// Returns a moving partition that lacks a quorum in a deciding set of the joint phase, if all of
    /// [`Self::deciding`] but `behind` know of that phase.
    pub(super) async fn without_quorum(&mut self, behind: BTreeSet<DeviceId>) -> Option<Partition> {
        let joint = Term::of(self.ring.change(), Phase::Joint);
        let (ring, moves) = (self.ring, &mut *self.moves);
        let lacks = |at: Partition| !ring.sets(at, joint).has_quorum(|id| !behind.contains(&id));
        moves.lacking = moves.lacking.filter(|at| lacks(*at));
        if moves.lacking.is_some() {
            return moves.lacking;
        }
        // Every other partition lacks no more devices than at the look that spared these.
        let news: Vec<DeviceId> = behind.difference(&moves.spared).copied().collect();
        for device in news {
            let partitions = moves.deciding.get(&device).map(Vec::as_slice).unwrap_or_default();
            for slice in partitions.chunks(SLICE) {
                moves.lacking = slice.iter().copied().find(|at| lacks(*at));
                if moves.lacking.is_some() {
                    return moves.lacking;
                }
                tokio::task::yield_now().await;
            }
        }
        moves.spared = behind;
        None
    }
}

#[cfg(test)]
mod tests;

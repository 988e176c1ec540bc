//! Stages of a rebalance, in the order of its aims: every replica gets a holder, replicas that are
//! too close are spread, then replicas move from devices over their quotas to devices below.
//!
//! (`exchanges` and `swap_chains` handle what these stages leave.)
//!
//! Every pass walks all partitions once, in pseudo-random order. No pass adds a fault (two replicas
//! too close together), and the balancing passes only lower the excess. So they end, and a further
//! run of a finished pass finds nothing to do.

use super::assignment::{Assignment, Replica, SearchedDevices};
use super::needs::Needs;
use super::rules::Strictness;
use super::tree::LEAF;
use crate::table::NOBODY;

/// Most walks of a pass; each finds far less than the one before.
const WALKS_MAX: usize = 12;
/// Most replicas remembered for each device that could relay.
const RELAYS_MAX: usize = 16;

/// Replicas that a pass may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MovableReplicas {
    /// Replicas whose move costs nothing.
    Free,
    /// All replicas that aren't locked.
    Movable,
}

/// Result of a walk that increases distance.
struct SpreadResult {
    has_moved: bool,
    /// True if replicas of some partition are still too close together.
    is_faulty: bool,
}

impl Assignment {
    pub(super) fn may_touch(&self, replica: Replica, scope: MovableReplicas) -> bool {
        match scope {
            MovableReplicas::Free => self.is_free(replica),
            MovableReplicas::Movable => self.is_movable(replica),
        }
    }

    /// Runs all stages. Returns true when no replica is misplaced and all quotas are met.
    pub(super) fn run(&mut self) -> bool {
        self.fill();
        self.balance(MovableReplicas::Free);
        self.chain(MovableReplicas::Free);
        for _ in 0..WALKS_MAX {
            let spread = self.spread();
            let balanced =
                self.balance(MovableReplicas::Free) | self.balance(MovableReplicas::Movable);
            if self.excess == 0 && !spread.is_faulty {
                return true;
            }
            let chained = self.chain(MovableReplicas::Movable);
            let may_spread = spread.is_faulty && (spread.has_moved || balanced);
            if !chained && !may_spread {
                break;
            }
        }
        false
    }

    /// Gives every replica without holder a device: one below its quota that keeps the distance;
    /// else any device that keeps the distance; else any device without a replica of the partition,
    /// those below their quotas first.
    fn fill(&mut self) {
        for partition in self.chance.walk(self.table.part_power()) {
            if !self.table.row(partition).contains(&NOBODY) {
                continue;
            }
            for replica in self.replicas(partition) {
                if self.slot(replica) != NOBODY {
                    continue;
                }
                let taker = self
                    .find(replica, SearchedDevices::Needs, Strictness::Bounds)
                    .or_else(|| self.find(replica, SearchedDevices::Everyone, Strictness::Bounds))
                    .or_else(|| self.find(replica, SearchedDevices::Needs, Strictness::Devices))
                    .or_else(|| self.find(replica, SearchedDevices::Everyone, Strictness::Devices))
                    .expect("there are at least as many devices with a quota as replicas");
                self.assign(replica, taker);
            }
        }
    }

    /// Moves replicas that are too close to others, or on devices that should hold nothing.
    fn spread(&mut self) -> SpreadResult {
        let mut spread = SpreadResult { has_moved: false, is_faulty: false };
        for partition in self.chance.walk(self.table.part_power()) {
            let mut faults = self.rules.faults(self.table.row(partition));
            while faults > 0 && self.spread_one(partition, faults) {
                spread.has_moved = true;
                faults = self.rules.faults(self.table.row(partition));
            }
            spread.is_faulty |= faults > 0;
        }
        spread
    }

    /// Makes the move that leaves the fewest faults, if it lowers their number; stops at the first
    /// optimal move.
    fn spread_one(&mut self, partition: u32, faults: u32) -> bool {
        const BEST: (u32, bool, bool) = (0, false, false);
        let mut best: Option<((u32, bool, bool), Replica, u16)> = None;
        'search: for replica in self.replicas(partition) {
            if !self.is_movable(replica) {
                continue;
            }
            let holder = self.slot(replica);
            for whose in [SearchedDevices::Needs, SearchedDevices::Everyone] {
                let Some(taker) = self.find(replica, whose, Strictness::Bounds) else { continue };
                let row = self.table.row_mut(partition);
                row[replica.column] = taker;
                let left = self.rules.faults(row);
                row[replica.column] = holder;
                let rank = (left, !matches!(whose, SearchedDevices::Needs), !self.is_over(holder));
                if left < faults && best.is_none_or(|(other, ..)| rank < other) {
                    best = Some((rank, replica, taker));
                }
                if rank == BEST {
                    break 'search;
                }
                if left == 0 {
                    break;
                }
            }
        }
        let Some((_, replica, taker)) = best else { return false };
        self.assign(replica, taker);
        true
    }

    /// Moves replicas from devices over their quotas to devices below, directly or over one device
    /// between. Returns true if the excess fell.
    fn balance(&mut self, scope: MovableReplicas) -> bool {
        let before = self.excess;
        if scope == MovableReplicas::Free && !self.has_free() {
            return false;
        }
        if self.excess > 0 && scope == MovableReplicas::Movable {
            self.cross();
        }
        for _ in 0..WALKS_MAX {
            if self.excess > 0 {
                self.direct(scope);
            }
            // The rest needs other replicas to make room first.
            let excess = self.excess;
            if self.excess > 0 && scope == MovableReplicas::Movable {
                self.exchange();
                self.exchange_in_chains();
            }
            if self.excess > 0 {
                self.relay(scope);
            }
            if self.excess == excess {
                break;
            }
        }
        self.excess < before
    }

    /// Makes moves over several devices, if a search is worthwhile: while much is left and others
    /// still move, a later rebalance has less work.
    fn chain(&mut self, scope: MovableReplicas) -> bool {
        let is_little = self.excess <= self.rules.tree.level(LEAF).len() as u64;
        let is_stuck = scope == MovableReplicas::Movable && !self.has_free();
        self.excess > 0 && (is_little || is_stuck) && self.swap_chains(scope)
    }

    /// Makes direct moves from devices over their quotas to devices below.
    fn direct(&mut self, scope: MovableReplicas) {
        for partition in self.chance.walk(self.table.part_power()) {
            if self.excess == 0 {
                return;
            }
            let replicas = self.replicas_from_any(partition);
            if !self.has_over(partition) {
                continue;
            }
            for replica in replicas {
                if self.is_over(self.slot(replica))
                    && self.may_touch(replica, scope)
                    && let Some(taker) =
                        self.find(replica, SearchedDevices::Needs, Strictness::Bounds)
                {
                    self.assign(replica, taker);
                }
            }
        }
    }

    /// Makes moves over one device between: a device over its quota gives to a device that passes
    /// another replica on to one below its quota.
    fn relay(&mut self, scope: MovableReplicas) {
        let (mut relays, mut offers) = self.relays(scope);
        for partition in self.chance.walk(self.table.part_power()) {
            if self.excess == 0 || offers.of(super::tree::ROOT) == 0 {
                return;
            }
            let replicas = self.replicas_from_any(partition);
            if !self.has_over(partition) {
                continue;
            }
            for replica in replicas {
                let holder = self.slot(replica);
                if !self.is_over(holder) || !self.may_touch(replica, scope) {
                    continue;
                }
                let these = SearchedDevices::These(&offers);
                let Some(between) = self.find(replica, these, Strictness::Bounds) else { continue };
                self.assign(replica, between);
                let passed = relays[usize::from(between)].pop();
                offers.lower(&self.rules.tree, &self.rules.tree.paths[usize::from(between)], 1);
                let passed = passed.expect("an offer for each relay");
                if !self.pass_on(passed, between, scope) {
                    self.assign(replica, holder);
                }
            }
        }
    }

    /// Returns for each device the replicas that it could pass on, and their number.
    fn relays(&mut self, scope: MovableReplicas) -> (Vec<Vec<Replica>>, Needs) {
        let mut relays = vec![Vec::new(); self.rules.tree.paths.len()];
        let mut offers = Needs::new(&self.rules.tree);
        for partition in self.chance.walk(self.table.part_power()) {
            for replica in self.replicas(partition) {
                let holder = self.slot(replica);
                if relays[usize::from(holder)].len() < RELAYS_MAX
                    && self.may_touch(replica, scope)
                    && self.find(replica, SearchedDevices::Needs, Strictness::Bounds).is_some()
                {
                    relays[usize::from(holder)].push(replica);
                    offers.raise(&self.rules.tree, &self.rules.tree.paths[usize::from(holder)], 1);
                }
            }
        }
        (relays, offers)
    }

    /// Makes the second half of a relay, if still possible. Returns true if it was made.
    fn pass_on(&mut self, replica: Replica, holder: u16, scope: MovableReplicas) -> bool {
        if self.slot(replica) != holder || !self.may_touch(replica, scope) {
            return false;
        }
        let Some(taker) = self.find(replica, SearchedDevices::Needs, Strictness::Bounds) else {
            return false;
        };
        self.assign(replica, taker);
        true
    }
}

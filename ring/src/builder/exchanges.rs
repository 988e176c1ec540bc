//! Exchanges of movers: only one replica of a partition may move, and it was chosen early, by the
//! needs at that time. If the mover left a device that is now below its quota, and another replica
//! stays on a device over its quota, the two change roles: the number of moves stays, and both
//! devices improve.
//!
//! If the staying replica is on a device at its quota, the roles may change if another exchange
//! makes up for it. Such a chain of exchanges leads from a device over its quota to one below; the
//! devices between keep their counts.

use std::collections::VecDeque;

use super::assignment::{Assignment, Replica};
use crate::table::NOBODY;

/// Most exchanges evaluated in one run of chains, so that a run without solution ends soon.
const WEIGHED_MAX: usize = 1_000_000;

/// For each device its predecessor in a chain: a replica on the predecessor would leave, so that
/// its partition's mover stays here.
type Links = Vec<Option<u16>>;

impl Assignment {
    /// Lets replicas on devices over their quotas move instead of those that left devices now
    /// below. Ends because each exchange lowers the excess.
    pub(super) fn exchange(&mut self) {
        for partition in self.chance.walk(self.table.part_power()) {
            if self.excess == 0 {
                return;
            }
            if self.has_over(partition)
                && let Some(mover) = self.only_mover(partition)
                && self.is_below(self.origin(mover))
                && let Some(other) = self.replicas(partition).find(|other| {
                    self.is_over(self.slot(*other)) && self.may_exchange(mover, *other)
                })
            {
                self.exchange_with(mover, other);
            }
        }
    }

    /// Makes chains of exchanges until none is left.
    pub(super) fn exchange_in_chains(&mut self) {
        let mut short = self.left();
        short.retain(|slot| self.is_below(*slot));
        if short.is_empty() {
            return;
        }
        let mut stayed = self.stayed();
        let mut weighed_left = WEIGHED_MAX;
        while self.excess > 0 && !short.is_empty() {
            let (links, ends) = self.search_exchanges(&stayed, short.len(), &mut weighed_left);
            let mut made = false;
            for end in ends {
                made |= self.make_exchanges(&links, end, &mut stayed);
            }
            if !made {
                return;
            }
            short.retain(|slot| self.is_below(*slot));
        }
    }

    /// Returns the devices that movers have left.
    fn left(&self) -> Vec<u16> {
        let mut has_left = vec![false; self.rules.tree.paths.len()];
        for partition in 0..self.table.parts() {
            if let Some(mover) = self.only_mover(partition) {
                has_left[usize::from(self.origin(mover))] = true;
            }
        }
        (0..).zip(has_left).filter(|(_, has_left)| *has_left).map(|(slot, _)| slot).collect()
    }

    /// Returns for each device the replicas that stayed while another of their partition moved.
    fn stayed(&mut self) -> Vec<Vec<Replica>> {
        let mut stayed = vec![Vec::new(); self.rules.tree.paths.len()];
        for partition in self.chance.walk(self.table.part_power()) {
            let Some(mover) = self.only_mover(partition) else { continue };
            for replica in self.replicas(partition).filter(|replica| *replica != mover) {
                stayed[usize::from(self.slot(replica))].push(replica);
            }
        }
        stayed
    }

    /// Finds the shortest chains of exchanges to at most `wanted` devices below their quotas.
    /// Returns the predecessor of each visited device, and these devices.
    fn search_exchanges(
        &mut self,
        stayed: &[Vec<Replica>],
        wanted: usize,
        weighed_left: &mut usize,
    ) -> (Links, Vec<u16>) {
        let (mut links, mut ends): (Links, _) = (vec![None; stayed.len()], Vec::new());
        let over = (0..).take(stayed.len()).filter(|slot| self.is_over(*slot));
        let mut queue: VecDeque<u16> = over.collect();
        let mut met = vec![false; stayed.len()];
        for &slot in &queue {
            met[usize::from(slot)] = true;
        }
        while let Some(from) = queue.pop_front() {
            for &other in &stayed[usize::from(from)] {
                let Some(mover) = self.only_mover(other.partition) else { continue };
                let to = self.origin(mover);
                if met[usize::from(to)] {
                    continue;
                }
                if *weighed_left == 0 || ends.len() == wanted {
                    return (links, ends);
                }
                *weighed_left -= 1;
                if self.may_exchange(mover, other) {
                    links[usize::from(to)] = Some(from);
                    met[usize::from(to)] = true;
                    if self.is_below(to) {
                        ends.push(to);
                    } else {
                        queue.push_back(to);
                    }
                }
            }
        }
        (links, ends)
    }

    /// Makes a chain from its end, or undoes it: chains share devices, and an earlier chain may
    /// have used a replica that this one needs. Returns true if it was made.
    fn make_exchanges(&mut self, links: &Links, end: u16, stayed: &mut [Vec<Replica>]) -> bool {
        let mut done: Vec<(Replica, Replica)> = Vec::new();
        let mut to = end;
        while let Some(from) = links[usize::from(to)]
            && let Some((mover, other)) = self.exchange_between(from, to, stayed)
        {
            self.exchange_with(mover, other);
            done.push((mover, other));
            to = from;
        }
        // The chain's first device has lost a replica already.
        if links[usize::from(to)].is_some() || self.is_below(to) {
            for (mover, other) in done.into_iter().rev() {
                self.exchange_with(other, mover);
            }
            return false;
        }
        for (mover, other) in done {
            stayed[usize::from(self.origin(other))].retain(|replica| *replica != other);
            stayed[usize::from(self.slot(mover))].push(mover);
        }
        true
    }

    /// Finds a mover that could stay on `to` if another replica, on `from`, moved instead.
    fn exchange_between(
        &mut self,
        from: u16,
        to: u16,
        stayed: &[Vec<Replica>],
    ) -> Option<(Replica, Replica)> {
        stayed[usize::from(from)].iter().find_map(|&other| {
            let mover = self.only_mover(other.partition)?;
            let fits = mover != other && self.origin(mover) == to;
            (fits && self.may_exchange(mover, other)).then_some((mover, other))
        })
    }

    /// Returns the one replica of a partition that has left its device.
    fn only_mover(&self, partition: u32) -> Option<Replica> {
        if !self.has_departed(partition) {
            return None;
        }
        self.replicas(partition).find(|replica| self.slot(*replica) != self.origin(*replica))
    }

    /// True if keeping the mover and moving `other` instead doesn't increase the partition's
    /// faults.
    fn may_exchange(&mut self, mover: Replica, other: Replica) -> bool {
        let (origin, taker) = (self.origin(mover), self.slot(mover));
        let holder = self.slot(other);
        if other == mover || holder == NOBODY {
            return false;
        }
        let row = self.table.row_mut(mover.partition);
        let before = self.rules.faults(row);
        (row[mover.column], row[other.column]) = (origin, taker);
        let after = self.rules.faults(row);
        (row[mover.column], row[other.column]) = (taker, holder);
        after <= before
    }

    fn exchange_with(&mut self, mover: Replica, other: Replica) {
        let (origin, taker) = (self.origin(mover), self.slot(mover));
        self.assign(mover, origin);
        self.assign(other, taker);
    }
}

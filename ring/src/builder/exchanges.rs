//! Second thoughts: of a partition only one replica may move, and which one was chosen early, when
//! others looked more in need. Where a partition's mover left a device that now holds too little,
//! and stays with one that holds too much, the two change roles: nothing more moves, and both are
//! better off.

use super::state::{Replica, State};
use crate::table::NOBODY;

impl State {
    /// Lets replicas on devices over their quotas move in the place of those that left devices now
    /// below. Ends for lack of them, since each lowers the excess.
    pub(super) fn exchange(&mut self) {
        for partition in self.chance.walk(self.table.part_power()) {
            if self.excess == 0 {
                return;
            }
            if self.has_over(partition)
                && let Some(mover) = self.only_mover(partition)
            {
                self.exchange_with(mover);
            }
        }
    }

    /// The one replica of a partition that has left its device, if it left one in need.
    fn only_mover(&self, partition: u32) -> Option<Replica> {
        if !self.has_departed(partition) {
            return None;
        }
        let mover = self
            .replicas(partition)
            .find(|replica| self.slot(*replica) != self.origin(*replica))?;
        self.is_below(self.origin(mover)).then_some(mover)
    }

    fn exchange_with(&mut self, mover: Replica) {
        let (origin, taker) = (self.origin(mover), self.slot(mover));
        for other in self.replicas(mover.partition) {
            let holder = self.slot(other);
            if other == mover || holder == NOBODY || !self.is_over(holder) {
                continue;
            }
            let row = self.table.row_mut(mover.partition);
            let before = self.rules.faults(row);
            (row[mover.column], row[other.column]) = (origin, taker);
            let after = self.rules.faults(row);
            (row[mover.column], row[other.column]) = (taker, holder);
            if after <= before {
                self.assign(mover, origin);
                self.assign(other, taker);
                return;
            }
        }
    }
}

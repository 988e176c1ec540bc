//! Which ring may follow which: what a server checks before it lets a newer ring in (rule P3).

use std::collections::BTreeSet;

use martlet_protocol::Partition;

use crate::error::{Error, Result};
use crate::ring::Ring;

impl Ring {
    /// Whether `next` may take this ring's place.
    ///
    /// `is_done` says of a partition that its move has reached its last phase on this server's
    /// knowledge. A partition that isn't done may not move again, except away from a device that is
    /// gone, nor may its previous holder be forgotten.
    pub fn check_successor(&self, next: &Ring, is_done: impl Fn(Partition) -> bool) -> Result<()> {
        let (mine, theirs) = (&self.identity, &next.identity);
        if mine.lineage != theirs.lineage || mine.policy != theirs.policy {
            return Err(Error::conflict(
                "that ring belongs to another cluster or another policy: use this policy's own",
            ));
        }
        if theirs.epoch < mine.epoch {
            return Err(Error::conflict(format!(
                "that ring is older: it has epoch {}, and epoch {} is in use",
                theirs.epoch, mine.epoch
            )));
        }
        if theirs.epoch == mine.epoch {
            if next.hash() == self.hash() {
                return Ok(());
            }
            return Err(Error::conflict(format!(
                "there are two rings of epoch {}: someone used a copy of the builder; write a new \
                 ring from the one whose ring is in use",
                mine.epoch
            )));
        }
        if theirs.epoch == mine.epoch + 1 && theirs.parent != self.hash() {
            return Err(Error::conflict(format!(
                "the ring of epoch {} was made from another ring than the one in use: write a new \
                 ring from the builder whose ring is in use",
                theirs.epoch
            )));
        }
        self.check_moves(next, is_done)
    }

    fn check_moves(&self, next: &Ring, is_done: impl Fn(Partition) -> bool) -> Result<()> {
        if next.part_power() < self.part_power() {
            return Err(Error::conflict("that ring has fewer partitions: it would lose data"));
        }
        let shift = next.part_power() - self.part_power();
        let open: BTreeSet<Partition> = self
            .moves()
            .iter()
            .map(|step| step.partition)
            .filter(|partition| !is_done(*partition))
            .collect();
        for step in self.moves().iter().filter(|step| open.contains(&step.partition)) {
            let first = step.partition.0 << shift;
            for half in (first..first + (1 << shift)).map(Partition) {
                let replica = usize::from(step.replica);
                let is_back = next.primaries(half).nth(replica) == Some(step.previous);
                if !is_back && next.previous(half, replica) != Some(step.previous) {
                    return Err(Error::conflict(format!(
                        "that ring forgets that {} is still handing over partition {}: settle only \
                         after a census",
                        step.previous, step.partition.0
                    )));
                }
            }
        }
        for partition in open {
            let first = partition.0 << shift;
            for half in (first..first + (1 << shift)).map(Partition) {
                for (before, after) in self.primaries(partition).zip(next.primaries(half)) {
                    if before != after && next.device(before).is_some() {
                        return Err(Error::conflict(format!(
                            "that ring moves partition {} again before its last move is done",
                            partition.0
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

//! Succession of rings: checks before a server adopts a newer ring (rule P3).

use std::collections::BTreeSet;

use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::{Partition, Phase, Term};

use crate::error::{Error, Result};
use crate::ring::{Move, Ring};

impl Ring {
    /// Checks that `next` is a ring of this cluster and policy.
    ///
    /// # Errors
    /// Lineage, policy or redundancy differ.
    pub fn check_kinship(&self, next: &Ring) -> Result<()> {
        let (mine, theirs) = (&self.identity, &next.identity);
        if mine.lineage != theirs.lineage
            || mine.policy != theirs.policy
            || mine.redundancy != theirs.redundancy
        {
            return Err(Error::conflict(
                "the new ring belongs to another cluster or policy: use a ring of this policy",
            ));
        }
        Ok(())
    }

    /// Checks that `next` may replace this ring.
    ///
    /// `is_done` returns true for a partition whose moves have reached their last phase, as far as
    /// this server knows. Other partitions may not move again, except away from removed devices,
    /// and must keep their previous holders.
    pub fn check_successor(&self, next: &Ring, is_done: impl Fn(Partition) -> bool) -> Result<()> {
        self.check_kinship(next)?;
        let (mine, theirs) = (&self.identity, &next.identity);
        if theirs.epoch < mine.epoch {
            return Err(Error::conflict(format!(
                "the new ring is older: it has epoch {}, and epoch {} is in use",
                theirs.epoch, mine.epoch
            )));
        }
        if theirs.epoch == mine.epoch {
            if next.hash() == self.hash() {
                return Ok(());
            }
            return Err(Error::conflict(format!(
                "there are two rings of epoch {}, because a copy of the builder was used: write a \
                 new ring from the builder whose ring is in use",
                mine.epoch
            )));
        }
        let is_far = |held: u64, next: u64| next.saturating_sub(held) > RING_AHEAD_MAX;
        if is_far(mine.epoch, theirs.epoch) || is_far(self.change(), next.change()) {
            return Err(Error::conflict(format!(
                "the new ring has epoch {} and change {}, too far above epoch {} and change {}, \
                 which are in use: no ring could follow it; write a new ring from the builder \
                 whose ring is in use",
                theirs.epoch,
                next.change(),
                mine.epoch,
                self.change()
            )));
        }
        if theirs.epoch == mine.epoch + 1 && theirs.parent != self.hash() {
            return Err(Error::conflict(format!(
                "the ring of epoch {} was made from another ring than the one in use: write a new \
                 ring from the builder whose ring is in use",
                theirs.epoch
            )));
        }
        if next.change() < self.change() {
            return Err(Error::conflict(format!(
                "the new ring has change {}, and change {} is in use: it was made by an old copy of \
                 the builder; write a new ring from the builder whose ring is in use, or make the \
                 builder again by `reconstruct` from that ring",
                next.change(),
                self.change()
            )));
        }
        self.check_moves(next, is_done)
    }

    /// Checks that `next` may replace this ring as the index ring; `known` is the highest known
    /// term. [`Ring::term_at`] decides if it may do so at once.
    pub fn check_index_successor(&self, next: &Ring, known: Term) -> Result<()> {
        let is_over = |change| known == Term::NONE || known.phase_of(change) == Some(Phase::New);
        let is_done = |partition| self.moves_of(partition).all(|step| is_over(step.change));
        self.check_successor(next, is_done)?;
        if next.replicas_exact().to_bits() != self.replicas_exact().to_bits() {
            return Err(Error::conflict(format!(
                "the index has {} replicas, which can't be changed: the new ring has {}",
                self.replicas_exact(),
                next.replicas_exact()
            )));
        }
        self.check_index_change(next)
    }

    /// Checks that the change of the index from this assignment to that of `next` can begin and
    /// end. Epochs and parents aren't compared: builders are judged before they are saved.
    pub fn check_index_change(&self, next: &Ring) -> Result<()> {
        self.check_chain(next)?;
        self.check_same_holders(next)?;
        self.check_old_holders(next)
    }

    /// Checks that moves of the next change start from this ring's holders: the holders that decide
    /// at the end of a change decide at the start of the next.
    fn check_chain(&self, next: &Ring) -> Result<()> {
        if next.change() != self.change() + 1 {
            return Ok(());
        }
        for step in next.begun() {
            let here = self.partition_of_child(next, step.partition);
            let holder = self.primaries(here).nth(usize::from(step.replica));
            if holder != Some(step.previous) {
                return Err(Error::conflict(format!(
                    "the new ring moves partition {} on before its last move was settled: run \
                     `settle` when `martlet admin status` shows `new` beside the index, and then \
                     rebalance; if the builder was rebalanced already, make it again first, by \
                     `reconstruct` from the ring in use",
                    step.partition.0
                )));
            }
        }
        Ok(())
    }

    /// Checks that the holders of `next` are this ring's, besides the moves of a change that `next`
    /// begins. A ring of that change that settled them names none, and isn't judged.
    fn check_same_holders(&self, next: &Ring) -> Result<()> {
        let begins = next.change() == self.change() + 1 && next.begun().next().is_some();
        if next.change() != self.change() && !begins {
            return Ok(());
        }
        for partition in next.partitions() {
            let here = self.partition_of_child(next, partition);
            let pairs = self.primaries(here).zip(next.primaries(partition)).enumerate();
            for (replica, _) in pairs.filter(|(_, (before, after))| before != after) {
                let is_move = |step: &Move| {
                    usize::from(step.replica) == replica && step.change == next.change()
                };
                if !begins || !next.moves_of(partition).any(is_move) {
                    return Err(Error::conflict(format!(
                        "the new ring has another holder of partition {} without a move, so it was \
                         made from another ring than the one in use: write a new ring from the \
                         builder whose ring is in use",
                        partition.0
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks that most holders at the start of the next change stay in the ring, where partitions
    /// move: they have to answer before it ends.
    fn check_old_holders(&self, next: &Ring) -> Result<()> {
        if next.change() == self.change() {
            return Ok(());
        }
        let old = Term::of(next.change(), Phase::Old);
        let stays = |id| next.device(id).is_some();
        let is_left = |at: &Partition| !next.sets(*at, old).has_quorum(stays);
        match next.begun().map(|step| step.partition).find(is_left) {
            None => Ok(()),
            Some(partition) => Err(Error::conflict(format!(
                "the new ring takes most holders of partition {} away at once, so that its change \
                 could never end: let devices leave one after the other, each when the change \
                 before is over; where they are lost, put empty disks in their places, under the \
                 same ids, and run `martlet admin index accept-loss`",
                partition.0
            ))),
        }
    }

    /// Moves that began with this ring's change.
    fn begun(&self) -> impl Iterator<Item = &Move> {
        self.moves().iter().filter(|step| step.change == self.change())
    }

    fn check_moves(&self, next: &Ring, is_done: impl Fn(Partition) -> bool) -> Result<()> {
        if next.part_power() < self.part_power() {
            return Err(Error::conflict(
                "the new ring has fewer partitions, which would lose data",
            ));
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
                        "the new ring omits that {} is still handing over partition {}: run \
                         `settle` only after a clean census",
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
                            "the new ring moves partition {} again before its last move is done",
                            partition.0
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

//! Counting the replies of replicas. Pure.

/// How a count stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Neither enough said yes, nor can it be told that they never will.
    Undecided,
    /// Enough said yes.
    Met,
    /// Too many said no.
    Impossible,
}

/// Counts replies until a quorum is met or can't be any more.
///
/// Invariants: once met or impossible, a count stays so; it is undecided only while replies are
/// outstanding.
#[derive(Clone, Copy, Debug)]
pub struct QuorumTally {
    needed: usize,
    outstanding: usize,
}

impl QuorumTally {
    /// A count of `replicas` replies of which `needed` have to say yes.
    pub fn new(replicas: usize, needed: usize) -> Self {
        Self { needed, outstanding: replicas }
    }

    /// A count in which more than half of the replicas have to say yes: any two such sets meet.
    pub fn majority(replicas: usize) -> Self {
        Self::new(replicas, replicas / 2 + 1)
    }

    /// Counts one reply.
    pub fn push(&mut self, yes: bool) -> Progress {
        self.outstanding = self.outstanding.saturating_sub(1);
        if yes {
            self.needed = self.needed.saturating_sub(1);
        }
        self.progress()
    }

    /// How the count stands.
    pub fn progress(&self) -> Progress {
        if self.needed == 0 {
            Progress::Met
        } else if self.needed > self.outstanding {
            Progress::Impossible
        } else {
            Progress::Undecided
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_single_replica_decides_alone() {
        assert_eq!(QuorumTally::majority(1).push(true), Progress::Met);
        assert_eq!(QuorumTally::majority(1).push(false), Progress::Impossible);
    }

    #[test]
    fn two_of_three_are_enough_and_two_refusals_too_many() {
        let mut tally = QuorumTally::majority(3);
        assert_eq!(tally.push(true), Progress::Undecided);
        assert_eq!(tally.push(false), Progress::Undecided);
        assert_eq!(tally.push(true), Progress::Met);
        let mut tally = QuorumTally::majority(3);
        tally.push(false);
        assert_eq!(tally.push(false), Progress::Impossible);
        assert_eq!(QuorumTally::new(2, 3).progress(), Progress::Impossible);
    }

    proptest! {
        #[test]
        fn a_count_says_what_counting_says(
            replies in proptest::collection::vec(any::<bool>(), 1..9),
            needed in 1usize..9,
        ) {
            let mut tally = QuorumTally::new(replies.len(), needed);
            for (at, reply) in replies.iter().enumerate() {
                let progress = tally.push(*reply);
                let yes = replies[..=at].iter().filter(|reply| **reply).count();
                let left = replies.len() - at - 1;
                let expected = if yes >= needed {
                    Progress::Met
                } else if yes + left < needed {
                    Progress::Impossible
                } else {
                    Progress::Undecided
                };
                prop_assert_eq!(progress, expected);
            }
        }
    }
}

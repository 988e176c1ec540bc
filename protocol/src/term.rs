//! Terms: how far the index has come through its ring changes (rules P1 to P3).
//!
//! ```text
//! change 7                        change 8
//! old ──▶ joint ──▶ new  ═══════  old ──▶ joint ──▶ new
//! 14      15        16            16      17        18
//! ```
//!
//! Each ring that moves replicas of the index is one change, and goes through three phases: the old
//! holders decide; old and new holders decide together, each by a quorum of their own; the new
//! holders decide. The last phase of one change is the first of the next: whoever decided last
//! decides until somebody joins.
//!
//! A term never falls. A device keeps the highest that it was told, and refuses index requests that
//! name a lower one: so nobody who has missed two steps can find a quorum.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A phase of a change, in one number that only rises.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Term(pub u64);

/// Who decides about the partitions that a change moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Those who held them before.
    Old,
    /// Both: a quorum of those before and a quorum of those after.
    Joint,
    /// Those who hold them now.
    New,
}

impl Term {
    /// Nobody was told of a ring change yet.
    pub const NONE: Self = Self(0);
    /// Named by those who speak for no quorum, such as background workers: never refused.
    pub const ANY: Self = Self(u64::MAX);

    /// The term of a phase of a change; changes count from 1.
    pub fn of(change: u64, phase: Phase) -> Self {
        Self(change.saturating_mul(2).saturating_add(phase as u64))
    }

    /// The phase in which a change is at this term; none before it begins. It stays in the last.
    pub fn phase_of(self, change: u64) -> Option<Phase> {
        match self.0.checked_sub(change.saturating_mul(2))? {
            0 => Some(Phase::Old),
            1 => Some(Phase::Joint),
            _ => Some(Phase::New),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_one_another_across_changes() {
        assert_eq!(Term::of(7, Phase::New), Term::of(8, Phase::Old));
        let phases: Vec<_> = (13..18).map(|term| Term(term).phase_of(7)).collect();
        let expected =
            [None, Some(Phase::Old), Some(Phase::Joint), Some(Phase::New), Some(Phase::New)];
        assert_eq!(phases, expected);
        assert_eq!(Term::ANY.phase_of(u64::MAX / 2), Some(Phase::Joint));
    }
}

//! Terms: progress of the index through its ring changes (rules P1 to P3).
//!
//! ```text
//! change 7                        change 8
//! old ──▶ joint ──▶ new  ═══════  old ──▶ joint ──▶ new
//! 14      15        16            16      17        18
//! ```
//!
//! Each ring that moves replicas of the index is one change with three phases: the old holders
//! decide; old and new holders decide together, each by their own quorum; the new holders decide.
//! The last phase of one change is the first phase of the next.
//!
//! A term never falls. A device keeps its highest term, and refuses index requests with a lower
//! one. So a process that missed two steps can't reach a quorum.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Phase of a change, as one number that only rises.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Term(pub u64);

/// Holders that decide about the partitions moved by a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The holders before the change.
    Old,
    /// Both: a quorum of the old holders and a quorum of the new holders.
    Joint,
    /// The holders after the change.
    New,
}

impl Term {
    /// Term of a device before its first ring change.
    pub const NONE: Self = Self(0);
    /// Term of callers without a quorum, such as reads of background workers: never refused.
    pub const ANY: Self = Self(u64::MAX);

    /// Returns the term of a phase of a change; changes count from 1.
    pub fn of(change: u64, phase: Phase) -> Self {
        Self(change.saturating_mul(2).saturating_add(phase as u64))
    }

    /// Returns the phase of a change at this term; none before the change begins. Later terms
    /// return [`Phase::New`].
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
        let terms = [Phase::Old, Phase::Joint, Phase::New].map(|phase| Term::of(7, phase));
        assert_eq!(terms, [14, 15, 16].map(Term));
        assert_eq!(Term::of(7, Phase::New), Term::of(8, Phase::Old));
        let phases: Vec<_> = (13..18).map(|term| Term(term).phase_of(7)).collect();
        let expected =
            [None, Some(Phase::Old), Some(Phase::Joint), Some(Phase::New), Some(Phase::New)];
        assert_eq!(phases, expected);
        assert_eq!(Term::ANY.phase_of(u64::MAX / 2), Some(Phase::Joint));
    }
}

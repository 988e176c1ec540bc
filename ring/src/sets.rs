//! Who decides about a partition at a term: one set of devices or, while a change is between its
//! old and its new holders, two (rules P1 to P3). Pure.
//!
//! Invariant: quorums of the sets of a term and of the next one share a device, as long as all
//! moves that are open in the ring began with a change that is not over.

use martlet_protocol::{DeviceId, Partition, Phase, Term};

use crate::ring::Ring;

/// The devices that decide about a partition: each set by a quorum of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets {
    /// Each device once, those of both sets first; in the order of the replicas otherwise.
    members: Vec<Member>,
    is_joint: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    device: DeviceId,
    /// Of the first set, and of the second; the same where there is one.
    of: [bool; 2],
}

impl Sets {
    /// Two sets, or one where they are the same.
    pub fn joint(old: &[DeviceId], new: &[DeviceId]) -> Self {
        let mut members: Vec<Member> = Vec::with_capacity(old.len() + 1);
        for &device in new.iter().chain(old) {
            if !members.iter().any(|member| member.device == device) {
                members.push(Member { device, of: [old.contains(&device), new.contains(&device)] });
            }
        }
        members.sort_by_key(|member| member.of != [true, true]);
        let is_joint = members.last().is_some_and(|last| last.of != [true, true]);
        Self { members, is_joint }
    }

    /// One set, of these devices.
    pub fn single(devices: &[DeviceId]) -> Self {
        Self::joint(devices, devices)
    }

    /// Whether there are two sets.
    pub fn is_joint(&self) -> bool {
        self.is_joint
    }

    /// Each device of any set once; first those whose word counts in all sets.
    pub fn members(&self) -> impl ExactSizeIterator<Item = DeviceId> + Clone + '_ {
        self.members.iter().map(|member| member.device)
    }

    /// How many of the members are of all sets: the first so many.
    pub fn common(&self) -> usize {
        self.members.partition_point(|member| member.of == [true, true])
    }

    /// How many sets there are.
    pub fn count(&self) -> usize {
        1 + usize::from(self.is_joint)
    }

    /// The devices of a set.
    pub fn set(&self, at: usize) -> impl Iterator<Item = DeviceId> + Clone + '_ {
        self.members.iter().filter(move |member| member.of[at]).map(|member| member.device)
    }

    /// Whether a device is of a set.
    pub fn is_of(&self, at: usize, device: DeviceId) -> bool {
        self.members.iter().any(|member| member.device == device && member.of[at])
    }

    /// Whether a device is of any set.
    pub fn contains(&self, device: DeviceId) -> bool {
        self.members().any(|member| member == device)
    }

    /// How many devices of a set are a quorum of it: any two such meet.
    pub fn quorum(&self, at: usize) -> usize {
        self.set(at).count() / 2 + 1
    }

    /// Whether the devices that say yes are a quorum of each set.
    pub fn has_quorum(&self, says_yes: impl Fn(DeviceId) -> bool) -> bool {
        let has = |at| self.set(at).filter(|device| says_yes(*device)).count() >= self.quorum(at);
        (0..self.count()).all(has)
    }
}

impl Ring {
    /// Who decides about a partition at a term. For one who knows of no term, changes that are open
    /// have only just begun.
    ///
    /// # Panics
    /// If the partition isn't of this ring.
    pub fn sets(&self, partition: Partition, term: Term) -> Sets {
        let term = if term == Term::NONE { Term::of(self.change(), Phase::Old) } else { term };
        let new: Vec<DeviceId> = self.primaries(partition).collect();
        let begin = self.moves.partition_point(|step| step.partition < partition);
        let steps = self.moves[begin..].iter().take_while(|step| step.partition == partition);
        let (mut before, mut after) = (new.clone(), new);
        for step in steps {
            let phase = term.phase_of(step.change).unwrap_or(Phase::Old);
            let replica = usize::from(step.replica);
            if phase != Phase::New {
                before[replica] = step.previous;
            }
            if phase == Phase::Old {
                after[replica] = step.previous;
            }
        }
        Sets::joint(&before, &after)
    }

    /// The term to name in requests that go by this ring, when `known` is the highest that was heard
    /// of; none when the ring has to wait for the change before it (rule P3).
    pub fn term_at(&self, known: Term) -> Option<Term> {
        let open = self.moves.iter().map(|step| step.change).max();
        let needed = match open {
            Some(change) => Term::of(change, Phase::Old),
            None => Term::of(self.change(), Phase::New),
        };
        if known == Term::NONE {
            return Some(known);
        }
        (known >= needed).then(|| known.min(Term::of(self.change(), Phase::New)))
    }
}

//! Deciding sets: the devices that decide about a partition at a term. They form one set, or two
//! between the old and the new holders of a change (rules P1 to P3). Pure.
//!
//! Invariant: quorums of the sets of successive terms share a device, if all open moves of the ring
//! belong to changes that aren't over.

use martlet_protocol::{DeviceId, Partition, Phase, Term};

use crate::ring::Ring;

/// Devices that decide about a partition; each set by its own quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets {
    /// Each device once, members of both sets first; otherwise in the order of replicas.
    members: Vec<SetMember>,
    is_joint: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetMember {
    device: DeviceId,
    /// Membership in the first and the second set; equal if there is only one set.
    of: [bool; 2],
}

impl Sets {
    /// Creates two sets, or one if `old` and `new` are equal.
    pub fn joint(old: &[DeviceId], new: &[DeviceId]) -> Self {
        let mut members: Vec<SetMember> = Vec::with_capacity(old.len() + 1);
        for &device in new.iter().chain(old) {
            if !members.iter().any(|member| member.device == device) {
                members
                    .push(SetMember { device, of: [old.contains(&device), new.contains(&device)] });
            }
        }
        members.sort_by_key(|member| member.of != [true, true]);
        let is_joint = members.last().is_some_and(|last| last.of != [true, true]);
        Self { members, is_joint }
    }

    /// Creates one set.
    pub fn single(devices: &[DeviceId]) -> Self {
        Self::one_of(devices.iter().copied())
    }

    fn one_of(devices: impl ExactSizeIterator<Item = DeviceId>) -> Self {
        let mut members: Vec<SetMember> = Vec::with_capacity(devices.len());
        for device in devices {
            if !members.iter().any(|member| member.device == device) {
                members.push(SetMember { device, of: [true, true] });
            }
        }
        Self { members, is_joint: false }
    }

    /// True if there are two sets.
    pub fn is_joint(&self) -> bool {
        self.is_joint
    }

    /// Each device of any set once; members of all sets first.
    pub fn members(&self) -> impl ExactSizeIterator<Item = DeviceId> + Clone + '_ {
        self.members.iter().map(|member| member.device)
    }

    /// Number of members of all sets; they come first.
    pub fn common(&self) -> usize {
        self.members.partition_point(|member| member.of == [true, true])
    }

    /// Number of sets.
    pub fn count(&self) -> usize {
        1 + usize::from(self.is_joint)
    }

    /// Devices of a set.
    pub fn set(&self, at: usize) -> impl Iterator<Item = DeviceId> + Clone + '_ {
        self.members.iter().filter(move |member| member.of[at]).map(|member| member.device)
    }

    /// True if a device is a member of the set.
    pub fn is_of(&self, at: usize, device: DeviceId) -> bool {
        self.members.iter().any(|member| member.device == device && member.of[at])
    }

    /// True if a device is a member of any set.
    pub fn contains(&self, device: DeviceId) -> bool {
        self.members().any(|member| member == device)
    }

    /// Size of a quorum of the set: any two quorums share a device.
    pub fn quorum(&self, at: usize) -> usize {
        self.set(at).count() / 2 + 1
    }

    /// True if the devices selected by `says_yes` are a quorum of each set.
    pub fn has_quorum(&self, says_yes: impl Fn(DeviceId) -> bool) -> bool {
        let has = |at| self.set(at).filter(|device| says_yes(*device)).count() >= self.quorum(at);
        (0..self.count()).all(has)
    }
}

impl Ring {
    /// Returns the deciding sets of a partition at a term. With [`Term::NONE`], the last change
    /// counts as just begun.
    ///
    /// # Panics
    /// If the partition isn't in this ring.
    pub fn sets(&self, partition: Partition, term: Term) -> Sets {
        let term = if term == Term::NONE { Term::of(self.change(), Phase::Old) } else { term };
        let begin = self.moves.partition_point(|step| step.partition < partition);
        let steps = self.moves[begin..].iter().take_while(|step| step.partition == partition);
        if steps.clone().next().is_none() {
            return Sets::one_of(self.primaries(partition));
        }
        let new: Vec<DeviceId> = self.primaries(partition).collect();
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

    /// Returns the term for requests that use this ring; `known` is the highest known term. None if
    /// the ring must wait for the change before it (rule P3).
    pub fn term_at(&self, known: Term) -> Option<Term> {
        let needed = match self.last_open {
            Some(change) => Term::of(change, Phase::Old),
            None => self.last_term(),
        };
        if known == Term::NONE {
            return Some(known);
        }
        (known >= needed).then(|| known.min(self.last_term()))
    }

    /// Last term of the ring's change: every replica has moved.
    pub fn last_term(&self) -> Term {
        Term::of(self.change(), Phase::New)
    }

    /// Returns true if a process that uses this index ring, and knows `known`, lacks the ring of a change that has begun.
    /// Further devices may decide then.
    pub fn is_overtaken(&self, known: Term) -> bool {
        known > self.last_term()
    }
}

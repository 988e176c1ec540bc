//! Count of devices towards a quorum of each deciding set (rule P2). Pure.

use martlet_protocol::DeviceId;
use martlet_ring::Sets;

/// State of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No quorum yet, but still possible.
    Undecided,
    /// A quorum of each set has agreed.
    Met,
    /// A quorum of some set is impossible.
    Impossible,
}

/// Counts agreeing and refusing devices, each once, until a quorum of each set is met or
/// impossible.
///
/// Invariants: once met or impossible, a count stays so. It is undecided only while devices are
/// outstanding. Devices outside all sets don't count.
#[derive(Clone, Debug)]
pub struct QuorumTally<'a> {
    sets: &'a Sets,
    yes: Vec<DeviceId>,
    no: Vec<DeviceId>,
}

impl<'a> QuorumTally<'a> {
    /// A count without replies.
    pub fn new(sets: &'a Sets) -> Self {
        Self { sets, yes: Vec::new(), no: Vec::new() }
    }

    /// A count with these agreeing devices.
    pub fn of(sets: &'a Sets, yes: impl IntoIterator<Item = DeviceId>) -> Self {
        Self { sets, yes: yes.into_iter().collect(), no: Vec::new() }
    }

    /// Counts the reply of one device; later replies of the device are ignored.
    pub fn push(&mut self, device: DeviceId, yes: bool) -> Progress {
        if !self.yes.contains(&device) && !self.no.contains(&device) {
            if yes { self.yes.push(device) } else { self.no.push(device) }
        }
        self.progress()
    }

    /// Devices that agreed.
    pub fn yes(&self) -> &[DeviceId] {
        &self.yes
    }

    /// Returns true if a quorum of each set has agreed.
    pub fn is_met(&self) -> bool {
        self.sets.has_quorum(|device| self.yes.contains(&device))
    }

    /// Returns true if a quorum of each set has agreed or still can.
    pub fn may_be_met(&self) -> bool {
        self.sets.has_quorum(|device| !self.no.contains(&device))
    }

    /// Current state.
    pub fn progress(&self) -> Progress {
        if self.is_met() {
            Progress::Met
        } else if self.may_be_met() {
            Progress::Undecided
        } else {
            Progress::Impossible
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_ring::Ring;
    use proptest::prelude::*;

    use super::*;

    fn set(ids: &[u32]) -> Sets {
        Sets::single(&ids.iter().copied().map(DeviceId).collect::<Vec<_>>())
    }

    /// Devices 1, 2, 3 before, and 2, 3, 4 after.
    fn joint() -> Sets {
        Sets::joint(&[1, 2, 3].map(DeviceId), &[2, 3, 4].map(DeviceId))
    }

    #[test]
    fn a_single_replica_decides_alone() {
        let one = set(&[1]);
        assert_eq!(QuorumTally::new(&one).push(DeviceId(1), true), Progress::Met);
        assert_eq!(QuorumTally::new(&one).push(DeviceId(1), false), Progress::Impossible);
    }

    #[test]
    fn two_of_three_are_enough_and_two_refusals_too_many() {
        let three = set(&[1, 2, 3]);
        let mut tally = QuorumTally::new(&three);
        assert_eq!(tally.push(DeviceId(1), true), Progress::Undecided);
        assert_eq!(tally.push(DeviceId(1), true), Progress::Undecided, "it counts once");
        assert_eq!(tally.push(DeviceId(9), true), Progress::Undecided, "it is of no set");
        assert_eq!(tally.push(DeviceId(2), false), Progress::Undecided);
        assert_eq!(tally.push(DeviceId(3), true), Progress::Met);
        let mut tally = QuorumTally::new(&three);
        tally.push(DeviceId(1), false);
        assert_eq!(tally.push(DeviceId(2), false), Progress::Impossible);
    }

    #[test]
    fn p2_two_sets_need_a_quorum_each() {
        let joint = joint();
        let met = |ids: &[u32]| QuorumTally::of(&joint, ids.iter().copied().map(DeviceId)).is_met();
        assert!(met(&[2, 3]), "they count in both");
        assert!(met(&[1, 2, 4]) && met(&[1, 3, 4]));
        assert!(!met(&[1, 2]) && !met(&[3, 4]) && !met(&[1, 4]));
        let mut tally = QuorumTally::new(&joint);
        tally.push(DeviceId(2), false);
        assert_eq!(tally.push(DeviceId(4), false), Progress::Impossible, "of the new set");
    }

    #[test]
    fn a_ring_without_moves_makes_one_set() {
        let device = |id| martlet_ring::fixtures::device(id, format!("n{id}"), "disk");
        let devices: Vec<_> = (1..=5).map(device).collect();
        let ring = Ring::of_devices(martlet_protocol::PolicyId(0), 5, &devices).unwrap();
        let sets = ring.sets(ring.partition(0), martlet_protocol::Term::NONE);
        assert!(QuorumTally::of(&sets, [1, 2, 3].map(DeviceId)).is_met());
        assert!(!QuorumTally::of(&sets, [1, 2].map(DeviceId)).is_met());
    }

    proptest! {
        #[test]
        fn a_count_equals_the_sum_over_all_objects(
            replies in proptest::collection::vec((0u32..6, any::<bool>()), 1..9),
            old in proptest::collection::btree_set(0u32..6, 1..5),
            new in proptest::collection::btree_set(0u32..6, 1..5),
        ) {
            let [old, new] = [old, new].map(|ids| ids.into_iter().map(DeviceId).collect::<Vec<_>>());
            let sets = Sets::joint(&old, &new);
            let mut tally = QuorumTally::new(&sets);
            let mut votes = std::collections::BTreeMap::new();
            for (device, yes) in replies {
                let progress = tally.push(DeviceId(device), yes);
                votes.entry(DeviceId(device)).or_insert(yes);
                let of = |word: bool, set: &[DeviceId]| {
                    set.iter().filter(|id| votes.get(id) == Some(&word)).count()
                };
                let sets = [&old, &new];
                let met = sets.iter().all(|set| of(true, set) > set.len() / 2);
                let lost = sets.iter().any(|set| set.len() - of(false, set) <= set.len() / 2);
                let expected = match (met, lost) {
                    (true, _) => Progress::Met,
                    (_, true) => Progress::Impossible,
                    _ => Progress::Undecided,
                };
                prop_assert_eq!(progress, expected);
            }
        }
    }
}

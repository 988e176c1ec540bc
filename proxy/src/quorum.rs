//! Counting devices towards a quorum of each set that decides (rule P2). Pure.

use martlet_protocol::DeviceId;
use martlet_ring::Sets;

/// How a count stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Neither enough said yes, nor can it be told that they never will.
    Undecided,
    /// Enough said yes, of each set.
    Met,
    /// Too many said no, of some set.
    Impossible,
}

/// Counts the devices that say yes and those that say no, each once, until a quorum of each set is
/// met or can't be any more.
///
/// Invariants: once met or impossible, a count stays so; it is undecided only while devices are
/// outstanding. Who is of no set counts for nothing.
#[derive(Clone, Debug)]
pub struct QuorumTally<'a> {
    sets: &'a Sets,
    yes: Vec<DeviceId>,
    no: Vec<DeviceId>,
}

impl<'a> QuorumTally<'a> {
    /// A count of which nothing was heard yet.
    pub fn new(sets: &'a Sets) -> Self {
        Self { sets, yes: Vec::new(), no: Vec::new() }
    }

    /// A count in which these say yes.
    pub fn of(sets: &'a Sets, yes: impl IntoIterator<Item = DeviceId>) -> Self {
        Self { sets, yes: yes.into_iter().collect(), no: Vec::new() }
    }

    /// Counts what one device says; its first word stands.
    pub fn push(&mut self, device: DeviceId, yes: bool) -> Progress {
        if !self.yes.contains(&device) && !self.no.contains(&device) {
            if yes { self.yes.push(device) } else { self.no.push(device) }
        }
        self.progress()
    }

    /// Who said yes.
    pub fn yes(&self) -> &[DeviceId] {
        &self.yes
    }

    /// Whether a quorum of each set said yes.
    pub fn is_met(&self) -> bool {
        self.sets.has_quorum(|device| self.yes.contains(&device))
    }

    /// Whether a quorum of each set says yes or may yet.
    pub fn may_be_met(&self) -> bool {
        self.sets.has_quorum(|device| !self.no.contains(&device))
    }

    /// How the count stands.
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

    /// Devices 1, 2, 3 before, 2, 3, 4 after.
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
        let device = |id| martlet_ring::Device {
            id: DeviceId(id),
            region: 1,
            zone: 1,
            node: martlet_ring::Node { name: format!("n{id}"), address: String::new() },
            name: "disk".into(),
            weight: 1.0,
            meta: String::new(),
        };
        let devices: Vec<_> = (1..=5).map(device).collect();
        let ring = Ring::of_devices(martlet_protocol::PolicyId(0), 5, &devices).unwrap();
        let sets = ring.sets(ring.partition(0), martlet_protocol::Term::NONE);
        assert!(QuorumTally::of(&sets, [1, 2, 3].map(DeviceId)).is_met());
        assert!(!QuorumTally::of(&sets, [1, 2].map(DeviceId)).is_met());
    }

    proptest! {
        #[test]
        fn a_count_says_what_counting_says(
            replies in proptest::collection::vec((0u32..6, any::<bool>()), 1..9),
            old in proptest::collection::btree_set(0u32..6, 1..5),
            new in proptest::collection::btree_set(0u32..6, 1..5),
        ) {
            let [old, new] = [old, new].map(|ids| ids.into_iter().map(DeviceId).collect::<Vec<_>>());
            let sets = Sets::joint(&old, &new);
            let mut tally = QuorumTally::new(&sets);
            let mut said = std::collections::BTreeMap::new();
            for (device, yes) in replies {
                let progress = tally.push(DeviceId(device), yes);
                said.entry(DeviceId(device)).or_insert(yes);
                let of = |word: bool, set: &[DeviceId]| {
                    set.iter().filter(|id| said.get(id) == Some(&word)).count()
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

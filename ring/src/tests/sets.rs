//! Tests of the deciding sets at each term (rules P1 to P3).

use martlet_protocol::{DeviceId, Partition, Phase, PolicyId, Term};

use crate::ring::{Move, Ring, RingIdentity};
use crate::sets::Sets;
use crate::table::Table;
use crate::testing::{TestRng, device};

/// A ring of one partition on these devices, with moves (replica, previous, change), over all
/// devices from 0 to 9.
fn ring(change: u64, primaries: &[u32], moves: &[(u8, u32, u64)]) -> Ring {
    let mut table = Table::empty(0, primaries.len(), 1);
    for (slot, id) in table.row_mut(0).iter_mut().zip(primaries) {
        *slot = u16::try_from(*id).unwrap();
    }
    let moves = moves.iter().map(|&(replica, previous, change)| Move {
        partition: Partition(0),
        replica,
        previous: DeviceId(previous),
        change,
    });
    let identity = RingIdentity {
        epoch: change,
        policy: PolicyId(0),
        policy_name: String::new(),
        redundancy: martlet_protocol::Redundancy::Replicated,
        change,
        lineage: [0; 16],
        parent: [0; 32],
        handoff_unit: 1.0,
        next_id: 10,
    };
    let devices = (0..10).map(|id| device(id, 1, 1, &format!("n{id}"))).collect();
    Ring::from_parts(identity, devices, table, moves.collect()).unwrap()
}

fn sets(ring: &Ring, term: Term) -> Vec<Vec<u32>> {
    let sets = ring.sets(Partition(0), term);
    let sorted = |at| {
        let mut ids: Vec<u32> = sets.set(at).map(|id| id.0).collect();
        ids.sort_unstable();
        ids
    };
    (0..sets.count()).map(sorted).collect()
}

fn members(sets: &Sets) -> Vec<u32> {
    sets.members().map(|id| id.0).collect()
}

#[test]
fn one_replica_goes_through_the_phases() {
    let ring = ring(7, &[1, 2, 3], &[(1, 8, 7)]);
    assert_eq!(sets(&ring, Term::of(7, Phase::Old)), [[1, 3, 8]]);
    assert_eq!(sets(&ring, Term::of(7, Phase::Joint)), [[1, 3, 8], [1, 2, 3]]);
    for over in [Term::of(7, Phase::New), Term::of(9, Phase::Joint), Term::ANY] {
        assert_eq!(sets(&ring, over), [[1, 2, 3]]);
    }
    let joint = ring.sets(Partition(0), Term::of(7, Phase::Joint));
    assert_eq!(members(&joint), [1, 3, 2, 8], "those whose word counts twice come first");
    assert!(joint.is_of(0, DeviceId(8)) && !joint.is_of(1, DeviceId(8)));
    assert!(joint.contains(DeviceId(8)) && !joint.contains(DeviceId(7)));
    assert_eq!((joint.common(), joint.is_joint()), (2, true));
    assert_eq!(Sets::single(&[1, 2, 3].map(DeviceId)).common(), 3);
    assert_eq!(Sets::joint(&[DeviceId(1)], &[DeviceId(2)]).common(), 0);
}

/// Moves stand in the order of partitions, and each partition has its own.
#[test]
fn the_sets_of_a_partition_follow_its_own_moves() {
    let mut table = Table::empty(1, 3, 2);
    for (partition, ids) in [(0, [1, 2, 3]), (1, [4, 5, 6])] {
        table.row_mut(partition).copy_from_slice(&ids);
    }
    let step = |partition, replica, previous| Move {
        partition: Partition(partition),
        replica,
        previous: DeviceId(previous),
        change: 7,
    };
    let one = ring(7, &[1, 2, 3], &[]);
    let moves = vec![step(0, 0, 8), step(1, 2, 9)];
    let ring =
        Ring::from_parts(one.identity().clone(), one.devices().to_vec(), table, moves).unwrap();
    let ids = |partition, phase| -> Vec<u32> {
        let sets = ring.sets(Partition(partition), Term::of(7, phase));
        let mut ids: Vec<u32> = sets.members().map(|id| id.0).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!((ids(0, Phase::Old), ids(1, Phase::Old)), (vec![2, 3, 8], vec![4, 5, 9]));
    assert_eq!((ids(0, Phase::Joint), ids(1, Phase::Joint)), (vec![1, 2, 3, 8], vec![4, 5, 6, 9]));
    assert_eq!((ids(0, Phase::New), ids(1, Phase::New)), (vec![1, 2, 3], vec![4, 5, 6]));
}

#[test]
fn without_moves_the_primaries_decide_at_any_term() {
    let twice = ring(7, &[1, 2, 1], &[]).sets(Partition(0), Term::NONE);
    assert_eq!((members(&twice), twice.quorum(0)), (vec![1, 2], 2), "a device counts once");
    assert_eq!(twice, Sets::joint(&[1, 2, 1].map(DeviceId), &[1, 2, 1].map(DeviceId)));
    let ring = ring(7, &[1, 2, 3], &[]);
    for term in [Term::NONE, Term(1), Term::of(7, Phase::Joint), Term::ANY] {
        assert_eq!(sets(&ring, term), [[1, 2, 3]]);
        let alone = ring.sets(Partition(0), term);
        assert!(!alone.is_joint());
        assert_eq!(members(&alone), [1, 2, 3], "in the order of the replicas");
        assert_eq!((&alone, alone.common()), (&Sets::single(&[1, 2, 3].map(DeviceId)), 3));
    }
}

#[test]
fn without_a_term_the_last_change_counts_as_begun() {
    let ring = ring(7, &[1, 2, 3], &[(0, 8, 6), (1, 9, 7)]);
    assert_eq!(sets(&ring, Term::NONE), sets(&ring, Term::of(7, Phase::Old)));
    assert_eq!(sets(&ring, Term::NONE), [[1, 3, 9]]);
}

#[test]
fn moves_of_several_changes_are_each_in_a_phase_of_their_own() {
    let ring = ring(7, &[1, 2, 3], &[(0, 8, 6), (2, 9, 7)]);
    assert_eq!(sets(&ring, Term::of(6, Phase::Old)), [[2, 8, 9]]);
    assert_eq!(sets(&ring, Term::of(6, Phase::Joint)), [[2, 8, 9], [1, 2, 9]]);
    assert_eq!(sets(&ring, Term::of(7, Phase::Old)), [[1, 2, 9]]);
    assert_eq!(sets(&ring, Term::of(7, Phase::Joint)), [[1, 2, 9], [1, 2, 3]]);
    assert_eq!(sets(&ring, Term::of(7, Phase::New)), [[1, 2, 3]]);
}

#[test]
fn a_holder_that_is_gone_from_the_ring_stays_a_member() {
    let ring = ring(7, &[1, 2, 3], &[(0, 77, 7)]);
    assert!(ring.device(DeviceId(77)).is_none());
    let joint = ring.sets(Partition(0), Term::of(7, Phase::Joint));
    assert_eq!(members(&joint), [2, 3, 1, 77]);
    let but_one = |sets: &Sets, gone| sets.has_quorum(|id| id != DeviceId(gone));
    assert!(but_one(&joint, 77) && but_one(&joint, 2));
    assert!(!joint.has_quorum(|id| id == DeviceId(1) || id == DeviceId(2)), "one of the old set");
    assert!(joint.has_quorum(|id| id == DeviceId(2) || id == DeviceId(3)), "both count in both");
}

#[test]
fn a_device_that_takes_another_replica_over_counts_once() {
    // Replica 0 went from 1 to 4 and replica 2 from 3 to 1: device 1 is in both sets.
    let ring = ring(7, &[4, 2, 1], &[(0, 1, 7), (2, 3, 7)]);
    let joint = ring.sets(Partition(0), Term::of(7, Phase::Joint));
    assert_eq!(sets(&ring, Term::of(7, Phase::Joint)), [[1, 2, 3], [1, 2, 4]]);
    assert_eq!(members(&joint), [2, 1, 4, 3]);
    assert_eq!((joint.quorum(0), joint.quorum(1)), (2, 2));
}

#[test]
fn a_quorum_is_more_than_half_of_each_set() {
    let four = Sets::single(&[1, 2, 3, 4].map(DeviceId));
    assert_eq!((four.count(), four.quorum(0)), (1, 3));
    assert!(!four.has_quorum(|id| id.0 <= 2) && four.has_quorum(|id| id.0 <= 3));
    let one = Sets::single(&[DeviceId(1)]);
    assert!(one.has_quorum(|_| true) && !one.has_quorum(|_| false));
}

/// Choices of one term are visible at the next: every quorum of the one meets every quorum of the
/// other.
#[test]
fn quorums_of_neighbouring_terms_meet() {
    let mut lots = TestRng::new(11);
    for round in 0..300 {
        let replicas = 1 + lots.below(5);
        let mut ids: Vec<u32> = (0..10).collect();
        (1..ids.len()).rev().for_each(|at| {
            let other = lots.below(u32::try_from(at).unwrap() + 1) as usize;
            ids.swap(at, other);
        });
        let mut spare = ids.split_off(replicas as usize).into_iter();
        let mut moves: Vec<(u8, u32, u64)> = Vec::new();
        for replica in 0..replicas {
            if lots.below(2) == 0 {
                let previous = spare.next().unwrap();
                moves.push((
                    u8::try_from(replica).unwrap(),
                    previous,
                    5 + u64::from(lots.below(3)),
                ));
            }
        }
        let ring = ring(7, &ids, &moves);
        for term in 9..17 {
            let (now, next) =
                (ring.sets(Partition(0), Term(term)), ring.sets(Partition(0), Term(term + 1)));
            assert_meet(&now, &next, round);
            assert_meet(&now, &now, round);
        }
    }
}

fn assert_meet(one: &Sets, other: &Sets, round: u32) {
    let of = |bits: u32| move |id: DeviceId| bits & (1 << id.0) != 0;
    let quorums = |sets: &Sets| -> Vec<u32> {
        let all: u32 = sets.members().map(|id| 1 << id.0).sum();
        (0..1024).filter(|bits| bits & !all == 0 && sets.has_quorum(of(*bits))).collect()
    };
    for a in quorums(one) {
        assert!(quorums(other).iter().all(|b| a & b != 0), "seed 11, round {round}: {a:b}");
    }
}

#[test]
fn a_ring_waits_for_the_change_before_its_own() {
    let moving = ring(7, &[1, 2, 3], &[(0, 8, 7)]);
    let settled = ring(7, &[1, 2, 3], &[]);
    let (old, new) = (Term::of(7, Phase::Old), Term::of(7, Phase::New));
    assert_eq!(moving.term_at(Term(old.0 - 1)), None);
    assert_eq!(moving.term_at(old), Some(old));
    assert_eq!(settled.term_at(Term(new.0 - 1)), None);
    assert_eq!(settled.term_at(new), Some(new));
    for ring in [moving, settled] {
        assert_eq!(ring.term_at(Term::NONE), Some(Term::NONE), "nobody was told of any change");
        assert_eq!(ring.term_at(Term(new.0 + 3)), Some(new), "it knows of none beyond its own");
    }
    // Moves of an earlier change are complete before a later change begins.
    let both = ring(7, &[1, 2, 3], &[(0, 8, 5), (1, 9, 7)]);
    assert_eq!(both.term_at(Term(old.0 - 1)), None);
    // After an increase of part power or a renamed device, moves of an earlier change are still
    // open.
    let earlier = ring(7, &[1, 2, 3], &[(0, 8, 6)]);
    assert_eq!(earlier.term_at(Term::of(6, Phase::Old)), Some(Term::of(6, Phase::Old)));
}

#[test]
fn a_ring_is_overtaken_once_the_change_after_its_own_has_begun() {
    let joint = Term::of(7, Phase::Joint);
    for ring in [ring(7, &[1, 2, 3], &[(0, 8, 7)]), ring(7, &[1, 2, 3], &[])] {
        assert_eq!(ring.last_term(), Term::of(7, Phase::New));
        assert!(
            ![Term::NONE, joint, ring.last_term()].iter().any(|known| ring.is_overtaken(*known))
        );
        assert!(ring.is_overtaken(Term::of(8, Phase::Joint)));
    }
}

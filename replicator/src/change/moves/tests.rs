//! Moves by devices, and looks for partitions without their quorums.

use std::sync::Arc;

use super::*;
use crate::testing::growth::{new_device, small_ring, successor};
use crate::testing::storm::SplitMix;

const SEEDS: u64 = 40;
const LOOKS: u64 = 200;

/// Returns a ring with a new device, and without one of the ring before.
fn replaced() -> Arc<Ring> {
    successor(&small_ring(12), |builder| {
        builder.remove(DeviceId(1), true).unwrap();
        builder.add(new_device(12)).unwrap();
    })
}

/// Returns the partitions of the moves of a ring's change that `is_one` selects.
fn moving(ring: &Ring, is_one: impl Fn(Partition, DeviceId) -> bool) -> Vec<Partition> {
    let steps = ring.moves().iter().filter(|step| step.change == ring.change());
    let ours = steps.filter(|step| {
        let holder = ring.primaries(step.partition).nth(usize::from(step.replica)).unwrap();
        is_one(step.partition, holder)
    });
    ours.map(|step| step.partition).collect()
}

/// Returns all moving partitions that lack a quorum while some devices are behind.
fn lacking(ring: &Ring, behind: &BTreeSet<DeviceId>) -> Vec<Partition> {
    let joint = Term::of(ring.change(), Phase::Joint);
    moving(ring, |at, _| !ring.sets(at, joint).has_quorum(|id| !behind.contains(&id)))
}

/// Returns two devices without which a moving partition lacks a quorum.
fn needed_pair(ring: &Ring, devices: &[DeviceId]) -> [DeviceId; 2] {
    let all = devices.iter().flat_map(|one| devices.iter().map(move |other| [*one, *other]));
    let mut needed = all.filter(|pair| !lacking(ring, &BTreeSet::from(*pair)).is_empty());
    needed.next().unwrap()
}

/// Looks for a partition that lacks a quorum while some devices are behind.
async fn look(known: &mut RingMoves, ring: &Ring, behind: &[DeviceId]) -> Option<Partition> {
    known.of(ring).await.without_quorum(behind.iter().copied().collect()).await
}

#[tokio::test]
async fn each_device_has_its_moves_in_the_order_of_partitions() {
    let mut known = RingMoves::default();
    let drained =
        successor(&small_ring(6), |builder| builder.set_weight(DeviceId(0), 0.0).unwrap());
    for ring in [replaced(), drained, Arc::new(small_ring(5))] {
        let joint = Term::of(ring.change(), Phase::Joint);
        let moves = known.of(&ring).await;
        for device in (0..14).map(DeviceId) {
            let here = moving(&ring, |_, holder| holder == device);
            assert_eq!(moves.moving_to(device), here, "{device}");
            assert_eq!(moves.holders().contains_key(&device), !here.is_empty());
            let mut decided = moving(&ring, |at, _| ring.sets(at, joint).contains(device));
            decided.dedup();
            let found = moves.moves.deciding.get(&device);
            assert_eq!(found.map(Vec::as_slice).unwrap_or_default(), decided, "{device}");
        }
        let count = moves.holders().values().map(Vec::len).sum::<usize>();
        assert_eq!(count, ring.moves().len());
    }
}

#[tokio::test]
async fn a_look_finds_a_partition_without_its_quorums_if_there_is_one() {
    let ring = replaced();
    let (mut some, mut none, mut crowded) = (0, 0, 0);
    for seed in 0..SEEDS {
        let (mut chance, mut known) = (SplitMix::new(seed), RingMoves::default());
        let mut behind = BTreeSet::new();
        for look in 0..LOOKS {
            let mut moves = known.of(&ring).await;
            let devices: Vec<DeviceId> = moves.deciding().collect();
            // A device or two fall behind or come back between two looks.
            let at = usize::try_from(chance.below(devices.len() as u64)).unwrap();
            if chance.below(3) == 0 {
                behind.pop_first();
            }
            if !behind.remove(&devices[at]) && behind.len() < 3 {
                behind.insert(devices[at]);
            }
            let lacking = lacking(&ring, &behind);
            if let Some(partition) = moves.without_quorum(behind.clone()).await {
                assert!(lacking.contains(&partition), "seed {seed}, look {look}: {partition:?}");
                some += 1;
            } else {
                assert!(lacking.is_empty(), "seed {seed}, look {look}: {lacking:?}");
                none += 1;
                crowded += u64::from(behind.len() > 1);
            }
        }
    }
    assert!(some > LOOKS && none > LOOKS && crowded > LOOKS, "{some}, {none}, {crowded}");
}

#[tokio::test]
async fn a_look_visits_only_partitions_of_devices_that_fell_behind_since() {
    let (ring, mut known) = (replaced(), RingMoves::default());
    let devices: Vec<DeviceId> = known.of(&ring).await.deciding().collect();
    let pair = needed_pair(&ring, &devices);
    let both = BTreeSet::from(pair);
    let [first, second] = pair;
    assert_eq!(look(&mut known, &ring, &[first]).await, None);
    let partitions = known.deciding.insert(second, Vec::new()).unwrap();
    assert_eq!(look(&mut known, &ring, &pair).await, None, "those of the first were visited again");
    known.deciding.insert(second, partitions);
    assert_eq!(look(&mut known, &ring, &[first]).await, None);
    let found = look(&mut known, &ring, &pair).await;
    assert!(found.is_some_and(|partition| lacking(&ring, &both).contains(&partition)));
    // The one that was found is looked at first, and every look is by the present devices.
    known.deciding.values_mut().for_each(Vec::clear);
    assert_eq!(look(&mut known, &ring, &pair).await, found);
    assert_eq!(look(&mut known, &ring, &[second]).await, None);
}

#[tokio::test]
async fn another_ring_has_moves_and_looks_of_its_own() {
    let (ring, mut known) = (replaced(), RingMoves::default());
    let devices: Vec<DeviceId> = known.of(&ring).await.deciding().collect();
    let pair = needed_pair(&ring, &devices);
    assert_eq!(look(&mut known, &ring, &pair[..1]).await, None);
    assert!(look(&mut known, &ring, &pair).await.is_some());
    let next = successor(&ring, |builder| {
        builder.add(new_device(13)).unwrap();
    });
    assert!(known.is_of(&ring) && !known.is_of(&next));
    let moves = known.of(&next).await;
    assert_eq!((&moves.moves.spared, moves.moves.lacking), (&BTreeSet::new(), None));
    for device in [DeviceId(12), DeviceId(13)] {
        assert_eq!(moves.moving_to(device), moving(&next, |_, holder| holder == device));
    }
    assert!(!moves.moving_to(DeviceId(13)).is_empty());
    assert!(known.is_of(&next) && !known.is_of(&ring));
    // The same ring, read from its file by another process, is no other one.
    let read = Ring::decode(&next.encode()).unwrap();
    assert!(known.is_of(&read));
}

//! Tests of ring succession (rule P3).

use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::{DeviceId, Partition, Phase, Term};

use crate::builder::Builder;
use crate::builder::rebalance::RebalanceContext;
use crate::ring::{Move, Ring, RingIdentity};
use crate::table::Table;
use crate::testing::{add_zones, builder, device, new_device, rebalance};

const HOUR_MS: u64 = 3_600_000;

fn cluster() -> Builder {
    let mut builder = builder(8, 3.0);
    add_zones(&mut builder, 1..=3, 2, 2);
    builder.set_min_part_hours(1);
    rebalance(&mut builder, 1);
    builder
}

fn grown(builder: &mut Builder, disk: u32, now_ms: u64) -> Ring {
    builder.add(new_device(1, 1, 1, disk, 100.0)).unwrap();
    builder.rebalance(RebalanceContext { now_ms, seed: 2 }).unwrap();
    builder.ring().unwrap()
}

fn refusal(old: &Ring, new: &Ring, is_done: bool) -> String {
    old.check_successor(new, |_| is_done).unwrap_err().to_string()
}

#[test]
fn a_child_follows_its_parent_and_nothing_goes_back() {
    let mut builder = cluster();
    let old = builder.ring().unwrap();
    let new = grown(&mut builder, 50, HOUR_MS);
    old.check_successor(&old, |_| false).unwrap();
    old.check_successor(&new, |_| false).unwrap();
    assert!(refusal(&new, &old, true).contains("older: it has epoch 1, and epoch 2 is in use"));
}

#[test]
fn rings_of_others_are_refused() {
    let ours = cluster().ring().unwrap();
    let mut other = Builder::create(cluster().settings().clone(), [8; 16]).unwrap();
    add_zones(&mut other, 1..=3, 2, 2);
    rebalance(&mut other, 1);
    assert!(refusal(&ours, &other.ring().unwrap(), true).contains("another cluster"));
}

#[test]
fn rings_that_none_could_follow_are_refused() {
    let mut builder = cluster();
    let old = builder.ring().unwrap();
    let mut far = grown(&mut builder, 50, HOUR_MS);
    for epoch in [u64::MAX, RING_AHEAD_MAX + old.epoch() + 1] {
        far.identity.epoch = epoch;
        assert!(refusal(&old, &far, true).contains("no ring could follow it"));
    }
    far.identity.epoch = old.epoch() + 100_000;
    old.check_successor(&far, |_| true).unwrap();
}

#[test]
fn copies_of_a_builder_are_found_out() {
    let (mut one, mut two) = (cluster(), cluster());
    let (mine, theirs) = (grown(&mut one, 50, HOUR_MS), grown(&mut two, 51, HOUR_MS));
    assert!(refusal(&mine, &theirs, true).contains("two rings of epoch 2"));
    let next = grown(&mut two, 52, 3 * HOUR_MS);
    assert!(refusal(&mine, &next, true).contains("made from another ring"));
}

#[test]
fn a_move_under_way_is_neither_forgotten_nor_overtaken() {
    let mut builder = cluster();
    let old = grown(&mut builder, 50, HOUR_MS);
    let mut settled = builder.clone();
    settled.settle().unwrap();
    let settled = settled.ring().unwrap();
    assert!(refusal(&old, &settled, false).contains("only after a clean census"));
    old.check_successor(&settled, |_| true).unwrap();
    // A builder settled too early moves replicas again; a server that knows of open moves refuses.
    builder.settle().unwrap();
    let hasty = grown(&mut builder, 51, 3 * HOUR_MS);
    let moving = old.moves()[0].partition;
    old.check_successor(&hasty, |_| true).unwrap();
    assert!(old.check_successor(&hasty, |partition| partition != moving).is_err());
}

#[test]
fn a_dead_device_is_left_at_once_and_the_earlier_holder_stays_named() {
    let mut builder = cluster();
    let old = grown(&mut builder, 50, HOUR_MS);
    let newcomer = DeviceId(12);
    builder.remove(newcomer, false).unwrap();
    builder.rebalance(RebalanceContext { now_ms: HOUR_MS + 1, seed: 3 }).unwrap();
    let new = builder.ring().unwrap();
    old.check_successor(&new, |_| false).unwrap();
    for step in old.moves() {
        let at = usize::from(step.replica);
        let holder = new.primaries(step.partition).nth(at).unwrap();
        let named = new.previous(step.partition, at);
        if holder == step.previous {
            assert_eq!(named, Some(newcomer), "whoever it comes back to counts as new");
        } else {
            assert_eq!(named, Some(step.previous));
        }
    }
}

#[test]
fn moves_go_on_through_a_larger_part_power() {
    let mut builder = cluster();
    let old = grown(&mut builder, 50, HOUR_MS);
    builder.increase_part_power().unwrap();
    let new = builder.ring().unwrap();
    assert_eq!(new.moves().len(), old.moves().len() * 2);
    old.check_successor(&new, |_| false).unwrap();
    let step = old.moves()[0];
    for half in [0, 1] {
        let child = Partition(step.partition.0 * 2 + half);
        assert_eq!(new.previous(child, usize::from(step.replica)), Some(step.previous));
    }
    assert!(refusal(&new, &old, true).contains("older"));
}

#[test]
fn a_ring_that_was_not_rebalanced_is_not_written() {
    let mut builder = builder(6, 3.0);
    assert!(builder.ring().unwrap_err().to_string().contains("no ring yet"));
    add_zones(&mut builder, 1..=3, 1, 1);
    assert!(builder.ring().is_err());
    rebalance(&mut builder, 1);
    assert!(builder.ring().is_ok());
    builder.set_weight(DeviceId(0), 7.0).unwrap();
    assert!(builder.ring().unwrap_err().to_string().contains("rebalance before writing the ring"));
}

fn index_refusal(old: &Ring, new: &Ring, known: Term) -> String {
    old.check_index_successor(new, known).unwrap_err().to_string()
}

#[test]
fn the_index_goes_by_terms_where_other_rings_go_by_trust() {
    let mut builder = cluster();
    let old = grown(&mut builder, 50, HOUR_MS);
    let moving = Term::of(old.change(), Phase::Joint);
    let over = Term::of(old.change(), Phase::New);
    builder.settle().unwrap();
    let settled = builder.ring().unwrap();
    assert_eq!(settled.change(), old.change(), "nothing is elsewhere");
    assert!(index_refusal(&old, &settled, moving).contains("only after a clean census"));
    for known in [over, Term(over.0 + 4), Term::NONE] {
        old.check_index_successor(&settled, known).unwrap();
    }
    let next = grown(&mut builder, 51, 3 * HOUR_MS);
    assert_eq!(next.change(), old.change() + 1);
    settled.check_index_successor(&next, over).unwrap();
    old.check_index_successor(&next, over).unwrap();
    assert!(old.check_index_successor(&next, moving).is_err());
}

#[test]
fn a_replica_of_the_index_that_moves_on_before_it_arrived_is_refused() {
    let mut builder = cluster();
    let old = grown(&mut builder, 50, HOUR_MS);
    let newcomer = DeviceId(12);
    builder.remove(newcomer, false).unwrap();
    builder.rebalance(RebalanceContext { now_ms: HOUR_MS + 1, seed: 3 }).unwrap();
    let new = builder.ring().unwrap();
    let over = Term::of(old.change(), Phase::New);
    assert!(
        new.moves().iter().any(|step| step.change == new.change() && step.previous != newcomer)
    );
    let refusal = index_refusal(&old, &new, over);
    assert!(refusal.contains("on before its last move was settled"), "{refusal}");
    assert!(refusal.contains("by `reconstruct` from the ring in use"), "{refusal}");
    // After their moves were settled, replicas move from their current holders.
    let mut builder = cluster();
    grown(&mut builder, 50, HOUR_MS);
    builder.settle().unwrap();
    let settled = builder.ring().unwrap();
    builder.remove(newcomer, false).unwrap();
    builder.rebalance(RebalanceContext { now_ms: HOUR_MS + 1, seed: 3 }).unwrap();
    let new = builder.ring().unwrap();
    assert!(new.moves().iter().all(|step| step.previous == newcomer));
    settled.check_index_successor(&new, over).unwrap();
}

#[test]
fn the_index_keeps_its_replicas_and_may_have_more_partitions() {
    let mut builder = cluster();
    let old = builder.ring().unwrap();
    let over = Term::of(old.change(), Phase::New);
    let mut wider = builder.clone();
    wider.set_replicas(3.5).unwrap();
    wider.rebalance(RebalanceContext { now_ms: HOUR_MS, seed: 2 }).unwrap();
    let wider = wider.ring().unwrap();
    old.check_successor(&wider, |_| true).unwrap();
    assert!(index_refusal(&old, &wider, over).contains("which can't be changed"));
    builder.increase_part_power().unwrap();
    let finer = builder.ring().unwrap();
    assert_eq!(finer.change(), old.change(), "nothing is elsewhere");
    old.check_index_successor(&finer, over).unwrap();
    let grown = grown(&mut builder, 50, HOUR_MS);
    old.check_index_successor(&grown, over).unwrap();
}

/// Removes devices, and returns the next ring.
fn without(builder: &mut Builder, gone: &[DeviceId]) -> Ring {
    for id in gone {
        builder.remove(*id, true).unwrap();
    }
    builder.rebalance(RebalanceContext { now_ms: HOUR_MS, seed: 4 }).unwrap();
    builder.ring().unwrap()
}

/// Joint ends when a majority of the old holders has answered, and a device that left never does.
#[test]
fn a_ring_of_the_index_whose_change_could_never_end_is_refused() {
    let builder = cluster();
    let old = builder.ring().unwrap();
    let over = Term::of(old.change(), Phase::New);
    let lost: Vec<DeviceId> = old.primaries(Partition(0)).take(2).collect();
    let both = without(&mut builder.clone(), &lost);
    old.check_successor(&both, |_| true).unwrap();
    for known in [over, Term::NONE] {
        let refusal = index_refusal(&old, &both, known);
        assert!(refusal.contains("could never end"), "{refusal}");
        assert!(refusal.contains("under the same ids"), "{refusal}");
    }
    // One after the other, with or without `settle` between them.
    for settles in [true, false] {
        let mut builder = builder.clone();
        let one = without(&mut builder, &lost[..1]);
        old.check_index_successor(&one, over).unwrap();
        if settles {
            builder.settle().unwrap();
        }
        let two = without(&mut builder, &lost[1..]);
        let over = Term::of(one.change(), Phase::New);
        let moved_to_it = |step: &Move| {
            let at = usize::from(step.replica);
            one.primaries(step.partition).nth(at) == Some(lost[1])
        };
        if settles || !one.moves().iter().any(moved_to_it) {
            one.check_index_successor(&two, over).unwrap();
        } else {
            assert!(index_refusal(&one, &two, over).contains("on before its last move"));
        }
    }
}

/// The parent is compared for consecutive epochs alone, and the holders for consecutive changes.
#[test]
fn rings_of_another_builder_are_found_out_by_their_holders() {
    let (mut one, mut two) = (cluster(), cluster());
    let mine = grown(&mut one, 50, HOUR_MS);
    let over = Term::of(mine.change(), Phase::New);
    two.add(new_device(1, 2, 1, 60, 100.0)).unwrap();
    two.rebalance(RebalanceContext { now_ms: HOUR_MS, seed: 2 }).unwrap();
    two.settle().unwrap();
    two.increase_part_power().unwrap();
    let theirs = two.ring().unwrap();
    assert_eq!((theirs.change(), theirs.epoch()), (mine.change(), mine.epoch() + 2));
    mine.check_successor(&theirs, |_| true).unwrap();
    let refusal = index_refusal(&mine, &theirs, over);
    assert!(refusal.contains("made from another ring"), "{refusal}");
    // Their next ring begins a change, from holders that aren't these.
    let theirs = grown(&mut two, 61, 3 * HOUR_MS);
    assert_eq!(theirs.change(), mine.change() + 1);
    mine.check_successor(&theirs, |_| true).unwrap();
    assert!(mine.check_index_successor(&theirs, over).is_err());
    // Once they have settled it, no ring names the holders from which it moved.
    two.settle().unwrap();
    mine.check_index_successor(&two.ring().unwrap(), over).unwrap();
    // A process that missed rings of its own builder follows.
    one.settle().unwrap();
    one.increase_part_power().unwrap();
    mine.check_index_successor(&one.ring().unwrap(), over).unwrap();
    mine.check_index_successor(&grown(&mut one, 62, 3 * HOUR_MS), over).unwrap();
}

/// Devices refuse requests by a ring of an earlier change, so its users would reach none of them.
#[test]
fn p3_a_later_ring_of_an_earlier_change_is_refused() {
    let mut builder = cluster();
    let mut copy = builder.clone();
    grown(&mut builder, 50, HOUR_MS);
    builder.settle().unwrap();
    let mine = builder.ring().unwrap();
    for _ in 0..4 {
        copy.increase_part_power().unwrap();
    }
    let theirs = copy.ring().unwrap();
    assert!(theirs.epoch() > mine.epoch() && theirs.change() < mine.change());
    let over = Term::of(mine.change(), Phase::New);
    for refusal in [refusal(&mine, &theirs, true), index_refusal(&mine, &theirs, over)] {
        assert!(refusal.contains("an old copy of the builder"), "{refusal}");
        assert!(refusal.contains("by `reconstruct` from that ring"), "{refusal}");
    }
    // Rings of one builder keep their change or begin the next, however many a process missed.
    for disk in 51..54 {
        let next = grown(&mut builder, disk, u64::from(disk) * HOUR_MS);
        builder.settle().unwrap();
        mine.check_successor(&next, |_| true).unwrap();
    }
}

/// A ring of 2^20 partitions on three of four devices, with moves of one replica of each.
fn large(epoch: u64, change: u64, primaries: [u16; 3], moves: Option<(u8, u32)>) -> Ring {
    const POWER: u8 = 20;
    let mut table = Table::empty(POWER, 3, 1 << POWER);
    for partition in 0..table.parts() {
        table.row_mut(partition).copy_from_slice(&primaries);
    }
    let moves = moves.map(|(replica, previous)| {
        let previous = DeviceId(previous);
        let step = |at| Move { partition: Partition(at), replica, previous, change };
        (0..table.parts()).map(step).collect()
    });
    let small = cluster().ring().unwrap();
    let identity = RingIdentity { epoch, change, parent: [0; 32], ..small.identity().clone() };
    let devices = (0..4).map(|id| device(id, 1, id, "n")).collect();
    Ring::from_parts(identity, devices, table, moves.unwrap_or_default()).unwrap()
}

/// Of a million moves, each is found by its partition. If each were looked for among all, this test
/// would take an hour.
#[test]
fn the_successor_of_a_ring_with_many_moves_is_judged_in_one_pass() {
    let old = large(10, 7, [3, 1, 2], Some((0, 0)));
    let settled = large(12, 7, [3, 1, 2], None);
    let next = large(14, 8, [3, 0, 2], Some((1, 1)));
    let over = Term::of(7, Phase::New);
    old.check_index_successor(&settled, over).unwrap();
    old.check_index_successor(&next, over).unwrap();
    assert!(index_refusal(&old, &settled, Term::of(7, Phase::Joint)).contains("handing over"));
}

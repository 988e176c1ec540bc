//! Tombstones that are collected, and conditions that keep them.

use martlet_protocol::backend::{EntryWrite, RegisterDrop};
use martlet_protocol::entry::Value;
use martlet_protocol::{BackendExt, Phase, Term};

use super::*;
use crate::change::RingChange;
use crate::run_once;
use crate::testing::growth::key_of;
use crate::testing::multi_node::{MultiNodeWorld, key};

mod history;
mod interleavings;
mod late;
mod listed;
mod promises;
mod requests;

const AGE_MS: u64 = 60_000;

fn worker(world: &MultiNodeWorld) -> Collect {
    let options = CollectOptions { age_ms: AGE_MS };
    Collect::new(world.shared.clone(), world.clock.clone(), DeviceScope::All, options)
}

async fn run(world: &MultiNodeWorld) -> StepProgress {
    run_once(&mut worker(world)).await.unwrap()
}

fn delete(world: &MultiNodeWorld, key: &RegisterKey) -> EntryWrite {
    let mut write = world.write(key);
    write.entry.value = Value::Tombstone;
    write
}

/// Deletes keys everywhere, and waits for the reclaim age.
async fn world_of_deleted(count: u64) -> MultiNodeWorld {
    let world = MultiNodeWorld::new(5);
    delete_in(&world, count).await;
    world
}

/// Deletes keys everywhere, and waits for the reclaim age.
async fn delete_in(world: &MultiNodeWorld, count: u64) {
    for number in 0..count {
        let key = key_of(number);
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
        world.write_on(&world.primaries(&key), &delete(world, &key)).await;
    }
    world.clock.advance_ms(AGE_MS + 1000);
}

/// Number of devices that hold anything of a key.
async fn holders(world: &MultiNodeWorld, key: &RegisterKey) -> usize {
    let mut count = 0;
    for id in (0..5).map(DeviceId) {
        let node = world.memory(id);
        let held = node.holdings(id, std::slice::from_ref(key)).await;
        count += usize::from(held.is_ok_and(|held| held[0].held.is_some()));
    }
    count
}

#[tokio::test]
async fn old_tombstones_that_all_primaries_hold_go_and_nothing_else() {
    let world = world_of_deleted(300).await;
    let (young, live) = (key_of(1000), key_of(1001));
    world.write_on(&world.primaries(&young), &delete(&world, &young)).await;
    world.write_on(&world.primaries(&live), &world.write(&live)).await;
    let progress = run(&world).await;
    assert_eq!((progress.done, progress.kept, progress.backlog), (300, 0, 0));
    for number in 0..300 {
        assert_eq!(holders(&world, &key_of(number)).await, 0);
    }
    assert_eq!((holders(&world, &young).await, holders(&world, &live).await), (3, 3));
    assert_eq!(run(&world).await.done, 0);
}

#[tokio::test]
async fn any_silent_device_of_the_ring_keeps_all_of_them() {
    let world = world_of_deleted(3).await;
    for silent in (0..5).map(DeviceId) {
        world.memory(silent).set_offline(silent, true);
        let progress = run(&world).await;
        assert_eq!(progress.done, 0, "without device {silent}");
        world.memory(silent).set_offline(silent, false);
    }
    world.wipe(DeviceId(1)).await;
    assert_eq!(run(&world).await.done, 0, "without its vote");
    world.memory(DeviceId(1)).set_voting(DeviceId(1), true).await.unwrap();
    // First the workers that compare devices restore its lost registers.
    let progress = run(&world).await;
    assert!(progress.kept > 0, "{progress:?}");
}

/// A node that was away for longer than the reclaim age holds objects deleted meanwhile. No
/// tombstone was collected without the node, so it receives the deletes.
#[tokio::test]
async fn a_device_away_beyond_the_reclaim_age_restores_no_deleted_object() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let primaries = world.primaries(&key);
    world.write_on(&primaries, &world.write(&key)).await;
    world.memory(primaries[0]).set_offline(primaries[0], true);
    let gone = delete(&world, &key);
    world.write_on(&primaries[1..], &gone).await;
    for _ in 0..5 {
        world.clock.advance_ms(AGE_MS);
        assert_eq!(run(&world).await.done, 0);
    }
    world.memory(primaries[0]).set_offline(primaries[0], false);
    let progress = run(&world).await;
    assert_eq!(progress.done, 0, "it holds an older copy");
    world.write_on(&primaries[..1], &gone).await;
    assert_eq!(run(&world).await.done, 1);
    assert_eq!(holders(&world, &key).await, 0);
}

#[tokio::test]
async fn hints_and_copies_elsewhere_keep_a_tombstone() {
    let world = world_of_deleted(1).await;
    let key = key_of(0);
    let handoff = world.handoff(&key);
    world.keep_on(handoff, &world.write(&key)).await;
    assert_eq!(run(&world).await.done, 0);
    let memory = world.memory(handoff);
    memory.forget_hint(handoff, &key, Stamp::at_ms(u64::MAX >> 16)).await.unwrap();
    let mut old = world.write(&key);
    old.entry.order = Stamp::at_ms(1);
    old.mode = martlet_protocol::register::WriteMode::Repair;
    world.write_on(&[handoff], &old).await;
    assert_eq!(run(&world).await.done, 0);
    let up_to = old.entry.order;
    let drop = RegisterDrop { key: key.clone(), up_to, collectable: false };
    memory.drop_registers(handoff, &[drop]).await.unwrap();
    assert_eq!(run(&world).await.done, 1);
}

#[tokio::test]
async fn while_replicas_move_tombstones_stay() {
    let world = MultiNodeWorld::new(4);
    let mut change = RingChange::new(world.shared.clone(), world.clock.clone(), DeviceScope::All);
    run_once(&mut change).await.unwrap();
    for number in 0..100 {
        let key = key_of(number);
        world.write_on(&world.primaries(&key), &delete(&world, &key)).await;
    }
    world.grow(4).await;
    let new = DeviceId(4);
    world.memory(new).set_voting(new, true).await.unwrap();
    world.clock.advance_ms(AGE_MS + 1000);
    world.memory(new).raise_term(new, Term::of(1, Phase::New)).await.unwrap();
    let moved = world.key_moving_to(new);
    let progress = run(&world).await;
    assert!(progress.done > 0 && progress.kept > 0, "{progress:?}");
    let moving = (0..100).map(key_of).filter(|key| world.primaries(key).contains(&new));
    assert_eq!(progress.done, 100 - moving.count() as u64, "{moved:?} and others like it stay");
    // Moved registers are on the new holder too, or were dropped: either way the change ends.
    run_once(&mut change).await.unwrap();
    for device in (0..5).map(DeviceId) {
        let term = Term::of(world.index().change(), Phase::New);
        assert_eq!(world.term_of(device).await, term);
    }
}

/// A worker that dies after marking leaves marks that no walk returns: the first pass of the next
/// worker finds them.
#[tokio::test]
async fn marks_that_were_left_behind_are_found_after_a_restart() {
    let world = world_of_deleted(2).await;
    let key = key_of(0);
    let order = world.read_on(world.primaries(&key)[0], &key).await.unwrap().order;
    for device in world.primaries(&key) {
        let node = world.memory(device);
        node.mark_collectable(device, &[(key.clone(), order)]).await.unwrap();
    }
    let first = world.primaries(&key)[0];
    let drop = RegisterDrop { key: key.clone(), up_to: order, collectable: true };
    world.memory(first).drop_registers(first, &[drop]).await.unwrap();
    assert_eq!(holders(&world, &key).await, 2);
    run(&world).await;
    assert_eq!(holders(&world, &key).await, 0);
}

#[tokio::test]
async fn a_write_that_comes_after_the_mark_stays() {
    let world = world_of_deleted(1).await;
    let key = key_of(0);
    let primaries = world.primaries(&key);
    let order = world.read_on(primaries[0], &key).await.unwrap().order;
    for device in &primaries {
        let node = world.memory(*device);
        node.mark_collectable(*device, &[(key.clone(), order)]).await.unwrap();
    }
    let anew = world.write(&key);
    world.write_on(&primaries[..2], &anew).await;
    assert_eq!(run(&world).await.done, 0);
    assert_eq!(world.read_on(primaries[0], &key).await, Some(anew.entry));
}

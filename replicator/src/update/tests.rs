//! Deliveries, forgotten hints, and conditions that keep hints.

use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::backend::{CallKind, EntryWrite, Want};
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{Backend, BackendExt, Entry, ManualClock, Phase, Term};

use super::*;
use crate::run_once;
use crate::testing::growth::key_of;
use crate::testing::multi_node::{MultiNodeWorld, key, ring};

fn worker(world: &MultiNodeWorld) -> Update {
    Update::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

mod waiting;

async fn run(world: &MultiNodeWorld) -> StepProgress {
    run_once(&mut worker(world)).await.unwrap()
}

/// Returns the entry of each primary.
async fn held(world: &MultiNodeWorld, key: &RegisterKey) -> Vec<Option<Entry>> {
    let mut all = Vec::new();
    for device in world.primaries(key) {
        all.push(world.held(device, key).await.entry);
    }
    all
}

fn order(entry: Option<&Entry>) -> Stamp {
    entry.map_or(Stamp::ZERO, |entry| entry.order)
}

#[tokio::test]
async fn hints_are_delivered_to_all_primaries_and_forgotten() {
    let world = MultiNodeWorld::new(5);
    let mut hints = Vec::new();
    for number in 0..3 * BATCH {
        let key = key(&format!("k{number}"));
        let hint = EntryWrite { keep_body: number % 2 == 0, ..world.inline(&key) };
        world.keep_on(world.handoff(&key), &hint).await;
        hints.push(hint);
    }
    let progress = run(&world).await;
    let count = hints.len() as u64;
    assert_eq!((progress.items, progress.done, progress.backlog), (count, count, 0));
    assert_eq!(world.hints().await, 0);
    for hint in hints {
        for device in world.primaries(&hint.key) {
            let view =
                world.memory(device).read(device, &hint.key, Want::EntryAndInline, Term::ANY).await;
            let view = view.unwrap();
            assert_eq!((view.entry.as_ref(), &view.inline), (Some(&hint.entry), &hint.inline));
        }
    }
}

#[tokio::test]
async fn silence_of_one_primary_keeps_a_hint_until_it_returns() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let hint = world.write(&key);
    world.keep_on(world.handoff(&key), &hint).await;
    let out = world.primaries(&key)[1];
    world.memory(out).set_offline(out, true);
    let mut update = worker(&world);
    for kept in [1, 0, 0] {
        world.clock.advance_ms(1000);
        let progress = run_once(&mut update).await.unwrap();
        assert_eq!((progress.done, progress.kept, progress.backlog), (0, kept, 1));
        assert!(progress.oldest_age_ms >= 1000, "{progress:?}");
        assert_eq!(world.hints().await, 1);
    }
    for device in world.primaries(&key).into_iter().filter(|device| *device != out) {
        assert_eq!(
            world.read_on(device, &key).await,
            Some(hint.entry.clone()),
            "the others have it"
        );
    }
    world.memory(out).set_offline(out, false);
    let progress = run_once(&mut update).await.unwrap();
    assert_eq!((progress.done, progress.backlog, progress.oldest_age_ms), (1, 0, 0));
    assert_eq!(world.hints().await, 0);
    assert_eq!(world.read_on(out, &key).await, Some(hint.entry));
}

#[tokio::test]
async fn a_newer_write_wins_over_a_hint() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let (hint, newer) = (world.write(&key), world.write(&key));
    world.keep_on(world.handoff(&key), &hint).await;
    world.write_on(&world.primaries(&key), &newer).await;
    assert_eq!(run(&world).await.done, 1);
    assert_eq!(world.hints().await, 0);
    assert_eq!(held(&world, &key).await, vec![Some(newer.entry); 3]);
}

#[tokio::test]
async fn a_promise_in_the_way_leads_to_an_identity_round() {
    for promised in 1..=3 {
        let world = MultiNodeWorld::new(5);
        let key = key("k");
        let hint = world.inline(&key);
        let older = world.primaries(&key);
        world.keep_on(world.handoff(&key), &hint).await;
        world.clock.advance_ms(1);
        world.promise_on(&older[..promised], &key, world.stamps.issue()).await;
        assert_eq!(run(&world).await.done, 1);
        assert_eq!(world.hints().await, 0);
        let held = held(&world, &key).await;
        assert!(held.iter().all(|entry| *entry == held[0]), "{held:?}");
        let entry = held[0].as_ref().unwrap();
        assert_eq!((entry.write_id, &entry.value), (hint.entry.write_id, &hint.entry.value));
        assert!(entry.order > hint.entry.order);
        let device = world.primaries(&key)[0];
        assert_eq!(world.held(device, &key).await.inline, hint.inline);
    }
}

#[tokio::test]
async fn an_identity_round_finishes_what_is_newer_and_the_hint_is_superseded() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let (hint, newer) = (world.write(&key), world.write(&key));
    let primaries = world.primaries(&key);
    world.keep_on(world.handoff(&key), &hint).await;
    world.write_on(&primaries[..1], &newer).await;
    world.clock.advance_ms(1);
    world.promise_on(&primaries, &key, world.stamps.issue()).await;
    assert_eq!(run(&world).await.done, 1);
    for entry in held(&world, &key).await {
        assert_eq!(entry.unwrap().write_id, newer.entry.write_id);
    }
}

#[tokio::test]
async fn a_quorum_that_can_be_settled_is_and_the_hint_waits_for_the_rest() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let hint = world.write(&key);
    let primaries = world.primaries(&key);
    world.keep_on(world.handoff(&key), &hint).await;
    world.clock.advance_ms(1);
    world.promise_on(&primaries, &key, world.stamps.issue()).await;
    world.memory(primaries[2]).set_offline(primaries[2], true);
    let mut update = worker(&world);
    assert_eq!(run_once(&mut update).await.unwrap().kept, 1);
    let settled = held_by(&world, &primaries[..2], &key).await;
    assert!(settled.iter().all(|entry| entry.as_ref().unwrap().write_id == hint.entry.write_id));
    // The next pass has nothing to settle.
    assert_eq!(run_once(&mut update).await.unwrap().backlog, 1);
    assert_eq!(held_by(&world, &primaries[..2], &key).await, settled);
    world.memory(primaries[1]).set_offline(primaries[1], true);
    assert_eq!(run_once(&mut update).await.unwrap().backlog, 1);
    for device in &primaries[1..] {
        world.memory(*device).set_offline(*device, false);
    }
    run_once(&mut update).await.unwrap();
    assert_eq!(world.hints().await, 0);
    let all = held(&world, &key).await;
    assert!(all.iter().all(|entry| order(entry.as_ref()) >= order(settled[0].as_ref())), "{all:?}");
}

async fn held_by(
    world: &MultiNodeWorld,
    devices: &[DeviceId],
    key: &RegisterKey,
) -> Vec<Option<Entry>> {
    let mut all = Vec::new();
    for device in devices {
        all.push(world.read_on(*device, key).await);
    }
    all
}

#[tokio::test]
async fn a_newer_hint_that_came_meanwhile_stays() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let (hint, newer) = (world.write(&key), world.write(&key));
    let handoff = world.handoff(&key);
    world.keep_on(handoff, &hint).await;
    let update = worker(&world);
    let cluster = world.step();
    let page = world.memory(handoff).hints(handoff, None, 10).await.unwrap();
    world.keep_on(handoff, &newer).await;
    update.page(&cluster, handoff, &page).await;
    assert_eq!(world.memory(handoff).hints(handoff, None, 10).await.unwrap()[0].entry, newer.entry);
}

#[tokio::test]
async fn a_primary_without_a_vote_holds_what_it_is_brought() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let hint = world.write(&key);
    world.keep_on(world.handoff(&key), &hint).await;
    world.wipe(world.primaries(&key)[0]).await;
    assert_eq!(run(&world).await.done, 1);
    assert_eq!(held(&world, &key).await, vec![Some(hint.entry); 3]);
}

#[tokio::test]
async fn each_process_looks_after_its_own_nodes() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let handoff = world.handoff(&key);
    world.keep_on(handoff, &world.write(&key)).await;
    let with = |scope| Update::new(world.shared.clone(), world.clock.clone(), scope);
    let others = (0..5).filter(|id| *id != handoff.0).map(|id| format!("n{id}")).collect();
    assert_eq!(run_once(&mut with(DeviceScope::Nodes(others))).await.unwrap().items, 0);
    assert_eq!(run_once(&mut with(DeviceScope::Nodes(Vec::new()))).await.unwrap().items, 0);
    let own = DeviceScope::Nodes(vec![format!("n{}", handoff.0)]);
    assert_eq!(run_once(&mut with(own)).await.unwrap().done, 1);
}

#[tokio::test]
async fn a_newer_ring_is_followed_from_the_next_step_on() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let hint = world.write(&key);
    let before = world.primaries(&key);
    world.keep_on(world.handoff(&key), &hint).await;
    world.memory(before[0]).set_offline(before[0], true);
    let mut update = worker(&world);
    run_once(&mut update).await.unwrap();
    assert_eq!(world.hints().await, 1);
    // The device that is out for good leaves the ring.
    let index = Arc::new(ring((0..5).filter(|id| *id != before[0].0)));
    world.edit(|parts| parts.index = index);
    world.memory(before[0]).set_offline(before[0], false);
    run_once(&mut update).await.unwrap();
    assert_eq!(world.hints().await, 0);
    assert_eq!(held(&world, &key).await, vec![Some(hint.entry); 3]);
}

#[tokio::test]
async fn devices_with_a_hint_get_no_writes_while_another_is_silent() {
    let writes = Arc::new(AtomicUsize::new(0));
    let (count, clock) = (writes.clone(), Arc::new(ManualClock::at(1_000_000_000)));
    let world = MultiNodeWorld::wrapped(5, clock, move |_, memory| {
        let count = count.clone();
        Arc::new(FaultyBackend::new(memory, move |call| {
            count.fetch_add(usize::from(call.op == CallKind::Write), Ordering::Relaxed);
            Fault::None
        }))
    });
    let out = DeviceId(1);
    let keys = (0..).map(|number| key(&format!("k{number}")));
    let keys: Vec<_> = keys.filter(|key| world.primaries(key).contains(&out)).take(200).collect();
    for key in &keys {
        world.keep_on(world.handoff(key), &world.write(key)).await;
    }
    world.memory(out).set_offline(out, true);
    let mut update = worker(&world);
    run_once(&mut update).await.unwrap();
    assert!(writes.load(Ordering::Relaxed) >= 400);
    for _ in 0..5 {
        writes.store(0, Ordering::Relaxed);
        assert_eq!(run_once(&mut update).await.unwrap().backlog, 200);
        assert_eq!(writes.load(Ordering::Relaxed), 0, "writes for nothing");
    }
    world.memory(out).set_offline(out, false);
    assert_eq!(run_once(&mut update).await.unwrap().done, 200);
    for key in &keys {
        assert_eq!(held(&world, key).await.iter().flatten().count(), 3);
    }
}

#[tokio::test]
async fn a_hint_reaches_no_device_before_it_is_a_member() {
    let world = MultiNodeWorld::new(5);
    world.grow(5).await;
    let joins = DeviceId(5);
    let hint = world.inline(&world.key_moving_to(joins));
    let members: Vec<DeviceId> = world.step().sets(hint.key.placement()).members().collect();
    assert!(!members.contains(&joins), "the change hasn't begun");
    let handoff = (0..5).map(DeviceId).find(|id| !members.contains(id)).unwrap();
    world.keep_on(handoff, &hint).await;
    let progress = run(&world).await;
    assert_eq!((progress.done, world.hints().await), (1, 0));
    for member in members {
        assert_eq!(world.held(member, &hint.key).await.entry.as_ref(), Some(&hint.entry));
    }
    assert_eq!(
        world.held(joins, &hint.key).await.entry,
        None,
        "it copies the register as it joins"
    );
}

#[tokio::test]
async fn a2_a_hint_stays_without_the_ring_of_a_change_in_progress() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let hint = world.write(&key);
    world.keep_on(world.handoff(&key), &hint).await;
    world.shared.raise_term(Term::of(world.index().change() + 1, Phase::Joint));
    let progress = run(&world).await;
    assert_eq!((progress.done, progress.kept, world.hints().await), (0, 1, 1));
    assert_eq!(held(&world, &key).await, vec![None; 3], "they may be members no more");
    world.grow(5).await;
    assert_eq!((run(&world).await.done, world.hints().await), (1, 0));
}

/// Makes a hint at a handoff, and raises the term of all devices without a word to this process.
async fn hinted_at(world: &MultiNodeWorld, term: Term) -> EntryWrite {
    let hint = world.write(&key("k"));
    world.keep_on(world.handoff(&hint.key), &hint).await;
    for device in world.devices() {
        world.memory(device).raise_term(device, term).await.unwrap();
    }
    hint
}

/// Its machine was cut off while a ring change took its devices out of the ring: tombstones of what the
/// hint holds may have been collected.
#[tokio::test]
async fn t1_a_hint_is_refused_by_members_of_a_change_that_its_process_lacks() {
    let world = MultiNodeWorld::new(5);
    let hint = hinted_at(&world, Term::of(world.index().change() + 1, Phase::Joint)).await;
    for _ in 0..2 {
        let progress = run(&world).await;
        assert_eq!((progress.done, progress.kept, world.hints().await), (0, 1, 1));
        assert_eq!(held(&world, &hint.key).await, vec![None; 3]);
        assert!(world.step().is_behind(), "the refusals name the term");
    }
    world.grow(5).await;
    assert_eq!((run(&world).await.done, world.hints().await), (1, 0));
}

#[tokio::test]
async fn a_process_that_knows_no_term_learns_it_from_refusals_and_delivers() {
    let world = MultiNodeWorld::new(5);
    let term = world.index().last_term();
    let hint = hinted_at(&world, term).await;
    assert_eq!(world.step().term(), Term::NONE);
    let primaries = world.primaries(&hint.key);
    let out = primaries[2];
    world.memory(out).set_offline(out, true);
    let mut update = worker(&world);
    assert_eq!(run_once(&mut update).await.unwrap().kept, 1);
    assert_eq!(world.step().term(), term);
    // The silence of one device is no reason to leave those out that refused.
    update.silent.lock().insert(out);
    assert_eq!(run_once(&mut update).await.unwrap().kept, 1);
    for device in &primaries[..2] {
        assert_eq!(world.read_on(*device, &hint.key).await.as_ref(), Some(&hint.entry));
    }
    world.memory(out).set_offline(out, false);
    assert_eq!((run_once(&mut update).await.unwrap().done, world.hints().await), (1, 0));
}

/// A disk that was put back keeps its hints until it has begun anew.
#[tokio::test]
async fn g1_hints_of_a_device_that_may_not_use_its_votes_are_not_delivered() {
    let world = MultiNodeWorld::new(5);
    let hint = world.write(&key("k"));
    let handoff = world.handoff(&hint.key);
    world.keep_on(handoff, &hint).await;
    world.memory(handoff).set_voting(handoff, false).await.unwrap();
    let mut update = worker(&world);
    for _ in 0..2 {
        assert_eq!(run_once(&mut update).await.unwrap().done, 0);
        assert_eq!(held(&world, &hint.key).await, vec![None; 3]);
        assert_eq!(world.memory(handoff).devices().await.unwrap()[0].hints, 1);
    }
    world.memory(handoff).set_voting(handoff, true).await.unwrap();
    assert_eq!((run_once(&mut update).await.unwrap().done, world.hints().await), (1, 0));
}

#[tokio::test]
async fn a_silent_new_holder_delays_no_hint_of_a_member_that_returns() {
    let world = MultiNodeWorld::new(6);
    world.drain(DeviceId(0));
    let members = |key: &RegisterKey| -> Vec<DeviceId> {
        world.step().sets(key.placement()).members().collect()
    };
    // The change hasn't begun: one primary of this register is no member yet.
    let joins_in = |key: &RegisterKey| {
        let members = members(key);
        world.primaries(key).into_iter().find(|device| !members.contains(device))
    };
    let moving = (0..10_000).map(key_of).find(|key| joins_in(key).is_some()).unwrap();
    let (joins, out) = (joins_in(&moving).unwrap(), members(&moving)[0]);
    // Devices without the register keep the hints. The silence of the new holder is met first.
    let others = (0..6).map(DeviceId).filter(|id| *id != joins && !members(&moving).contains(id));
    let keepers: Vec<DeviceId> = others.collect();
    let decides =
        |key: &RegisterKey| members(key).contains(&joins) && !members(key).contains(&keepers[0]);
    let decided = (0..10_000).map(key_of).find(decides).unwrap();
    let hint = world.write(&moving);
    world.keep_on(keepers[0], &world.write(&decided)).await;
    world.keep_on(keepers[1], &hint).await;
    for device in [joins, out] {
        world.memory(device).set_offline(device, true);
    }
    let mut update = worker(&world);
    assert_eq!(run_once(&mut update).await.unwrap().kept, 2);
    world.memory(out).set_offline(out, false);
    let progress = run_once(&mut update).await.unwrap();
    assert_eq!((progress.done, progress.backlog, world.hints().await), (1, 1, 1));
    assert_eq!(world.read_on(out, &moving).await, Some(hint.entry));
}

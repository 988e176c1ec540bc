//! Registers that hold only promises, left by ballots that found nothing.

use super::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Number of rows on all devices, including rows with only a promise.
async fn rows(world: &MultiNodeWorld) -> usize {
    let mut count = 0;
    for id in (0..5).map(DeviceId) {
        let all = BackendExt::registers(&*world.memory(id), id, None, usize::MAX).await.unwrap();
        count += all.len();
    }
    count
}

async fn promise(world: &MultiNodeWorld, key: &RegisterKey) {
    let ballot = world.stamps.issue();
    world.promise_on(&world.primaries(key), key, ballot).await;
}

#[tokio::test]
async fn only_unusable_promises_are_removed() {
    let world = MultiNodeWorld::new(5);
    for number in 0..10_000 {
        promise(&world, &key_of(number)).await;
    }
    let (live, young) = (key_of(20_000), key_of(20_001));
    promise(&world, &live).await;
    world.write_on(&world.primaries(&live)[..1], &world.write(&live)).await;
    assert_eq!(rows(&world).await, 30_003);
    world.clock.advance_ms(8 * DAY_MS);
    promise(&world, &young).await;
    assert_eq!(run(&world).await.done, 10_000);
    assert_eq!(rows(&world).await, 6);
    assert!(world.read_on(world.primaries(&live)[0], &live).await.is_some());
}

#[tokio::test]
async fn a_promise_stays_while_a_ballot_below_it_may_still_be_taken() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    promise(&world, &key).await;
    world.clock.advance_ms(FIRST_HAND_AGE_MS_MAX);
    assert_eq!((run(&world).await.done, rows(&world).await), (0, 3));
    world.clock.advance_ms(PROMISE_AGE_MS);
    assert_eq!((run(&world).await.done, rows(&world).await), (1, 0));
}

#[tokio::test]
async fn any_silent_device_keeps_promises_and_so_does_a_hint() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    promise(&world, &key).await;
    let handoff = world.handoff(&key);
    world.clock.advance_ms(DAY_MS);
    for silent in (0..5).map(DeviceId) {
        world.memory(silent).set_offline(silent, true);
        assert_eq!(run(&world).await.done, 0, "without device {silent}");
        world.memory(silent).set_offline(silent, false);
    }
    world.keep_on(handoff, &world.write(&key)).await;
    assert_eq!(run(&world).await.done, 0, "a hint is to be delivered");
    let up_to = Stamp::at_ms(u64::MAX >> 16);
    world.memory(handoff).forget_hint(handoff, &key, up_to).await.unwrap();
    assert_eq!((run(&world).await.done, rows(&world).await), (1, 0));
}

/// One worker runs for days: it looks for promises once a day.
#[tokio::test]
async fn a_worker_that_goes_on_looks_for_promises_every_day() {
    let world = MultiNodeWorld::new(5);
    let mut worker = worker(&world);
    run_once(&mut worker).await.unwrap();
    run_once(&mut worker).await.unwrap();
    promise(&world, &key("k")).await;
    world.clock.advance_ms(DAY_MS);
    run_once(&mut worker).await.unwrap();
    run_once(&mut worker).await.unwrap();
    assert_eq!(rows(&world).await, 0);
}

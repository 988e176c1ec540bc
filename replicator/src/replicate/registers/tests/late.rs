//! Drops of strays that come late: after the next ring change, or after minutes (rules P1, P3).

use std::sync::OnceLock;

use futures::FutureExt;
use martlet_topology::Topology;

use super::*;
use crate::testing::delayed::DelayedCalls;

/// A stray that all primaries hold, whose drop is on its way.
async fn drop_under_way() -> (MultiNodeWorld, DelayedCalls, DeviceId, EntryWrite) {
    let (world, delayed) = DelayedCalls::world(4);
    let stray = world.inline(&key("stray"));
    let device = world.handoff(&stray.key);
    let mut holders = world.primaries(&stray.key);
    holders.push(device);
    world.write_on(&holders, &stray).await;
    delayed.delay(Some("drop-"));
    run(&world).await;
    delayed.delay(None);
    assert!(world.held(device, &stray.key).await.entry.is_some());
    (world, delayed, device, stray)
}

/// Delivers the drops; returns the kinds of their errors.
async fn refusals(world: &MultiNodeWorld, delayed: &DelayedCalls) -> Vec<ErrorKind> {
    let outcomes = delayed.deliver(world).await;
    outcomes.into_iter().filter_map(|outcome| outcome.err().map(|error| error.kind())).collect()
}

#[tokio::test]
async fn a_drop_of_an_earlier_term_leaves_a_device_that_is_a_member_again_its_registers() {
    let (world, delayed, device, stray) = drop_under_way().await;
    // The next ring makes the device a member. The device has the ring's term before it joins.
    world.memory(device).raise_term(device, Term(world.step().term().0 + 1)).await.unwrap();
    for primary in world.primaries(&stray.key) {
        let gone =
            RegisterDrop { key: stray.key.clone(), up_to: stray.entry.order, collectable: false };
        world.memory(primary).drop_registers(primary, &[gone]).await.unwrap();
    }
    assert_eq!(refusals(&world, &delayed).await, [ErrorKind::Conflict]);
    let held = world.held(device, &stray.key).await;
    assert_eq!((held.entry, held.inline), (Some(stray.entry), stray.inline), "the last copy");
}

#[tokio::test]
async fn a_drop_that_comes_after_minutes_is_refused_and_one_in_time_is_executed() {
    let (world, delayed, device, stray) = drop_under_way().await;
    world.clock.advance_ms(5 * 60_000);
    assert_eq!(refusals(&world, &delayed).await, [ErrorKind::Unavailable]);
    assert!(world.held(device, &stray.key).await.entry.is_some());

    let (world, delayed, device, stray) = drop_under_way().await;
    world.clock.advance_ms(60_000);
    assert_eq!(refusals(&world, &delayed).await, []);
    assert!(world.held(device, &stray.key).await.entry.is_none());
}

#[tokio::test]
async fn a_drop_names_the_term_by_which_the_device_was_no_member() {
    let (shared, asked) = (Arc::new(OnceLock::<Topology>::new()), Arc::new(Mutex::new(0)));
    let topology = shared.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |id, memory| {
        let (topology, asked, node) = (topology.clone(), asked.clone(), memory.clone());
        Arc::new(FaultyBackend::new(memory, move |call| {
            if call.op == CallKind::Holdings {
                *asked.lock() += 1;
            }
            // The four replies about the page are there: a ring change begins before those about the drops.
            if *asked.lock() >= 5 {
                let term = Term(1);
                topology.get().expect("the world is complete").raise_term(term);
                node.raise_term(id, term).now_or_never().expect("memory is at hand").unwrap();
            }
            Fault::None
        }))
    });
    assert!(shared.set(world.shared.clone()).is_ok(), "set once");
    assert!(world.step().term() < Term(1));
    let stray = world.inline(&key("stray"));
    let device = world.handoff(&stray.key);
    world.write_on(&world.primaries(&stray.key), &stray).await;
    world.write_on(&[device], &stray).await;
    run(&world).await;
    assert_eq!(world.term_of(device).await, Term(1), "the change has begun");
    assert!(world.held(device, &stray.key).await.entry.is_some(), "it may be a member now");
}

/// A worker of the node of a device.
fn worker_of(world: &MultiNodeWorld, device: DeviceId) -> ReplicateRegisters {
    let scope = DeviceScope::Nodes(vec![format!("n{}", device.0)]);
    ReplicateRegisters::new(world.shared.clone(), world.clock.clone(), scope)
}

/// The ring of the next change, by which the device is a member again, doesn't come to this process.
#[tokio::test]
async fn p3_strays_are_neither_dropped_nor_copied_without_the_ring_of_a_change_in_progress() {
    for is_missing in [false, true] {
        let world = MultiNodeWorld::new(4);
        let stray = world.inline(&key("stray"));
        let device = world.handoff(&stray.key);
        let primaries = world.primaries(&stray.key);
        world.write_on(&primaries[usize::from(is_missing)..], &stray).await;
        world.write_on(&[device], &stray).await;
        let mut worker = worker_of(&world, device);
        while !worker.tasks.iter().any(|task| matches!(task, Task::Strays { .. })) {
            worker.step().await.unwrap();
        }
        let later = Term::of(world.index().change() + 1, Phase::Joint);
        for device in world.devices() {
            world.memory(device).raise_term(device, later).await.unwrap();
        }
        world.shared.raise_term(later);
        run_once(&mut worker).await.unwrap();
        assert!(world.held(device, &stray.key).await.entry.is_some(), "it may be a member");
        let first = world.held(primaries[0], &stray.key).await.entry;
        assert_eq!(first.is_none(), is_missing, "the primaries may be members no more");
    }
}

/// Tombstones of what a former member holds may have been collected without it.
#[tokio::test]
async fn t1_nothing_is_copied_without_the_ring_of_a_change_in_progress() {
    for has_tasks in [false, true] {
        let world = MultiNodeWorld::new(4);
        let write = world.inline(&key("k"));
        let primaries = world.primaries(&write.key);
        world.write_on(&primaries[..1], &write).await;
        let mut worker = worker_of(&world, primaries[0]);
        while has_tasks && worker.tasks.is_empty() {
            worker.step().await.unwrap();
        }
        // This process alone has heard of it: no device would refuse.
        world.shared.raise_term(Term::of(world.index().change() + 1, Phase::Joint));
        let progress = run_once(&mut worker).await.unwrap();
        assert!(progress.kept > 0 && progress.repaired == 0, "{progress:?}");
        for device in &primaries[1..] {
            assert_eq!(world.held(*device, &write.key).await.entry, None);
        }
        world.grow(4).await;
        run_once(&mut worker).await.unwrap();
        for device in primaries {
            assert_eq!(world.held(device, &write.key).await.entry.as_ref(), Some(&write.entry));
        }
    }
}

/// The process hasn't heard of the change that took its device out of the ring.
#[tokio::test]
async fn t1_a_copy_from_a_former_member_is_refused_by_members_of_a_later_term() {
    let world = MultiNodeWorld::new(4);
    let write = world.inline(&key("k"));
    let [former, member, _] = world.primaries(&write.key)[..] else { panic!("three primaries") };
    world.write_on(&[former], &write).await;
    let later = Term::of(world.index().change() + 1, Phase::Joint);
    world.memory(member).raise_term(member, later).await.unwrap();
    let cluster = world.step();
    let mender = RegisterRepair { cluster: &cluster, stamps: &world.stamps, clock: &*world.clock };
    let refusal = mender.repair(&write.key, former, member).await.unwrap_err();
    assert_eq!(refusal.newer_term(), Some(later));
    assert!(cluster.is_behind(), "the refusal names the term");
    assert_eq!(world.held(member, &write.key).await.entry, None);
}

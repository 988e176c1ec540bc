//! Collection by the lists of devices: what is visited, and devices without lists.

use std::sync::Arc;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{ErrorKind, ManualClock};
use parking_lot::Mutex;

use super::*;

type Calls = Arc<Mutex<Vec<CallKind>>>;

const REFUSAL: Fault = Fault::Refuse(ErrorKind::Unavailable);

/// Makes a world that records the calls to its nodes.
fn recording() -> (MultiNodeWorld, Calls) {
    refusing(0)
}

/// Makes a world that records the calls to its nodes, and refuses one page of a list: that with this
/// number, if there is one.
fn refusing(refused: usize) -> (MultiNodeWorld, Calls) {
    let calls = Calls::default();
    let recorded = calls.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(5, clock, move |_, memory| {
        let recorded = recorded.clone();
        let choose = move |call: &Call<'_>| {
            let mut recorded = recorded.lock();
            recorded.push(call.op);
            let is_page = call.op == CallKind::OldRegisters;
            if is_page && count(&recorded, call.op) == refused { REFUSAL } else { Fault::None }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    (world, calls)
}

/// Runs a pass, and returns its calls.
async fn counted(world: &MultiNodeWorld, calls: &Calls) -> (StepProgress, Vec<CallKind>) {
    calls.lock().clear();
    let progress = run(world).await;
    (progress, std::mem::take(&mut *calls.lock()))
}

fn count(calls: &[CallKind], kind: CallKind) -> usize {
    calls.iter().filter(|call| **call == kind).count()
}

#[tokio::test]
async fn a_pass_visits_old_tombstones_and_no_other_register() {
    let (world, calls) = recording();
    delete_in(&world, 600).await;
    for number in 1000..3000 {
        let key = key_of(number);
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
        if number % 2 == 0 {
            world.write_on(&world.primaries(&key), &delete(&world, &key)).await;
        }
    }
    let (progress, of_pass) = counted(&world, &calls).await;
    assert_eq!((progress.done, progress.kept), (600, 0));
    // Each is met where it is held, until its first primary drops it everywhere.
    assert!((600..=1800).contains(&progress.items), "{progress:?}");
    assert_eq!(count(&of_pass, CallKind::Aged), 0);
    assert!(count(&of_pass, CallKind::OldRegisters) <= 5 * 4, "{of_pass:?}");
    assert!(count(&of_pass, CallKind::HeldBuckets) <= 5 * 4, "each key has a bucket");
    let (progress, of_pass) = counted(&world, &calls).await;
    assert_eq!((progress.items, progress.done), (0, 0), "nothing is old");
    assert_eq!(count(&of_pass, CallKind::Holdings), 0);
}

#[tokio::test]
async fn devices_with_and_without_lists_collect_alike() {
    for earlier in [vec![0, 1, 2, 3, 4], vec![1, 3], vec![]] {
        let (world, calls) = recording();
        delete_in(&world, 100).await;
        for device in earlier.iter().map(|id| DeviceId(*id)) {
            world.memory(device).set_earlier(device, true);
        }
        let live = key_of(1001);
        world.write_on(&world.primaries(&live), &world.write(&live)).await;
        let (progress, of_pass) = counted(&world, &calls).await;
        assert_eq!((progress.done, progress.kept), (100, 0), "{earlier:?}");
        assert_eq!(count(&of_pass, CallKind::Aged), earlier.len());
        assert_eq!(holders(&world, &live).await, 3);
    }
}

#[tokio::test]
async fn a_refused_page_starts_no_walk_over_all_registers() {
    for refused in [1, 2] {
        let (world, calls) = refusing(refused);
        delete_in(&world, 1500).await;
        let (_, of_pass) = counted(&world, &calls).await;
        assert!(count(&of_pass, CallKind::OldRegisters) > refused, "{of_pass:?}");
        assert_eq!(count(&of_pass, CallKind::Aged), 0, "page {refused}");
        counted(&world, &calls).await;
        let left = counted(&world, &calls).await.0;
        assert_eq!((left.items, left.kept), (0, 0), "later passes collect the rest");
    }
}

/// A pass that is interrupted begins with the oldest tombstones that are left.
#[tokio::test]
async fn a_pass_needs_no_position() {
    let world = world_of_deleted(1500).await;
    let mut done = 0;
    for _ in 0..100 {
        // The process ends after a few steps.
        let mut worker = worker(&world);
        for _ in 0..3 {
            done += worker.step().await.unwrap().done;
        }
    }
    assert!(done < 1500, "only the first device was visited");
    assert!(done > 0);
    assert_eq!(done + run(&world).await.done, 1500);
}

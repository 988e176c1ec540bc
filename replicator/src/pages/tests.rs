//! Walks of several devices at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{BackendExt, ManualClock};

use super::*;
use crate::cluster::DeviceScope;
use crate::replicate::ReplicateExtents;
use crate::run_once;
use crate::testing::multi_node::MultiNodeWorld;
use crate::worker::Worker;

/// A cluster of which one device hangs in a kind of call while `hung` holds its id.
fn hanging(count: u32, kind: CallKind, hung: Arc<AtomicU64>) -> MultiNodeWorld {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    MultiNodeWorld::wrapped(count, clock, move |_, memory| {
        let hung = hung.clone();
        let choose = move |call: &Call<'_>| {
            let is_it = u64::from(call.device.0) == hung.load(Ordering::SeqCst);
            if is_it && call.op == kind { Fault::Hang } else { Fault::None }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    })
}

fn worker(world: &MultiNodeWorld) -> ReplicateExtents {
    ReplicateExtents::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

#[tokio::test(start_paused = true)]
async fn a_device_that_hangs_holds_up_its_own_walk_alone() {
    let hung = Arc::new(AtomicU64::new(u64::MAX));
    let world = hanging(6, CallKind::ListExtents, hung.clone());
    let ids = world.extents(600).await;
    let lacking = DeviceId(4);
    let lost: Vec<_> = world.memory(lacking).extents(lacking);
    world.memory(lacking).release_extents(lacking, &lost).await.unwrap();
    hung.store(1, Ordering::SeqCst);
    let mut worker = worker(&world);
    let began = Instant::now();
    let copied = worker.step().await.unwrap().copied;
    // The step waits a second for it, and all others have done their part.
    assert!(began.elapsed() < 2 * LAG, "{:?}", began.elapsed());
    assert!(copied * 2 > lost.len() as u64, "{copied} of {}", lost.len());
    // The pass ends once the device was given up, and the device is left for later.
    let rest = run_once(&mut worker).await.unwrap();
    assert!(rest.idle && rest.backlog > 0, "{rest:?}");
    hung.store(u64::MAX, Ordering::SeqCst);
    run_once(&mut worker).await.unwrap();
    assert_eq!(run_once(&mut worker).await.unwrap().backlog, 0);
    assert!(world.is_in_place(6, &ids));
}

#[tokio::test(start_paused = true)]
async fn others_begin_again_while_one_is_still_in_its_pass() {
    let hung = Arc::new(AtomicU64::new(u64::MAX));
    let world = hanging(4, CallKind::ListExtents, hung.clone());
    world.extents(60).await;
    let all = |device: DeviceId| world.memory(device).extents(device);
    // The slow device is in its pass, and a second device loses everything meanwhile.
    let (slow, second) = (DeviceId(0), DeviceId(3));
    let first = all(slow)[0];
    let other = world.data_primaries(first).into_iter().find(|it| *it != slow).unwrap();
    world.memory(other).release_extents(other, &[first]).await.unwrap();
    hung.store(u64::from(slow.0), Ordering::SeqCst);
    let mut worker = worker(&world);
    assert!(!worker.step().await.unwrap().idle);
    let lost = all(second);
    world.memory(second).release_extents(second, &lost).await.unwrap();
    world.clock.advance_ms(AGAIN_MS);
    for _ in 0..3 {
        worker.step().await.unwrap();
    }
    let back = all(second).len();
    assert!(back * 3 > lost.len(), "{back} of {} are back before the slow pass ended", lost.len());
}

#[tokio::test(start_paused = true)]
async fn devices_take_turns_and_a_step_is_bounded() {
    let world = MultiNodeWorld::new(30);
    world.extents(300).await;
    let mut worker = worker(&world);
    let mut steps = 0;
    while !worker.step().await.unwrap().idle {
        steps += 1;
    }
    assert_eq!(steps, 30 / DEVICES_AT_ONCE as u64);
}

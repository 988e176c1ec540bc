//! Rebuilt fragments whose bytes change on their way home.

use std::sync::atomic::AtomicBool;

use super::*;

/// A cluster whose writes of extents meet `fault` while the switch is on.
fn world(fault: Fault) -> (MultiNodeWorld, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(false));
    let switch = is_on.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |_, memory| {
        let is_on = switch.clone();
        let choose = move |call: &Call<'_>| match call.op {
            CallKind::WriteExtent if is_on.load(Ordering::SeqCst) => fault,
            _ => Fault::None,
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.set_coded_ring(Arc::new(coded_ring(2, 2, 4)));
    (world, is_on)
}

/// The worker dies before the reply, or waits for it in vain.
#[tokio::test(start_paused = true)]
async fn a_fragment_that_changes_on_its_way_is_never_stored() {
    let (cancelled, waits) = (Duration::from_secs(1), Duration::from_hours(1));
    for (byte, after) in [(0, cancelled), (65_536, cancelled), (524_289, waits)] {
        let (world, is_on) = world(Fault::FlipByte(byte));
        let ids = filled(&world, &[1_060_000]).await;
        let before = world.fragments(4).await;
        world.lose(ids[0], 3).await;
        let left = world.fragments(4).await;
        is_on.store(true, Ordering::SeqCst);
        let ended = tokio::time::timeout(after, run_once(&mut worker(&world))).await.is_ok();
        assert_eq!(ended, after == waits);
        assert_eq!(world.fragments(4).await, left, "byte {byte}");
        is_on.store(false, Ordering::SeqCst);
        run(&world).await;
        assert_eq!(world.fragments(4).await, before);
    }
}

//! Interrupted at any call, a rebuild loses nothing, and a later run completes it.

use super::*;
/// Every call from a given one on fails, as if the worker's process had died; or only the reply of
/// that call is lost, or its body cut.
async fn cut_at(at: u64, fault: Fault) -> bool {
    let calls = Arc::new(AtomicU64::new(0));
    let healed = Arc::new(AtomicU64::new(0));
    let (count, whole) = (calls.clone(), healed.clone());
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |_, memory| {
        let (count, whole) = (count.clone(), whole.clone());
        let choose = move |call: &Call<'_>| {
            let asks = matches!(call.op, CallKind::ListExtents | CallKind::Presence);
            if whole.load(Ordering::SeqCst) > 0 || (asks && matches!(fault, Fault::LoseReply(_))) {
                return Fault::None;
            }
            match count.fetch_add(1, Ordering::SeqCst) {
                n if n < at => Fault::None,
                n if n == at => fault,
                _ => Fault::Refuse(ErrorKind::Unavailable),
            }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.set_coded_ring(Arc::new(coded_ring(2, 2, 4)));
    let ids = filled(&world, &[50_000, 1_060_000]).await;
    let before = world.fragments(4).await;
    for id in &ids {
        world.lose(*id, 0).await;
        world.lose(*id, 3).await;
    }
    let left = world.fragments(4).await;
    let _ = run_once(&mut worker(&world)).await;
    let now = world.fragments(4).await;
    assert!(left.iter().all(|held| now.get(held.0) == Some(held.1)), "cut at {at}: some are gone");
    assert!(now.iter().all(|held| before.get(held.0) == Some(held.1)), "cut at {at}: others came");
    let was_cut = calls.load(Ordering::SeqCst) > at;
    healed.store(1, Ordering::SeqCst);
    let mut worker = worker(&world);
    run_once(&mut worker).await.unwrap();
    assert_eq!(world.fragments(4).await, before, "cut at {at}");
    assert_eq!(run_once(&mut worker).await.unwrap().backlog, 0);
    was_cut
}

#[tokio::test]
async fn a_repair_that_is_cut_anywhere_loses_nothing_and_comes_to_its_end() {
    let faults = [
        Fault::Refuse(ErrorKind::Unavailable),
        Fault::LoseReply(ErrorKind::Unavailable),
        Fault::CutBody(3),
    ];
    for fault in faults {
        let mut at = 0;
        while cut_at(at, fault).await {
            at += 1;
        }
        assert!(at > 10, "{fault:?}: only {at} calls");
    }
}

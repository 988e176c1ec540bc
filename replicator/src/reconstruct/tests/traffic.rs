//! Bytes that a repair reads, writes and keeps in memory, and its rests.

use martlet_erasure::FRAGMENT_BYTES_MAX;

use super::*;
use crate::cursors::MemoryCursors;
use crate::pages::PAGE;

#[tokio::test]
async fn rebuilt_fragments_keep_owner_and_birth_and_cost_the_stated_traffic() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let ids = filled(&world, &[4 * 655_360]).await;
    let (home, sibling) = (world.homes(ids[0])[5], world.homes(ids[0])[4]);
    let before = world.record(home, ids[0].fragment(5)).await;
    world.lose(ids[0], 5).await;
    world.lose(ids[0], 1).await;
    world.clock.advance_ms(1_000_000);
    let progress = run(&world).await;
    assert_eq!(world.record(home, ids[0].fragment(5)).await, before);
    let other = world.record(sibling, ids[0].fragment(4)).await;
    assert_eq!((before.owner, before.birth_ms), (other.owner, other.birth_ms));
    // Both are rebuilt in one pass over four others.
    assert_eq!((progress.done, progress.copied), (1, 2));
    assert_eq!((progress.copied_bytes, progress.read_bytes), (2 * 655_360, 4 * 655_360));
}

#[tokio::test(start_paused = true)]
async fn a_worker_goes_on_where_the_one_before_it_stood() {
    let world = MultiNodeWorld::coded(2, 1, 3);
    let ids = filled(&world, &[1000; 1700]).await;
    for id in &ids {
        world.lose(*id, 0).await;
    }
    // Young extents are visited, and left to their writers.
    let options = ReplicateOptions { young_ms: 1 << 40, ..ReplicateOptions::default() };
    let worker = || worker(&world).with_options(options);
    let cursors: Arc<dyn Cursors> = Arc::new(MemoryCursors::default());
    let mut first = worker().with_cursors(cursors.clone());
    let step = first.step().await.unwrap();
    assert!(step.items >= PAGE as u64 && !step.idle, "{step:?}");
    let rest = run_once(&mut worker().with_cursors(cursors)).await.unwrap();
    assert_eq!(step.items + rest.items, ids.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_worker_pauses_by_its_byte_rate() {
    let world = MultiNodeWorld::coded(2, 1, 3);
    let longest = usize::try_from(2 * FRAGMENT_BYTES_MAX).unwrap();
    let last = world.stripe(id(1), &noise(1, longest), "long").await;
    world.clock.advance_ms(60_000);
    world.lose(last.id, 1).await;
    let options =
        ReplicateOptions { bytes_per_second_max: Some(1 << 20), ..ReplicateOptions::default() };
    let mut worker = worker(&world).with_options(options);
    let usual = Duration::from_millis(20);
    let mut longest_rest = usual;
    loop {
        let step = worker.step().await.unwrap();
        longest_rest = longest_rest.max(worker.busy_pause(usual));
        if step.idle {
            break;
        }
    }
    assert_eq!(longest_rest, Duration::from_secs(12), "two fragments read, one written");
}

#[tokio::test]
async fn a_long_extent_is_read_and_made_in_steps() {
    let reads = Arc::new(AtomicU64::new(0));
    let count = reads.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let count = count.clone();
        let choose = move |call: &Call<'_>| {
            count.fetch_add(u64::from(call.op == CallKind::ReadExtent), Ordering::SeqCst);
            Fault::None
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.set_coded_ring(Arc::new(coded_ring(2, 1, 3)));
    let ids = filled(&world, &[usize::try_from(2 * FRAGMENT_BYTES_MAX).unwrap()]).await;
    let before = world.fragments(3).await;
    world.lose(ids[0], 0).await;
    let progress = run(&world).await;
    assert_eq!(world.fragments(3).await, before);
    let steps = FRAGMENT_BYTES_MAX / build::STEP_BYTES;
    assert_eq!((progress.read_bytes, steps), (2 * FRAGMENT_BYTES_MAX, 8));
    assert_eq!(reads.load(Ordering::SeqCst), 2 * steps, "no source is read as a whole");
}

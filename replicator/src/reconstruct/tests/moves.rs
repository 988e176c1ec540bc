//! Fragments that are, or may be, elsewhere are copied home and not rebuilt.

use super::*;
use crate::reconstruct::silence::{GIVES_ALONE_MS, PATIENCE_MS};
use crate::replicate::copy::copy;
use crate::testing::growth::{new_device, successor};

#[tokio::test]
async fn fragments_on_handoffs_are_brought_home_and_not_made_again() {
    let world = MultiNodeWorld::coded(4, 2, 8);
    let ids = filled(&world, &[900_000; 20]).await;
    let before = world.fragments(8).await;
    for (id, number) in ids.iter().zip([0, 3, 5].into_iter().cycle()) {
        let ring = world.coded_ring();
        let handoff = ring.handoffs(ring.partition(id.placement())).next().unwrap();
        let home = world.homes(*id)[number as usize];
        let cluster = world.step();
        let record = world.record(home, id.fragment(number)).await;
        copy(&cluster, &record, home, handoff).await.unwrap();
        world.lose(*id, number).await;
    }
    let report = count(&world).await;
    assert_eq!((report.extents.missing, report.extents.stray, report.lost), (20, 20, 0));
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.read_bytes), (0, 0));
    // Fragments elsewhere may be sources too, for other lost fragments.
    world.lose(ids[0], 1).await;
    world.lose(ids[0], 2).await;
    assert_eq!(run(&world).await.copied, 2);
    replicate(&world).await;
    replicate(&world).await;
    assert_eq!(world.fragments(8).await, before);
    assert!(count(&world).await.clean);
}

#[tokio::test]
async fn when_the_ring_grows_fragments_move_and_none_is_made() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let ids = filled(&world, &[400_000; 60]).await;
    let grown = successor(&world.coded_ring(), |builder| {
        for id in [6, 7] {
            builder.add(new_device(id)).unwrap();
        }
    });
    world.set_up(DeviceId(6)).await;
    world.set_up(DeviceId(7)).await;
    world.set_coded_ring(grown.clone());
    assert!(!grown.moves().is_empty());
    let away = count(&world).await.extents;
    assert!(away.missing > 20 && away.missing == away.stray, "{away:?}");
    assert_eq!(run(&world).await.copied, 0, "the previous holders have them");
    let progress = replicate(&world).await;
    assert_eq!(progress.copied, away.missing, "no more is moved than the ring asks for");
    replicate(&world).await;
    let report = count(&world).await;
    assert!(report.clean, "{report:?}");
    for id in ids {
        for (home, number) in world.homes(id).into_iter().zip(0..) {
            assert!(world.memory(home).extents(home).contains(&id.fragment(number)));
        }
    }
}

#[tokio::test]
async fn a_silent_home_is_left_and_a_silent_previous_holder_keeps_a_fragment_unmade() {
    let world = MultiNodeWorld::coded(2, 1, 5);
    let ids = filled(&world, &[200_000; 10]).await;
    let silent = world.homes(ids[0])[1];
    world.memory(silent).set_offline(silent, true);
    let before = run(&world).await;
    assert_eq!((before.copied, before.backlog), (0, 1), "one device is not listed");
    world.memory(silent).set_offline(silent, false);
    let drained = successor(&world.coded_ring(), |builder| {
        builder.set_weight(silent, 0.0).unwrap();
    });
    world.set_coded_ring(drained);
    world.memory(silent).set_offline(silent, true);
    let mut worker = worker(&world);
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!(progress.copied, 0);
    assert!(progress.kept > 1, "what moves away from it is waited for");
    // But not forever: a drained device may be dead.
    world.clock.advance_ms(PATIENCE_MS);
    let (mut copied, mut last) = (0, progress);
    for _ in 0..4 {
        last = run_once(&mut worker).await.unwrap();
        copied += last.copied;
    }
    assert!(copied > 1 && last.copied == 0, "{last:?}");
    let held = world.fragments(5).await;
    for (id, number) in ids.iter().flat_map(|id| (0..3).map(move |number| (*id, number))) {
        let home = world.homes(id)[usize::from(number)];
        assert!(held.contains_key(&(id.fragment(number), home)), "fragment {number} of {id}");
    }
}

#[tokio::test]
async fn a_device_that_gives_for_long_is_helped_by_each_watcher_once() {
    let world = MultiNodeWorld::coded(4, 2, 9);
    let ids = filled(&world, &[4 * 131_072; 60]).await;
    let giver = world.homes(ids[0])[1];
    let drained = successor(&world.coded_ring(), |builder| {
        builder.set_weight(giver, 0.0).unwrap();
    });
    world.set_coded_ring(drained);
    let away = world.memory(giver).extents(giver).len() as u64;
    assert!(away > 20, "{away}");
    let mut worker = worker(&world);
    for _ in 0..3 {
        assert_eq!(run_once(&mut worker).await.unwrap().copied, 0, "the giver has them");
        world.clock.advance_ms(GIVES_ALONE_MS / 3);
    }
    // The giver was given the first ones by then.
    let cluster = world.step();
    let record = world.record(giver, world.memory(giver).extents(giver)[0]).await;
    let home = world.homes(record.named())[usize::from(record.replica().unwrap())];
    copy(&cluster, &record, giver, home).await.unwrap();
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!((progress.copied, progress.kept), (away - 1, 0), "each is made once");
    let columns = 131_072;
    assert_eq!(progress.read_bytes, (away - 1) * 4 * columns, "the giver is not read");
    // The giver finds that all are at home, and releases its own.
    let rest = replicate(&world).await;
    assert_eq!((rest.copied, rest.freed), (0, away));
    assert!(count(&world).await.clean);
}

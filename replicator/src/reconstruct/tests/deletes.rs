//! Deleted extents stay deleted (rule X4), with all their fragments.

use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::limits::COMMIT_WINDOW_MS;

use super::*;
use crate::replicate::copy::copy;
use crate::{Reclaim, ReclaimOptions, Sweep, SweepOptions};

#[tokio::test]
async fn an_extent_that_was_deleted_goes_wholly_and_is_not_made_again() {
    let world = MultiNodeWorld::coded(4, 2, 8);
    world.make_bucket(CODED).await;
    let gone = world.stripe(id(1), &noise(1, 400_000), "gone").await;
    world.clock.advance_ms(60_000);
    // Two homes deleted it; four missed that, one of which lost its fragment since.
    let homes = world.homes(gone.id);
    for number in [1, 4] {
        let home = homes[usize::from(number)];
        world.memory(home).delete_extents(home, &[gone.id.fragment(number)]).await.unwrap();
    }
    world.lose(gone.id, 5).await;
    // While the state is unknown, nothing changes.
    let silent = DeviceId(7);
    world.memory(silent).set_offline(silent, true);
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.freed), (0, 0));
    assert!(progress.kept > 0);
    world.memory(silent).set_offline(silent, false);
    // Each device learns of the delete from the fragments that it watches.
    let (mut copied, mut freed) = (0, 0);
    for _ in 0..3 {
        let progress = run(&world).await;
        (copied, freed) = (copied + progress.copied, freed + progress.freed);
    }
    assert_eq!((copied, freed), (0, 3));
    assert!(world.fragments(8).await.is_empty());
}

#[tokio::test]
async fn one_delete_mark_on_a_needed_fragment_does_not_stop_repair_of_the_others() {
    let world = MultiNodeWorld::coded(4, 2, 8);
    world.make_bucket(CODED).await;
    let wanted = world.stripe(id(1), &noise(1, 400_000), "wanted").await;
    world.commit_coded("wanted", vec![wanted]).await;
    world.clock.advance_ms(60_000);
    let before = world.fragments(8).await;
    let home = world.homes(wanted.id)[0];
    world.memory(home).delete_extents(home, &[wanted.id]).await.unwrap();
    world.lose(wanted.id, 4).await;
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.freed), (1, 0));
    assert_eq!(world.fragments(8).await.len(), before.len() - 1);
}

async fn reclaim(world: &MultiNodeWorld) -> StepProgress {
    world.clock.advance_ms(2000);
    let options = ReclaimOptions { grace_ms: 1000 };
    let mut worker = Reclaim::new(world.shared.clone(), world.clock.clone(), options);
    let mut totals = StepProgress::default();
    // A silent device ends a step; the next steps go on.
    for _ in 0..20 {
        if let Ok(progress) = worker.step().await {
            totals.add(&progress);
        }
    }
    totals
}

/// Makes a manifest in a coded extent of its own.
async fn spilled(world: &MultiNodeWorld, key: &str, data: u16, piece: u16) -> Body {
    let extent = world.stripe(id(data), &noise(u64::from(data), 400_000), key).await;
    let manifest =
        Manifest { policy: CODED, extents: vec![extent], parts: vec![], part_checksums: vec![] };
    let bytes = manifest.encode().into();
    let piece = world.stripe_as(id(piece), &bytes, owner(key, ExtentRole::Manifest)).await;
    Body::Spilled { policy: CODED, manifest: vec![piece] }
}

#[tokio::test]
async fn an_object_and_its_spilled_manifest_go_with_all_fragments_wherever_they_are() {
    let world = MultiNodeWorld::coded(2, 1, 6);
    world.make_bucket(CODED).await;
    let body = spilled(&world, "k", 1, 2).await;
    world.commit_body("k", body).await;
    // One fragment of each is on a handoff, one of the manifest is lost.
    for (n, number) in [(1, 2), (2, 2)] {
        let (ring, home) = (world.coded_ring(), world.homes(id(n))[number as usize]);
        let handoff = ring.handoffs(ring.partition(id(n).placement())).last().unwrap();
        let record = world.record(home, id(n).fragment(number)).await;
        let cluster = world.step();
        copy(&cluster, &record, home, handoff).await.unwrap();
        world.lose(id(n), number).await;
    }
    world.lose(id(2), 0).await;
    world.commit_body("k", Body::Empty).await;
    let progress = reclaim(&world).await;
    assert_eq!((progress.freed, progress.kept), (2, 0));
    assert!(world.fragments(6).await.is_empty());
    run(&world).await;
    replicate(&world).await;
    assert!(world.fragments(6).await.is_empty());
}

#[tokio::test]
async fn a_manifest_of_which_too_little_is_left_keeps_its_extents() {
    let world = MultiNodeWorld::coded(2, 1, 6);
    world.make_bucket(CODED).await;
    let body = spilled(&world, "k", 1, 2).await;
    world.commit_body("k", body).await;
    world.commit_body("k", Body::Empty).await;
    // The manifest is short, so any fragment suffices; the only one left is on a silent device.
    world.lose(id(2), 0).await;
    let silent = world.homes(id(2))[2];
    world.memory(silent).set_offline(silent, true);
    let before = world.fragments(6).await;
    assert_eq!(reclaim(&world).await.freed, 0);
    assert_eq!(world.fragments(6).await, before);
    world.memory(silent).set_offline(silent, false);
    assert_eq!(reclaim(&world).await.freed, 2);
}

#[tokio::test]
async fn the_sweep_knows_a_fragment_by_the_extent_that_it_is_of() {
    let world = MultiNodeWorld::coded(2, 1, 5);
    world.make_bucket(CODED).await;
    let owned = world.stripe(id(1), &noise(1, 200_000), "owned").await;
    world.stripe(id(2), &noise(2, 200_000), "orphan").await;
    world.commit_coded("owned", vec![owned]).await;
    world.clock.advance_ms(COMMIT_WINDOW_MS + 2000);
    let options = SweepOptions::among_others(1000);
    let mut sweep = Sweep::new(world.shared.clone(), world.clock.clone(), options);
    run_once(&mut sweep).await.unwrap();
    world.clock.advance_ms(2000);
    let progress = run_once(&mut sweep).await.unwrap();
    assert_eq!((progress.freed, progress.kept), (3, 0));
    let left: BTreeSet<ExtentId> =
        world.fragments(5).await.into_keys().map(|(it, _)| it.whole()).collect();
    assert_eq!(left, BTreeSet::from([owned.id]));
    assert_eq!(run(&world).await.copied, 0);
    assert!(count(&world).await.clean);
}

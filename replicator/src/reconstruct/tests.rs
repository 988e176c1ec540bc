//! Lost fragments are rebuilt byte for byte, and nothing else is.

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::CallKind;
use martlet_protocol::extent::{ExtentRole, Stripe};
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{BackendExt, ExtentId, ManualClock};

use super::*;
use crate::audit::{Audit, AuditOptions};
use crate::census::{CensusOptions, CensusReport, census};
use crate::replicate::ReplicateExtents;
use crate::replicate::testing::extent_id;
use crate::run_once;
use crate::testing::multi_node::MultiNodeWorld;
use crate::testing::stripes::{CODED, coded_ring, fragments, noise, owner};

mod changed_bytes;
mod cuts;
mod deletes;
mod moves;
mod traffic;

fn worker(world: &MultiNodeWorld) -> Reconstruct {
    Reconstruct::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

async fn run(world: &MultiNodeWorld) -> StepProgress {
    run_once(&mut worker(world)).await.unwrap()
}

async fn replicate(world: &MultiNodeWorld) -> StepProgress {
    let worker = ReplicateExtents::new(world.shared.clone(), world.clock.clone(), DeviceScope::All);
    run_once(&mut { worker }).await.unwrap()
}

async fn count(world: &MultiNodeWorld) -> CensusReport {
    let fast = CensusOptions { pause: Duration::ZERO, second_look: Duration::ZERO };
    census(&world.shared, fast, &mut |_| ()).await
}

/// Returns the extent id of a number.
fn id(n: u16) -> ExtentId {
    extent_id(n).whole()
}

/// Writes extents of these lengths, whole and old enough to be processed.
async fn filled(world: &MultiNodeWorld, lengths: &[usize]) -> Vec<ExtentId> {
    let mut ids = Vec::new();
    for (n, length) in (0..).zip(lengths) {
        world.stripe(id(n), &noise(u64::from(n), *length), "object").await;
        ids.push(id(n));
    }
    world.clock.advance_ms(60_000);
    ids
}

/// Lengths: short, ending within a fragment, full blocks of 64 KiB, several steps.
fn lengths(k: usize) -> Vec<usize> {
    vec![10_000, 65_536 * (k - 1) + 1, 65_536 * k, 700_000 * k - 77]
}

#[tokio::test]
async fn every_pattern_of_up_to_m_lost_fragments_is_made_good_byte_for_byte() {
    for (k, m) in [(2, 1), (4, 2)] {
        let total = k + m;
        let world = MultiNodeWorld::coded(k, m, u32::from(total));
        let ids = filled(&world, &lengths(usize::from(k))).await;
        let before = world.fragments(u32::from(total)).await;
        let pattern = |bits: &u32| (1..=u32::from(m)).contains(&bits.count_ones());
        for bits in (0..1_u32 << total).filter(pattern) {
            let mut lost = 0;
            for (id, number) in ids.iter().flat_map(|id| (0..total).map(move |it| (*id, it))) {
                let home = world.homes(id)[usize::from(number)];
                let is_there = before.contains_key(&(id.fragment(number), home));
                if bits & (1 << number) != 0 && is_there {
                    world.lose(id, number).await;
                    lost += 1;
                }
            }
            let progress = run(&world).await;
            assert_eq!(world.fragments(u32::from(total)).await, before, "{k}+{m}, lost {bits:b}");
            assert_eq!((progress.copied, progress.kept, progress.backlog), (lost, 0, 0));
        }
        assert!(count(&world).await.clean);
        let again = run(&world).await;
        assert_eq!((again.copied, again.read_bytes, again.backlog), (0, 0, 0));
    }
}

#[tokio::test]
async fn more_than_m_lost_fragments_are_kept_and_reported() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    world.make_bucket(CODED).await;
    let extent = world.stripe(id(1), &noise(1, 500_000), "object").await;
    let orphan = world.stripe(id(2), &noise(2, 500_000), "never written").await;
    world.commit_coded("object", vec![extent]).await;
    world.clock.advance_ms(60_000);
    for lost in [0, 2, 5] {
        world.lose(extent.id, lost).await;
        world.lose(orphan.id, lost).await;
    }
    let before = world.fragments(6).await;
    let mut worker = worker(&world);
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!(world.fragments(6).await, before);
    // A write that never ended is no loss.
    assert_eq!((progress.kept, progress.backlog, progress.copied), (1, 1, 0));
    world.clock.advance_ms(5000);
    assert_eq!(run_once(&mut worker).await.unwrap().oldest_age_ms, 5000);
    let report = count(&world).await;
    assert_eq!((report.lost, report.extents.missing, report.clean), (1, 3, false));
    assert!(report.findings[0].contains("LOST"), "{report:?}");

    // While a device is silent, it may have the fragment.
    world.memory(world.homes(extent.id)[0]).set_offline(world.homes(extent.id)[0], true);
    assert_eq!(count(&world).await.lost, 0);
}

#[tokio::test]
async fn a_wiped_device_is_filled_again_and_the_census_is_clean() {
    let world = MultiNodeWorld::coded(4, 2, 8);
    let lengths: Vec<usize> = (0..40).map(|n| 1000 + n * 30_011).collect();
    filled(&world, &lengths).await;
    let before = world.fragments(8).await;
    let wiped = DeviceId(3);
    let lost = world.memory(wiped).extents(wiped).len() as u64;
    world.wipe(wiped).await;
    world.memory(wiped).set_voting(wiped, true).await.unwrap();
    let report = count(&world).await;
    assert_eq!((report.extents.missing, report.extents.stray, report.lost), (lost, 0, 0));
    assert_eq!(run(&world).await.copied, lost);
    assert_eq!(world.fragments(8).await, before);
    let report = count(&world).await;
    assert!(report.clean, "{report:?}");
    assert_eq!((report.extents.things, report.extents.copies), (40, before.len() as u64));
}

#[tokio::test]
async fn a_source_that_is_corrupt_is_left_out_for_the_next() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let ids = filled(&world, &[2_000_000]).await;
    let before = world.fragments(6).await;
    world.lose(ids[0], 3).await;
    let bad = world.homes(ids[0])[1];
    world.memory(bad).corrupt(bad, ids[0].fragment(1));
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.kept), (1, 0));
    // Its node quarantines it; then it is lost, and is rebuilt.
    world.memory(bad).audit_extents(bad, None, u64::MAX).await.unwrap();
    assert_eq!(run(&world).await.copied, 1);
    assert_eq!(world.fragments(6).await, before);
}

#[tokio::test]
async fn a_full_home_is_passed_over_and_others_get_theirs() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let ids = filled(&world, &[150_000; 8]).await;
    let before = world.fragments(6).await;
    let full = DeviceId(2);
    for id in &ids {
        for (home, number) in world.homes(*id).into_iter().zip(0..) {
            if [DeviceId(2), DeviceId(4)].contains(&home) {
                world.lose(*id, number).await;
            }
        }
    }
    world.memory(full).set_full(full, true);
    let progress = run(&world).await;
    assert_eq!((progress.kept, progress.backlog), (8, 8));
    assert!(world.memory(full).extents(full).is_empty());
    assert_eq!(world.memory(DeviceId(4)).extents(DeviceId(4)).len() as u64, progress.copied);
    world.memory(full).set_full(full, false);
    run(&world).await;
    assert_eq!(world.fragments(6).await, before);
}

#[tokio::test]
async fn extents_that_are_being_written_are_left_to_their_writer() {
    let world = MultiNodeWorld::coded(2, 1, 3);
    let lost = world.stripe(id(1), &noise(1, 100_000), "object").await;
    world.lose(lost.id, 1).await;
    world.clock.advance_ms(ReplicateOptions::default().young_ms - 1);
    assert_eq!(run(&world).await.copied, 0);
    world.clock.advance_ms(1);
    assert_eq!(run(&world).await.copied, 1);
    // An extent whose last fragment has just come, and whose first has not.
    world.lose(lost.id, 0).await;
    let (home, last) = (world.homes(lost.id)[2], lost.id.fragment(2));
    let stripe = Stripe { k: 2, m: 1, length: 100_000 };
    let bytes = fragments(2, 1, &noise(1, 100_000)).remove(2).1;
    world.lose(lost.id, 2).await;
    let owner = owner("object", ExtentRole::Data);
    world.fragment_on(home, last, bytes, stripe, owner).await;
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.kept > 0), (0, true));
    world.clock.advance_ms(60_000);
    assert_eq!(run(&world).await.copied, 1);
}

#[tokio::test]
async fn fragments_of_a_policy_without_a_ring_or_with_another_code_are_kept() {
    let world = MultiNodeWorld::coded(2, 1, 4);
    let ids = filled(&world, &[100_000]).await;
    world.lose(ids[0], 1).await;
    world.set_coded_ring(Arc::new(coded_ring(3, 1, 4)));
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.kept), (0, 2));
    replicate(&world).await;
    assert_eq!(world.fragments(4).await.len(), 2);
}

#[tokio::test]
async fn the_auditor_has_what_it_puts_aside_made_again_at_once() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let ids = filled(&world, &[900_000, 20_000]).await;
    let before = world.fragments(6).await;
    for (id, number) in [(ids[0], 1), (ids[0], 4), (ids[1], 0)] {
        let home = world.homes(id)[number];
        world.memory(home).corrupt(home, id.fragment(u8::try_from(number).unwrap()));
    }
    let options = AuditOptions::default();
    let mut audit = Audit::new(world.shared.clone(), DeviceScope::All, options);
    let progress = run_once(&mut audit).await.unwrap();
    assert_eq!((progress.done, progress.copied, progress.kept), (3, 3, 0));
    assert_eq!(world.fragments(6).await, before);
}

#[tokio::test]
async fn two_that_make_the_same_at_once_make_the_same() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let ids = filled(&world, &[900_000, 1_200_000]).await;
    let before = world.fragments(6).await;
    for id in ids {
        world.lose(id, 0).await;
        world.lose(id, 3).await;
    }
    let (mut one, mut two) = (worker(&world), worker(&world));
    let (one, two) = futures::future::join(run_once(&mut one), run_once(&mut two)).await;
    assert!(one.unwrap().copied + two.unwrap().copied >= 4);
    assert_eq!(world.fragments(6).await, before);
}

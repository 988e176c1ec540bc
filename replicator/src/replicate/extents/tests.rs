//! Extents reach their primaries, and none is released before others have it.

mod changed_bytes;
mod late;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{BackendExt, ErrorKind, ExtentId, ManualClock, PolicyId};

use super::*;
use crate::cursors::MemoryCursors;
use crate::replicate::testing::extent_id;
use crate::run_once;
use crate::testing::POLICY;
use crate::testing::multi_node::{MultiNodeWorld, ring, ring_of, ring_under};

fn worker(world: &MultiNodeWorld) -> ReplicateExtents {
    ReplicateExtents::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

async fn run(world: &MultiNodeWorld) -> StepProgress {
    run_once(&mut worker(world)).await.unwrap()
}

#[tokio::test]
async fn a_wiped_device_is_filled_again_with_what_it_should_have() {
    let world = MultiNodeWorld::new(5);
    let ids = world.extents(40).await;
    let before = world.copies(5);
    let wiped = DeviceId(2);
    let lost: Vec<ExtentId> = world.memory(wiped).extents(wiped);
    world.wipe(wiped).await;
    assert!(lost.len() > 5 && !world.is_in_place(5, &ids));
    world.clock.advance_ms(1_000_000);

    let progress = run(&world).await;
    assert_eq!(world.copies(5), before);
    assert_eq!(
        (progress.copied, progress.copied_bytes),
        (lost.len() as u64, lost.len() as u64 * 16)
    );
    assert_eq!((progress.freed, progress.kept, progress.backlog), (0, 0, 0));
    // A copy has the extent's birth and owner (rules X1, X4).
    let id = lost[0];
    let other = before[&id].iter().find(|device| **device != wiped).unwrap();
    assert_eq!(world.record(wiped, id).await, world.record(*other, id).await);

    // Sums are equal, so nothing is visited.
    let again = run(&world).await;
    assert_eq!(again, StepProgress { idle: true, ..StepProgress::default() });
}

#[tokio::test]
async fn after_a_ring_change_extents_lie_on_their_primaries_alone() {
    let world = MultiNodeWorld::new(6);
    world.set_data_ring(ring(0..5));
    let ids = world.extents(60).await;
    world.set_data_ring(ring(1..6));
    let wrong = world.copies(6);
    let moved = |id: &ExtentId| {
        let lacks = |device: &DeviceId| !wrong[id].contains(device);
        world.data_primaries(*id).into_iter().filter(lacks).count() as u64
    };
    let planned: u64 = ids.iter().map(moved).sum();
    let progress = run(&world).await;
    assert_eq!(progress.copied, planned, "no more is moved than the ring asks for");
    run(&world).await;
    let copies = world.copies(6);
    // The first device is in no ring any more, and no worker handles it.
    for (id, holders) in &copies {
        let others = holders.iter().filter(|device| **device != DeviceId(0));
        assert_eq!(others.collect::<BTreeSet<_>>(), world.data_primaries(*id).iter().collect());
    }
    world.set_data_ring(ring_of((0..6).map(|id| (id, 1.0))));
    run(&world).await;
    run(&world).await;
    assert!(world.is_in_place(6, &ids), "{:?}", world.copies(6));
}

#[tokio::test]
async fn a_stray_waits_for_all_primaries_and_goes_once_they_have_it() {
    let world = MultiNodeWorld::new(5);
    let id = extent_id(1);
    let primaries = world.data_primaries(id);
    let stray = (0..5).map(DeviceId).find(|device| !primaries.contains(device)).unwrap();
    world.extent_on(&[primaries[0], stray], id, "object").await;
    world.clock.advance_ms(60_000);
    world.memory(primaries[2]).set_offline(primaries[2], true);
    let progress = run(&world).await;
    assert_eq!((progress.copied, progress.freed), (1, 0));
    assert!(progress.kept > 0 && progress.backlog > 0);
    assert_eq!(world.copies(5)[&id].len(), 3);

    // Silence keeps extents, however often the worker queries; the wait is reported.
    let mut worker = worker(&world);
    for _ in 0..4 {
        run_once(&mut worker).await.unwrap();
        world.clock.advance_ms(1000);
        assert!(world.memory(stray).extents(stray).contains(&id));
    }
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!(progress.oldest_age_ms, 4000);

    world.memory(primaries[2]).set_offline(primaries[2], false);
    for _ in 0..4 {
        run_once(&mut worker).await.unwrap();
    }
    assert!(world.is_in_place(5, &[id]));
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!((progress.backlog, progress.oldest_age_ms), (0, 0));
}

#[tokio::test]
async fn a_full_device_is_passed_over_and_filled_once_it_has_room() {
    let world = MultiNodeWorld::new(4);
    let ids = world.extents(40).await;
    let (wiped, other) = (DeviceId(1), DeviceId(3));
    world.wipe(wiped).await;
    world.wipe(other).await;
    world.memory(wiped).set_full(wiped, true);
    let progress = run(&world).await;
    assert!(progress.kept > 0 && progress.copied > 0);
    assert!(world.memory(wiped).extents(wiped).is_empty());
    let expected = ids.iter().filter(|id| world.data_primaries(**id).contains(&other)).count();
    assert_eq!(world.memory(other).extents(other).len(), expected);
    world.memory(wiped).set_full(wiped, false);
    run(&world).await;
    assert!(world.is_in_place(4, &ids));
}

#[tokio::test]
async fn an_extent_marked_deleted_on_a_primary_goes_unless_an_entry_needs_it() {
    let world = MultiNodeWorld::new(4);
    world.make_bucket(POLICY).await;
    let (gone, wanted) = (extent_id(1), extent_id(2));
    world.extent_on(&world.data_primaries(gone), gone, "gone").await;
    let kept = world.extent_on(&world.data_primaries(wanted), wanted, "wanted").await;
    world.commit("wanted", vec![kept]).await;
    world.clock.advance_ms(60_000);
    for id in [gone, wanted] {
        let device = world.data_primaries(id)[0];
        world.memory(device).delete_extents(device, &[id]).await.unwrap();
    }
    // While the state is unknown, nothing is deleted.
    let silent = DeviceId(3);
    world.memory(silent).set_offline(silent, true);
    run(&world).await;
    world.memory(silent).set_offline(silent, false);
    assert!(world.copies(4).contains_key(&gone));

    let progress = run(&world).await;
    assert_eq!((progress.freed, progress.copied), (2, 0));
    let copies = world.copies(4);
    assert!(!copies.contains_key(&gone));
    assert_eq!(copies[&wanted].len(), 2, "a mark is no reason to delete what an object wants");
    assert!(progress.kept > 0);
}

#[tokio::test]
async fn a_mark_on_one_primary_does_not_stop_repair_of_a_needed_extent() {
    let world = MultiNodeWorld::new(5);
    world.make_bucket(POLICY).await;
    let id = extent_id(2);
    let primaries = world.data_primaries(id);
    let extent = world.extent_on(&primaries, id, "wanted").await;
    world.commit("wanted", vec![extent]).await;
    world.clock.advance_ms(60_000);
    let (marked, lacking) = (primaries[0], primaries[1]);
    world.memory(marked).delete_extents(marked, &[id]).await.unwrap();
    world.memory(lacking).release_extents(lacking, &[id]).await.unwrap();
    let progress = run(&world).await;
    let mut holders = world.copies(5)[&id].clone();
    holders.sort();
    let mut expected = primaries[1..].to_vec();
    expected.sort();
    assert_eq!((holders, progress.copied, progress.freed), (expected, 1, 0));
}

#[tokio::test]
async fn extents_that_are_being_written_are_left_to_their_writer() {
    let world = MultiNodeWorld::new(4);
    let id = extent_id(1);
    world.extent_on(&world.data_primaries(id)[..1], id, "object").await;
    world.clock.advance_ms(ReplicateOptions::default().young_ms - 1);
    assert_eq!(run(&world).await.copied, 0);
    world.clock.advance_ms(1);
    assert_eq!(run(&world).await.copied, 2);
    assert!(world.is_in_place(4, &[id]));
}

#[tokio::test]
async fn a_device_with_an_unreadable_copy_delays_no_other() {
    let world = MultiNodeWorld::new(4);
    let id = extent_id(1);
    let primaries = world.data_primaries(id);
    world.extent_on(&primaries[..2], id, "object").await;
    world.memory(primaries[0]).corrupt(primaries[0], id);
    world.clock.advance_ms(60_000);
    let mut worker = worker(&world);
    let mut copied = 0;
    for _ in 0..2 {
        copied += run_once(&mut worker).await.unwrap().copied;
    }
    assert_eq!(copied, 1, "it is the other's turn in one of two passes");
    assert!(world.is_in_place(4, &[id]));
}

#[tokio::test]
async fn holders_under_processes_in_different_passes_never_leave_it_to_each_other() {
    let world = MultiNodeWorld::new(3);
    let ids = world.extents(20).await;
    let one = |node: &str| {
        let scope = DeviceScope::Nodes(vec![node.to_owned()]);
        ReplicateExtents::new(world.shared.clone(), world.clock.clone(), scope)
    };
    let (mut first, mut second) = (one("n0"), one("n1"));
    for _ in 0..2 {
        world.wipe(DeviceId(2)).await;
        run_once(&mut first).await.unwrap();
        run_once(&mut second).await.unwrap();
        assert!(world.is_in_place(3, &ids), "{:?}", world.copies(3));
        // One of them is a pass ahead from here on.
        run_once(&mut second).await.unwrap();
    }
}

#[tokio::test]
async fn with_several_policies_the_record_of_an_extent_names_its_ring() {
    let world = MultiNodeWorld::new(6);
    let other = PolicyId(9);
    world.set_data_ring(ring(0..3));
    let id = extent_id(1);
    world.extent_under(other, &[DeviceId(0)], id, "object").await;
    world.clock.advance_ms(60_000);
    // No ring has the policy: its extents stay on their devices.
    run(&world).await;
    assert_eq!(world.copies(6)[&id], [DeviceId(0)]);
    let devices = (3..6).map(|id| (id, 1.0));
    world.edit(|parts| {
        parts.data.insert(other, Arc::new(ring_under(other, devices)));
    });
    run(&world).await;
    assert_eq!(world.copies(6)[&id], [3, 4, 5].map(DeviceId));
}

#[tokio::test(start_paused = true)]
async fn a_worker_goes_on_where_the_one_before_it_stood() {
    let world = MultiNodeWorld::new(3);
    let ids = world.extents(700).await;
    let lacking = DeviceId(2);
    world.memory(lacking).release_extents(lacking, &ids).await.unwrap();
    // Young extents are visited, and left to their writers.
    let options = ReplicateOptions { young_ms: 1 << 50, ..ReplicateOptions::default() };
    let worker = || worker(&world).with_options(options);
    let cursors: Arc<dyn Cursors> = Arc::new(MemoryCursors::default());
    let mut first = worker().with_cursors(cursors.clone());
    let step = first.step().await.unwrap();
    assert_eq!((step.items, step.ahead, step.idle), (1000, 400, false));
    let rest = run_once(&mut worker().with_cursors(cursors.clone())).await.unwrap();
    assert_eq!(rest.items, 400);
    // After the end of a pass the walk begins anew.
    let whole = run_once(&mut worker().with_cursors(cursors)).await.unwrap();
    assert_eq!(whole.items, 1400);
}

#[tokio::test(start_paused = true)]
async fn a_step_is_bounded_and_pauses_by_its_bytes() {
    let world = MultiNodeWorld::new(3);
    world.extents(200).await;
    world.wipe(DeviceId(0)).await;
    let options =
        ReplicateOptions { bytes_per_second_max: Some(160), ..ReplicateOptions::default() };
    let mut worker = worker(&world).with_options(options);
    // Two devices share the copies.
    let step = worker.step().await.unwrap();
    assert_eq!(step.copied, 2 * STEP_COPIES as u64);
    let usual = Duration::from_millis(20);
    assert_eq!(worker.busy_pause(usual), Duration::from_millis(12_800));
    worker.options.bytes_per_second_max = None;
    assert_eq!(worker.busy_pause(usual), usual);
}

/// Every call from a given one on fails, as if the worker's process had died; or only the reply of
/// that call is lost.
async fn cut_at(at: u64, fault: Fault) -> bool {
    let calls = Arc::new(AtomicU64::new(0));
    let healed = Arc::new(AtomicU64::new(0));
    let (count, whole) = (calls.clone(), healed.clone());
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |_, memory| {
        let (count, whole) = (count.clone(), whole.clone());
        let choose = move |call: &martlet_protocol::testing::Call<'_>| {
            let asks = matches!(
                call.op,
                CallKind::ListExtents
                    | CallKind::Presence
                    | CallKind::PresenceBy
                    | CallKind::ExtentSums
            );
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
    world.set_data_ring(ring(0..3));
    let ids = world.extents(6).await;
    let before = world.copies(4);
    world.set_data_ring(ring_of([(0, 0.0), (1, 1.0), (2, 1.0), (3, 1.0)]));
    let _ = run_once(&mut worker(&world)).await;
    for (id, holders) in world.copies(4) {
        assert!(holders.len() >= before[&id].len(), "cut at {at}: {id} has only {holders:?}");
    }
    assert_eq!(world.copies(4).len(), ids.len());
    let was_cut = calls.load(Ordering::SeqCst) > at;
    healed.store(1, Ordering::SeqCst);
    for _ in 0..3 {
        run_once(&mut worker(&world)).await.unwrap();
    }
    assert!(world.is_in_place(4, &ids), "cut at {at}: {:?}", world.copies(4));
    was_cut
}

#[tokio::test]
async fn a_move_that_is_cut_anywhere_loses_nothing_and_comes_to_its_end() {
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

/// A node of an earlier release has no call that drops wrong bytes safely. So no node stores them.
#[tokio::test]
async fn wrong_bytes_are_stored_by_no_device_with_or_without_releases() {
    for has_releases in [false, true] {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let world = MultiNodeWorld::wrapped(5, clock, move |_, inner| {
            Arc::new(FaultyBackend::new(inner, move |call| match call.op {
                CallKind::ReleaseCopies if !has_releases => Fault::Refuse(ErrorKind::Unavailable),
                _ => Fault::None,
            }))
        });
        let id = world.extents(1).await[0];
        let holders = world.copies(5)[&id].clone();
        let from = *holders.first().unwrap();
        let to = world.devices().into_iter().find(|it| !holders.contains(it)).unwrap();
        let right = world.record(from, id).await;
        let mut other = right.clone();
        other.extent.blake3 = [1; 32];
        let error = copy(&world.step(), &other, from, to).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(!world.memory(to).extents(to).contains(&id), "the wrong copy stays");
        assert!(copy(&world.step(), &right, from, to).await.unwrap() > 0);
        assert_eq!(world.record(to, id).await, right);
    }
}

//! Extents that reclaim frees, the time of this, and extents that it keeps.

mod coded;

use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::{ETag, Manifest, UploadState};
use martlet_protocol::testing::Fault;
use martlet_protocol::{UploadId, WriteId};

use super::*;
use crate::run_once;
use crate::testing::{POLICY, StoredBody, World};

const GRACE_MS: u64 = 1000;

fn worker(world: &World, cluster: Topology) -> Reclaim {
    Reclaim::new(cluster, world.clock.clone(), ReclaimOptions { grace_ms: GRACE_MS })
}

async fn run(world: &World) -> StepProgress {
    run_once(&mut worker(world, world.cluster.clone())).await.unwrap()
}

#[tokio::test]
async fn overwritten_extents_are_removed_after_the_grace_time() {
    let world = World::new().await;
    let (old, new) = (world.extents("k", None, 3).await, world.extents("k", None, 2).await);
    world.commit("k", &old.body, false).await;
    world.commit("k", &new.body, false).await;
    run(&world).await;
    assert!(!world.is_gone(&old));
    world.clock.advance_ms(GRACE_MS);
    let progress = run(&world).await;
    assert_eq!((progress.items, progress.freed, progress.freed_bytes), (1, 3, 30));
    assert!(world.is_gone(&old) && !world.is_gone(&new));
    assert_eq!(world.garbage().await, 0);
}

#[tokio::test]
async fn a_spilled_manifest_goes_with_its_extents() {
    let world = World::new().await;
    let old = world.spilled("k", 5).await;
    world.commit("k", &old.body, false).await;
    world.delete("k").await;
    world.clock.advance_ms(GRACE_MS);
    assert_eq!(run(&world).await.freed, 6);
    assert!(world.is_gone(&old));
}

#[tokio::test]
async fn a_manifest_that_can_not_be_read_keeps_its_extents() {
    let world = World::new().await;
    let old = world.spilled("k", 5).await;
    let piece = *old.ids.last().unwrap();
    world.commit("k", &old.body, false).await;
    world.delete("k").await;
    let other = world.extents("other", None, 1).await;
    world.commit("other", &other.body, false).await;
    world.delete("other").await;
    for device in [DeviceId(0), DeviceId(1)] {
        world.memory.corrupt(device, piece);
    }
    world.clock.advance_ms(GRACE_MS);
    let progress = run(&world).await;
    assert_eq!((progress.kept, progress.freed), (1, 1));
    assert!(!world.is_gone(&old) && world.is_gone(&other));
    assert_eq!(world.garbage().await, 1);
}

#[tokio::test]
async fn records_that_are_kept_do_not_hide_those_behind_them() {
    let world = World::new().await;
    let mut kept = Vec::new();
    for number in 0..BATCH + 5 {
        let key = format!("kept{number}");
        let old = world.spilled(&key, 1).await;
        world.commit(&key, &old.body, false).await;
        world.delete(&key).await;
        for device in [DeviceId(0), DeviceId(1)] {
            world.memory.corrupt(device, *old.ids.last().unwrap());
        }
        kept.push(old);
    }
    let behind = world.extents("behind", None, 1).await;
    world.commit("behind", &behind.body, false).await;
    world.delete("behind").await;
    world.clock.advance_ms(GRACE_MS);
    run(&world).await;
    assert!(world.is_gone(&behind));
    assert!(kept.iter().all(|old| !world.is_gone(old)));
}

#[tokio::test]
async fn extents_that_an_entry_still_names_stay_and_their_record_is_forgotten() {
    let world = World::new().await;
    let body = world.extents("k", None, 2).await;
    world.commit("k", &body.body, false).await;
    // New tags over the same extents, without `keep_body`.
    world.commit("k", &body.body, false).await;
    world.clock.advance_ms(GRACE_MS);
    assert_eq!(run(&world).await.freed, 0);
    assert!(!world.is_gone(&body));
    assert_eq!(world.garbage().await, 0);
}

#[tokio::test]
async fn a_part_that_its_object_took_over_stays() {
    let world = World::new().await;
    let upload = UploadId::random();
    let (part, again) =
        (world.extents("k", Some(upload), 1).await, world.extents("k", Some(upload), 1).await);
    world.commit_part("k", upload, 1, &part.body).await;
    world.commit("k", &part.body, false).await;
    world.commit_part("k", upload, 1, &again.body).await;
    world.clock.advance_ms(GRACE_MS);
    run(&world).await;
    assert!(!world.is_gone(&part) && !world.is_gone(&again));
}

/// Returns a body that names the extents with these ids.
async fn naming(world: &World, of: &StoredBody) -> Body {
    let cluster = StepTopology::of(&world.cluster);
    let extents = BodyExtents::of(&cluster, &of.body).await.unwrap().data.extents;
    let (parts, part_checksums) = (Vec::new(), Vec::new());
    Body::Extents(Manifest { policy: POLICY, extents, parts, part_checksums })
}

/// The object takes over the bytes of a long part, and not the manifest of the part.
#[tokio::test]
async fn a_long_part_of_a_completed_upload_loses_its_manifest_alone() {
    let world = World::new().await;
    let upload = UploadId::random();
    let part = world.spilled_part("k", Some(upload), 4).await;
    let (manifest, data) = part.ids.split_last().unwrap();
    world.set_upload("k", upload, UploadState::Open).await;
    let register = world.commit_part("k", upload, 1, &part.body).await;
    let object = naming(&world, &part).await;
    world.decide_upload("k", upload, &object).await;
    world.commit("k", &object, false).await;
    let (write_id, etag) = (WriteId::random(), ETag::Md5([1; 16]));
    world.set_upload("k", upload, UploadState::Completed { write_id, etag }).await;
    world.free_part(register).await;
    world.clock.advance_ms(GRACE_MS);
    assert_eq!(run(&world).await.freed, 1);
    assert_eq!((world.left(data), world.left(&[*manifest])), (data.to_vec(), vec![]));
    assert_eq!(world.garbage().await, 0);
    world.delete("k").await;
    world.clock.advance_ms(GRACE_MS);
    run(&world).await;
    assert!(world.is_gone(&part));
}

/// Of two writes of a number the replaced one goes with its manifest, while the upload is open.
#[tokio::test]
async fn a_long_part_that_was_replaced_goes_while_its_upload_is_open() {
    let world = World::new().await;
    let upload = UploadId::random();
    world.set_upload("k", upload, UploadState::Open).await;
    let (old, new) = (
        world.spilled_part("k", Some(upload), 4).await,
        world.spilled_part("k", Some(upload), 3).await,
    );
    let replaced = world.commit_part("k", upload, 1, &old.body).await;
    let register = world.commit_part("k", upload, 1, &new.body).await;
    world.free_part(replaced).await;
    world.clock.advance_ms(GRACE_MS);
    assert_eq!(run(&world).await.freed, 5);
    assert!(world.is_gone(&old) && !world.is_gone(&new));
    world.set_upload("k", upload, UploadState::Aborted).await;
    world.free_part(register).await;
    world.clock.advance_ms(GRACE_MS);
    run(&world).await;
    assert!(world.is_gone(&new));
}

#[tokio::test]
async fn a_device_that_is_silent_keeps_everything_until_it_is_back() {
    let world = World::new().await;
    let old = world.extents("k", None, 4).await;
    world.commit("k", &old.body, false).await;
    world.delete("k").await;
    world.clock.advance_ms(GRACE_MS);
    world.memory.set_offline(DeviceId(1), true);
    run(&world).await;
    assert_eq!(world.garbage().await, 1);
    world.memory.set_offline(DeviceId(1), false);
    run(&world).await;
    assert!(world.is_gone(&old));
    assert_eq!(world.garbage().await, 0);
}

/// Interrupts the worker before and after each of its calls in turn; a new worker must complete the
/// work.
#[tokio::test]
async fn a_crash_between_any_two_steps_is_made_good() {
    for lost in [false, true] {
        for crash_at in 0.. {
            let world = World::new().await;
            let (old, new) = (world.spilled("k", 3).await, world.spilled("k", 2).await);
            world.commit("k", &old.body, false).await;
            world.commit("k", &new.body, false).await;
            world.clock.advance_ms(GRACE_MS);
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = calls.clone();
            let cluster = world.faulty(move |_| {
                let call = counted.fetch_add(1, Ordering::SeqCst);
                match lost {
                    _ if call > crash_at => Fault::Refuse(ErrorKind::Unavailable),
                    _ if call < crash_at => Fault::None,
                    true => Fault::LoseReply(ErrorKind::Unavailable),
                    false => Fault::Refuse(ErrorKind::Unavailable),
                }
            });
            let _ = worker(&world, cluster).step().await;
            run(&world).await;
            assert!(world.is_gone(&old), "cut off at call {crash_at}");
            assert!(!world.is_gone(&new), "cut off at call {crash_at}");
            assert_eq!(world.garbage().await, 0, "cut off at call {crash_at}");
            if calls.load(Ordering::SeqCst) <= crash_at {
                break;
            }
        }
    }
}

#[tokio::test]
async fn data_goes_before_the_manifest_and_the_manifest_before_the_record() {
    let world = World::new().await;
    let old = world.spilled("k", 3).await;
    world.commit("k", &old.body, false).await;
    world.delete("k").await;
    world.clock.advance_ms(GRACE_MS);
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (seen, memory) = (order.clone(), world.memory.clone());
    let cluster = world.faulty(move |call| {
        if matches!(call.op, CallKind::DeleteUnneeded | CallKind::ForgetGarbage) {
            let there = [DeviceId(0), DeviceId(1)].map(|device| memory.extents(device));
            seen.lock().push((call.op, there.concat()));
        }
        Fault::None
    });
    worker(&world, cluster).step().await.unwrap();
    let (piece, data) = old.ids.split_last().unwrap();
    let order = order.lock();
    let ((last, left), deletes) = order.split_last().unwrap();
    assert_eq!((*last, left.len()), (CallKind::ForgetGarbage, 0), "the record goes last");
    for (_, there) in deletes.iter().filter(|(_, there)| data.iter().any(|id| there.contains(id))) {
        assert!(there.contains(piece), "data goes first");
    }
    assert!(world.is_gone(&old));
}

/// A node of an earlier release, or one whose time is ahead.
#[tokio::test]
async fn a_node_that_refuses_deletes_with_a_time_keeps_its_extents_and_their_records() {
    let world = World::new().await;
    delete_objects(&world, 3).await;
    let cluster = world.faulty(|call| match call.op {
        CallKind::DeleteUnneeded => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let progress = run_once(&mut worker(&world, cluster)).await.unwrap();
    assert_eq!((progress.freed, progress.kept), (0, 3));
    assert_eq!(world.garbage().await, 3);
    assert_eq!(run(&world).await.freed, 3);
}

/// Writes and deletes objects of one extent each.
async fn delete_objects(world: &World, count: usize) {
    for number in 0..count {
        let key = format!("k{number}");
        let old = world.extents(&key, None, 1).await;
        world.commit(&key, &old.body, false).await;
        world.delete(&key).await;
    }
    world.clock.advance_ms(GRACE_MS);
}

#[tokio::test]
async fn a_page_of_records_takes_one_delete_for_each_device_and_few_questions() {
    let world = World::new().await;
    delete_objects(&world, BATCH).await;
    let calls = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let counted = calls.clone();
    let cluster = world.faulty(move |call| {
        counted.lock().push((call.op, call.device));
        Fault::None
    });
    let progress = worker(&world, cluster).step().await.unwrap();
    assert_eq!((progress.freed, progress.done), (BATCH as u64, BATCH as u64));
    let calls = calls.lock();
    let of = |kind: CallKind| calls.iter().filter(|(op, _)| *op == kind).count();
    assert_eq!((of(CallKind::DeleteUnneeded), of(CallKind::SeekExtents)), (2, 2), "{calls:?}");
    assert!(of(CallKind::Claims) <= 3, "two for the objects, none for uploads: {calls:?}");
    assert!(calls.len() <= 12, "{calls:?}");
}

#[tokio::test]
async fn the_oldest_records_hide_nothing_behind_them() {
    let world = World::new().await;
    let unreadable = world.spilled("old", 1).await;
    for number in 0..1100 {
        let key = format!("kept{number}");
        world.commit(&key, &unreadable.body, false).await;
        world.delete(&key).await;
    }
    for device in [DeviceId(0), DeviceId(1)] {
        world.memory.corrupt(device, *unreadable.ids.last().unwrap());
    }
    let behind = world.extents("behind", None, 1).await;
    world.commit("behind", &behind.body, false).await;
    world.delete("behind").await;
    world.clock.advance_ms(GRACE_MS);
    let mut worker = worker(&world, world.cluster.clone());
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!((progress.freed, progress.kept, progress.backlog), (1, 1100, 1100));
    assert!(world.is_gone(&behind));
    // Passes that complete nothing become rare.
    let usual = Duration::from_secs(30);
    assert_eq!(worker.idle_pause(usual), usual);
    for doublings in 1..8 {
        run_once(&mut worker).await.unwrap();
        assert_eq!(worker.idle_pause(usual), usual * (1 << doublings.min(DOUBLINGS_MAX)));
    }
    delete_objects(&world, 1).await;
    run_once(&mut worker).await.unwrap();
    assert_eq!(worker.idle_pause(usual), usual);
}

#[tokio::test]
async fn one_record_that_fails_in_a_page_keeps_only_itself() {
    let world = World::new().await;
    let unreadable = world.spilled("a", 1).await;
    world.commit("a", &unreadable.body, false).await;
    world.delete("a").await;
    delete_objects(&world, 20).await;
    let cluster = world.faulty(|call| match call.op {
        CallKind::ReadExtent => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let progress = run_once(&mut worker(&world, cluster)).await.unwrap();
    assert_eq!((progress.freed, progress.done, progress.kept), (20, 20, 1));
    assert_eq!(world.garbage().await, 1);
    run(&world).await;
    assert!(world.is_gone(&unreadable));
}

#[tokio::test]
async fn slow_clients_delay_a_step_for_half_a_second_at_most() {
    let world = World::new().await;
    let reclaim = worker(&world, world.cluster.clone());
    assert_eq!(reclaim.yield_max(Duration::from_secs(2)), YIELD_MAX);
    assert_eq!(reclaim.yield_max(Duration::from_millis(5)), Duration::from_millis(5));
}

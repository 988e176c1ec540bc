//! Extents that the sweep deletes, and conditions under which it keeps them.

use martlet_protocol::backend::{BucketFence, CallKind};
use martlet_protocol::entry::{ETag, UploadState};
use martlet_protocol::testing::Fault;
use martlet_protocol::{BucketId, ErrorKind, UploadId, WriteId};
use parking_lot::Mutex;

use super::*;
use crate::run_once;
use crate::testing::{StoredBody, World};

const GRACE_MS: u64 = 1000;

/// Creates a sweep of a process that starts now.
fn sweep(world: &World, cluster: Topology) -> Sweep {
    let options = SweepOptions { grace_ms: GRACE_MS, writers_gone_before_ms: world.clock.now_ms() };
    Sweep::new(cluster, world.clock.clone(), options)
}

/// Runs two passes, a grace time apart.
async fn run(world: &World, sweep: &mut Sweep) -> StepProgress {
    let first = run_once(sweep).await.unwrap();
    assert_eq!(first.freed, 0, "nothing goes at first sight");
    world.clock.advance_ms(GRACE_MS);
    run_once(sweep).await.unwrap()
}

/// Creates a sweep of a process that starts after all writes.
fn restart(world: &World) -> Sweep {
    world.clock.advance_ms(10);
    sweep(world, world.cluster.clone())
}

#[tokio::test]
async fn orphans_of_a_crash_are_removed_on_the_second_pass() {
    let world = World::new().await;
    let (orphan, owned) = (world.extents("k", None, 3).await, world.extents("l", None, 3).await);
    let spilled = world.spilled("m", 4).await;
    world.commit("l", &owned.body, false).await;
    world.commit("m", &spilled.body, false).await;
    let progress = run(&world, &mut restart(&world)).await;
    assert_eq!((progress.freed, progress.freed_bytes, progress.backlog), (3, 30, 0));
    assert!(world.is_gone(&orphan) && !world.is_gone(&owned) && !world.is_gone(&spilled));
}

#[tokio::test]
async fn a_second_look_within_the_grace_time_does_not_count() {
    let world = World::new().await;
    let orphan = world.extents("k", None, 1).await;
    let mut sweep = restart(&world);
    for _ in 0..3 {
        assert_eq!(run_once(&mut sweep).await.unwrap().freed, 0);
    }
    assert!(!world.is_gone(&orphan));
}

#[tokio::test]
async fn a_write_in_flight_is_kept_until_its_commit_window_is_over() {
    let world = World::new().await;
    let mut sweep = restart(&world);
    let in_flight = world.extents("k", None, 2).await;
    run(&world, &mut sweep).await;
    assert!(!world.is_gone(&in_flight));
    world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS + 1);
    run(&world, &mut sweep).await;
    assert!(world.is_gone(&in_flight));
}

#[tokio::test]
async fn a_clock_that_steps_back_before_the_start_takes_no_write_in_flight_with_it() {
    let world = World::new().await;
    let mut sweep = restart(&world);
    let started_ms = world.clock.now_ms();
    world.clock.set_ms(started_ms - 10 * GRACE_MS);
    run_once(&mut sweep).await.unwrap();
    let in_flight = world.extents("k", None, 2).await;
    run(&world, &mut sweep).await;
    world.clock.set_ms(started_ms + 10 * GRACE_MS);
    run(&world, &mut sweep).await;
    assert!(!world.is_gone(&in_flight));
    world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS + 1);
    run(&world, &mut sweep).await;
    assert!(world.is_gone(&in_flight));
}

#[tokio::test]
async fn without_a_word_about_writers_only_the_window_counts() {
    let world = World::new().await;
    let orphan = world.extents("k", None, 1).await;
    world.clock.advance_ms(COMMIT_WINDOW_MS);
    let options = SweepOptions { grace_ms: GRACE_MS, writers_gone_before_ms: 0 };
    let mut sweep = Sweep::new(world.cluster.clone(), world.clock.clone(), options);
    run_once(&mut sweep).await.unwrap();
    world.clock.advance_ms(GRACE_MS + 1);
    run(&world, &mut sweep).await;
    assert!(world.is_gone(&orphan));
}

#[tokio::test]
async fn parts_and_decided_uploads_are_owners_too() {
    let world = World::new().await;
    let (open, decided) = (UploadId::random(), UploadId::random());
    let part = world.extents("k", Some(open), 1).await;
    let taken = world.extents("k", Some(decided), 1).await;
    let dropped = world.extents("k", Some(open), 1).await;
    world.commit_part("k", open, 1, &part.body).await;
    world.decide_upload("k", decided, &taken.body).await;
    run(&world, &mut restart(&world)).await;
    assert!(!world.is_gone(&part) && !world.is_gone(&taken) && world.is_gone(&dropped));
}

/// The process that ended the upload died before it freed the parts.
#[tokio::test]
async fn parts_of_an_upload_that_ended_own_nothing_but_what_the_object_took() {
    let world = World::new().await;
    let (completed, aborted) = (UploadId::random(), UploadId::random());
    let taken = world.extents("k", Some(completed), 1).await;
    let unchosen = world.extents("k", Some(completed), 1).await;
    let given_up = world.extents("l", Some(aborted), 1).await;
    world.commit_part("k", completed, 1, &taken.body).await;
    world.commit_part("k", completed, 1, &unchosen.body).await;
    world.commit_part("l", aborted, 1, &given_up.body).await;
    let etag = ETag::Multipart { md5: [0; 16], parts: 1 };
    let ended = UploadState::Completed { write_id: WriteId::random(), etag };
    world.commit("k", &taken.body, false).await;
    run(&world, &mut restart(&world)).await;
    assert!(!world.is_gone(&unchosen) && !world.is_gone(&given_up), "nobody has ended it yet");
    world.set_upload("k", completed, ended).await;
    world.set_upload("l", aborted, UploadState::Aborted).await;
    run(&world, &mut restart(&world)).await;
    assert!(!world.is_gone(&taken) && world.is_gone(&unchosen) && world.is_gone(&given_up));
}

#[tokio::test]
async fn a_pass_follows_another_no_sooner_than_it_could_convict() {
    let world = World::new().await;
    let sweep = restart(&world);
    let (short, long) = (Duration::from_millis(GRACE_MS / 2), Duration::from_millis(GRACE_MS * 2));
    assert_eq!(sweep.idle_pause(short), Duration::from_millis(GRACE_MS));
    assert_eq!(sweep.idle_pause(long), long);
}

#[tokio::test]
async fn extents_of_deleted_buckets_go_and_those_of_lost_ones_stay() {
    let mut world = World::new().await;
    let kept = world.extents("k", None, 1).await;
    world.commit("k", &kept.body, false).await;
    let known = world.bucket;
    let mut of_others = Vec::new();
    for _ in 0..3 {
        world.bucket = BucketId::random();
        of_others.push((world.bucket, world.extents("k", None, 1).await));
    }
    world.bucket = known;
    let [(deleted, gone), (closed, unsure), (_, lost)] = of_others.try_into().unwrap();
    for device in [DeviceId(0), DeviceId(1)] {
        let ends = BucketFence::of_deleted(deleted);
        world.memory.fence(device, ends).await.unwrap();
        // A deletion that found objects, and did not open the bucket again.
        let begun = BucketFence { bucket: closed, generation: 2, open: false };
        world.memory.fence(device, begun).await.unwrap();
    }
    run(&world, &mut restart(&world)).await;
    assert!(world.is_gone(&gone) && !world.is_gone(&kept));
    assert!(!world.is_gone(&lost) && !world.is_gone(&unsure), "no register, and not deleted");
}

#[tokio::test]
async fn an_error_anywhere_means_keep() {
    for failing in [CallKind::Claims, CallKind::List, CallKind::ListExtents, CallKind::ReadExtent] {
        let world = World::new().await;
        let spilled = world.spilled("k", 2).await;
        let beside = world.extents("k", None, 1).await;
        world.commit("k", &spilled.body, false).await;
        world.clock.advance_ms(10);
        let cluster = world.faulty(move |call| {
            if call.op == failing { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
        });
        let mut sweep = sweep(&world, cluster);
        for _ in 0..4 {
            let _ = run_once(&mut sweep).await;
            world.clock.advance_ms(GRACE_MS);
        }
        assert!(!world.is_gone(&beside), "{failing:?} failed");
        assert!(!world.is_gone(&spilled), "{failing:?} failed");
    }
}

#[tokio::test]
async fn a_silent_index_device_keeps_everything() {
    let world = World::new().await;
    let orphan = world.extents("k", None, 4).await;
    let mut sweep = restart(&world);
    world.memory.set_offline(DeviceId(0), true);
    for _ in 0..4 {
        let _ = run_once(&mut sweep).await;
        world.clock.advance_ms(GRACE_MS);
    }
    world.memory.set_offline(DeviceId(0), false);
    assert!(!world.is_gone(&orphan));
    // The first pass ends behind the devices that it gave up.
    for _ in 0..3 {
        run_once(&mut sweep).await.unwrap();
        world.clock.advance_ms(GRACE_MS);
    }
    assert!(world.is_gone(&orphan));
}

/// Counts the calls of a kind.
fn counted(world: &World, calls: &Arc<Mutex<Vec<CallKind>>>) -> Topology {
    let calls = calls.clone();
    world.faulty(move |call| {
        calls.lock().push(call.op);
        Fault::None
    })
}

#[tokio::test]
async fn a_pass_makes_a_call_for_twenty_extents_at_most_and_reads_a_manifest_once() {
    let world = World::new().await;
    let (count, calls) = (3 * BATCH_MIN, Arc::new(Mutex::new(Vec::new())));
    let large = world.spilled("large", count / 2).await;
    world.commit("large", &large.body, false).await;
    let small = count - count / 2;
    for number in 0..small {
        let key = format!("k{number}");
        let owned = world.extents(&key, None, 1).await;
        world.commit(&key, &owned.body, false).await;
    }
    world.clock.advance_ms(10);
    let mut sweep = sweep(&world, counted(&world, &calls));
    let progress = run_once(&mut sweep).await.unwrap();
    assert_eq!((progress.items, progress.kept), (count as u64 + 1, 0));
    let calls = calls.lock();
    let of = |kind: CallKind| calls.iter().filter(|call| **call == kind).count();
    assert!(calls.len() * 20 <= count, "{} calls for {count} extents", calls.len());
    // Of two devices the first may deny the manifest.
    assert!((1..=2).contains(&of(CallKind::ReadExtent)), "{calls:?}");
    assert_eq!(of(CallKind::Read), 1, "of the hold on collection, and of no entry");
}

#[tokio::test]
async fn position_and_suspects_survive_a_restart() {
    let world = World::new().await;
    let orphans = world.extents("k", None, 3 * BATCH_MIN).await;
    let cursors: Arc<dyn Cursors> = Arc::new(MemoryCursors::default());
    let calls = Arc::new(Mutex::new(Vec::new()));
    world.clock.advance_ms(10);
    let begin = || sweep(&world, counted(&world, &calls)).with_cursors(cursors.clone());
    let mut steps = 0;
    loop {
        // The process ends after each step.
        steps += 1;
        if begin().step().await.unwrap().idle {
            break;
        }
    }
    let lists =
        |calls: &[CallKind]| calls.iter().filter(|call| **call == CallKind::ListExtents).count();
    // Two devices, at the same time: a full page and the rest, each in a step.
    assert_eq!((lists(&calls.lock()), steps), (4, 2), "no page was listed twice");
    world.clock.advance_ms(GRACE_MS);
    let mut again = begin();
    calls.lock().clear();
    while !world.left(&orphans.ids).is_empty() {
        again.step().await.unwrap();
        assert_eq!(lists(&calls.lock()), 0, "suspects need no second walk");
    }
}

#[tokio::test]
async fn an_error_in_the_middle_skips_the_extents_that_it_concerns() {
    let world = World::new().await;
    let spilled = world.spilled("k", 2).await;
    world.commit("k", &spilled.body, false).await;
    let orphan = world.extents("l", None, 5).await;
    world.clock.advance_ms(10);
    let cluster = world.faulty(move |call| match call.op {
        CallKind::ReadExtent => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let mut sweep = sweep(&world, cluster);
    let progress = run_once(&mut sweep).await.unwrap();
    assert_eq!((progress.kept, progress.backlog), (2, 5), "the manifest names itself");
    world.clock.advance_ms(GRACE_MS);
    assert_eq!(run_once(&mut sweep).await.unwrap().freed, 5);
    assert!(world.is_gone(&orphan) && !world.is_gone(&spilled));
}

/// A pass over many extents may take longer than a commit window.
#[tokio::test]
async fn a_bucket_that_was_made_during_a_pass_keeps_its_extents() {
    let mut world = World::new().await;
    let mut sweep = restart(&world);
    sweep.step().await.unwrap();
    world.make_another_bucket().await;
    let owned = world.extents("k", None, 3).await;
    world.commit("k", &owned.body, false).await;
    for _ in 0..3 {
        world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS + 1);
        run_once(&mut sweep).await.unwrap();
    }
    assert!(!world.is_gone(&owned));
}

#[tokio::test]
async fn more_extents_than_a_step_takes_are_all_looked_at() {
    let world = World::new().await;
    let orphans = world.extents("k", None, 3 * BATCH_MIN).await;
    let progress = run(&world, &mut restart(&world)).await;
    assert_eq!(progress.freed, 3 * BATCH_MIN as u64);
    assert!(world.is_gone(&orphans));
}

/// Of two devices, one hangs: the other one's extents are looked at in the same step.
#[tokio::test(start_paused = true)]
async fn a_device_that_hangs_holds_up_no_other() {
    let world = World::new().await;
    let orphans = world.extents("k", None, 64).await;
    world.clock.advance_ms(10);
    let cluster = world.faulty(|call| {
        let hangs = call.op == CallKind::ListExtents && call.device == DeviceId(1);
        if hangs { Fault::Hang } else { Fault::None }
    });
    let mut sweep = sweep(&world, cluster);
    let on_first = world.memory.extents(DeviceId(0)).len() as u64;
    assert!(on_first > 0 && on_first < 64);
    let progress = sweep.step().await.unwrap();
    assert_eq!((progress.items, progress.backlog, progress.idle), (on_first, on_first, false));
    for _ in 0..2 {
        assert!(sweep.step().await.is_err(), "the other one is tried again");
    }
    world.clock.advance_ms(GRACE_MS);
    assert_eq!(sweep.step().await.unwrap().freed, on_first);
    assert_eq!(world.left(&orphans.ids).len() as u64, 64 - on_first);
}

/// A device that never answers again would hold all places for ever.
/// Stores an extent without an owner on one of both devices.
async fn orphan_on(world: &World, device: DeviceId) -> StoredBody {
    loop {
        let orphan = world.extents("k", None, 1).await;
        if u32::from(orphan.ids[0].0[0] & 1) == device.0 {
            return orphan;
        }
        world.memory.delete_extents(DeviceId(1 - device.0), &orphan.ids).await.unwrap();
    }
}

#[tokio::test]
async fn suspects_of_a_silent_device_do_not_stop_the_sweep_of_the_others() {
    let world = World::new().await;
    let (silent, orphan) = (DeviceId(0), orphan_on(&world, DeviceId(1)).await);
    let cluster = world.faulty(move |call| match call.op {
        CallKind::SeekExtents | CallKind::ListExtents if call.device == silent => {
            Fault::Refuse(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    world.clock.advance_ms(10);
    let mut sweep = sweep(&world, cluster);
    let now_ms = world.clock.now_ms();
    for number in 0..suspects::SUSPECTS_MAX as u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        assert!(sweep.suspects.add(silent, ExtentId(bytes), now_ms));
    }
    for _ in 0..20 {
        world.clock.advance_ms(GRACE_MS);
        for _ in 0..4 {
            // The silence is reported.
            let _ = sweep.step().await;
        }
    }
    assert!(world.is_gone(&orphan), "{} suspects are left", sweep.suspects.len());
}

#[tokio::test]
async fn suspects_of_a_device_that_refuses_deletes_do_not_fill_the_table() {
    let world = World::new().await;
    let refusing = DeviceId(0);
    let orphan = orphan_on(&world, refusing).await;
    let cluster = world.faulty(move |call| match call.op {
        CallKind::DeleteUnneeded if call.device == refusing => {
            Fault::Refuse(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    world.clock.advance_ms(10);
    let mut sweep = sweep(&world, cluster);
    assert!(sweep.suspects.add(refusing, orphan.ids[0], world.clock.now_ms()));
    world.clock.advance_ms(GRACE_MS);
    // They aren't ripe yet.
    for number in 1..suspects::SUSPECTS_MAX as u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        assert!(sweep.suspects.add(refusing, ExtentId(bytes), world.clock.now_ms()));
    }
    sweep.step().await.unwrap_err();
    assert_eq!(sweep.suspects.len(), 0, "others find room");
    assert!(!world.is_gone(&orphan));
}

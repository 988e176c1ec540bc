//! Buckets whose deleter died before the purge are closed for good, and others are not.

use std::sync::Arc;

use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::AccountDocument;
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INDEX_SHARDS_DEFAULT};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Clock, DeviceId, ExtentId, PolicyId};

use super::*;
use crate::cluster::DeviceScope;
use crate::collect::{Collect, CollectOptions};
use crate::replicate::testing::{BUCKET, extent_id};
use crate::testing::multi_node::{MultiNodeWorld, key};
use crate::{IndexLoss, Sweep, SweepOptions, run_once};

const DEVICES: u32 = 5;
const GRACE_MS: u64 = 1000;

fn everyone() -> Vec<DeviceId> {
    (0..DEVICES).map(DeviceId).collect()
}

async fn fence_on(world: &MultiNodeWorld, devices: &[DeviceId], fence: BucketFence) {
    for device in devices {
        world.memory(*device).fence(*device, fence).await.unwrap();
    }
}

/// Makes a bucket that is closed on all devices and has no register, with an extent that nothing names.
async fn unpurged_bucket() -> (MultiNodeWorld, ExtentId) {
    let world = MultiNodeWorld::new(DEVICES);
    let orphan = extent_id(1);
    world.extent_on(&world.data_primaries(orphan), orphan, "k").await;
    let closed = BucketFence { bucket: BUCKET, generation: 2, open: false };
    fence_on(&world, &everyone(), closed).await;
    (world, orphan)
}

fn worker(world: &MultiNodeWorld, scope: DeviceScope) -> Collect {
    let options = CollectOptions { age_ms: 60_000 };
    Collect::new(world.shared.clone(), world.clock.clone(), scope, options)
}

/// Number of devices that know the end of the bucket's deletion.
async fn closed_for_good(world: &MultiNodeWorld) -> usize {
    let mut count = 0;
    for device in everyone() {
        let fences = world.memory(device).fences(device).await.unwrap();
        count += usize::from(fences.contains(&BucketFence::of_deleted(BUCKET)));
    }
    count
}

/// Runs a pass ten minutes after the last one; returns the number of devices that know the end of the deletion.
async fn later_pass(world: &MultiNodeWorld, worker: &mut Collect) -> usize {
    world.clock.advance_ms(APART_MS);
    run_once(worker).await.unwrap();
    closed_for_good(world).await
}

/// Makes a world with an unpurged bucket, and a worker that has found the bucket once.
async fn found_once() -> (MultiNodeWorld, Collect) {
    let (world, _) = unpurged_bucket().await;
    let mut worker = worker(&world, DeviceScope::All);
    assert_eq!(later_pass(&world, &mut worker).await, 0);
    assert!(worker.unpurged.is_waiting());
    (world, worker)
}

/// Runs passes of a new sweep; returns true if no device has the extent afterwards.
async fn is_swept(world: &MultiNodeWorld, id: ExtentId) -> bool {
    let options = SweepOptions::among_others(GRACE_MS);
    let mut sweep = Sweep::new(world.shared.clone(), world.clock.clone(), options);
    world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS);
    for _ in 0..3 {
        run_once(&mut sweep).await.unwrap();
        world.clock.advance_ms(GRACE_MS + 1);
    }
    everyone().into_iter().all(|device| !world.memory(device).extents(device).contains(&id))
}

#[tokio::test]
async fn m2_extents_of_a_deletion_without_a_purge_are_swept() {
    let (world, orphan) = unpurged_bucket().await;
    let mut worker = worker(&world, DeviceScope::All);
    assert_eq!(later_pass(&world, &mut worker).await, 0, "found once");
    run_once(&mut worker).await.unwrap();
    assert_eq!(closed_for_good(&world).await, 0, "too early");
    assert!(!is_swept(&world, orphan).await, "unknown");
    assert_eq!(later_pass(&world, &mut worker).await, everyone().len());
    assert!(!worker.unpurged.is_waiting());
    assert!(is_swept(&world, orphan).await);
}

#[tokio::test]
async fn m2_one_device_that_knows_the_end_of_a_deletion_informs_all() {
    let (world, orphan) = unpurged_bucket().await;
    fence_on(&world, &[DeviceId(DEVICES - 1)], BucketFence::of_deleted(BUCKET)).await;
    assert!(!is_swept(&world, orphan).await, "the sweep asks three others");
    // A device without votes may have forgotten a fence that is open.
    let voteless = DeviceId(1);
    world.memory(voteless).set_voting(voteless, false).await.unwrap();
    run_once(&mut worker(&world, DeviceScope::All)).await.unwrap();
    assert_eq!(closed_for_good(&world).await, 1);
    world.memory(voteless).set_voting(voteless, true).await.unwrap();
    run_once(&mut worker(&world, DeviceScope::All)).await.unwrap();
    assert_eq!(closed_for_good(&world).await, everyone().len());
    assert!(is_swept(&world, orphan).await);
}

#[tokio::test]
async fn m2_one_process_closes_buckets() {
    let (world, _) = unpurged_bucket().await;
    fence_on(&world, &[DeviceId(3)], BucketFence::of_deleted(BUCKET)).await;
    let mut other = worker(&world, DeviceScope::Nodes(vec!["n1".into(), "n2".into()]));
    run_once(&mut other).await.unwrap();
    assert_eq!(closed_for_good(&world).await, 1);
    let mut first = worker(&world, DeviceScope::Nodes(vec!["n0".into()]));
    run_once(&mut first).await.unwrap();
    assert_eq!(closed_for_good(&world).await, everyone().len());
}

#[tokio::test]
async fn m2_a_listed_bucket_is_not_closed_for_good() {
    let (world, mut worker) = found_once().await;
    world.make_bucket(PolicyId(0)).await;
    for _ in 0..3 {
        assert_eq!(later_pass(&world, &mut worker).await, 0);
        assert!(!worker.unpurged.is_waiting());
    }
    // Only a handoff knows the bucket.
    let (world, mut worker) = found_once().await;
    let other = MultiNodeWorld::new(DEVICES);
    other.make_bucket(PolicyId(0)).await;
    let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
    let entry = other.read_on(other.primaries(&root)[0], &root).await.unwrap();
    let mut kept = world.write(&root);
    kept.entry.value = entry.value;
    world.keep_on(world.handoff(&root), &kept).await;
    for _ in 0..3 {
        assert_eq!(later_pass(&world, &mut worker).await, 0);
    }
}

#[tokio::test]
async fn m2_a_bucket_with_a_register_or_a_hint_is_not_closed_for_good() {
    let (world, mut worker) = found_once().await;
    world.clock.advance_ms(APART_MS);
    let write = world.inline(&key("k"));
    world.write_on(&[DeviceId(4)], &EntryWrite { mode: WriteMode::Repair, ..write }).await;
    run_once(&mut worker).await.unwrap();
    assert_eq!(closed_for_good(&world).await, 0);
    assert!(!worker.unpurged.is_waiting());

    let world = MultiNodeWorld::new(DEVICES);
    let hint = world.inline(&key("k"));
    world.keep_on(world.handoff(&hint.key), &hint).await;
    let closed = BucketFence { bucket: BUCKET, generation: 2, open: false };
    fence_on(&world, &everyone(), closed).await;
    let mut worker = self::worker(&world, DeviceScope::All);
    for _ in 0..3 {
        assert_eq!(later_pass(&world, &mut worker).await, 0);
    }
    assert_eq!(world.hints().await, 1);
}

#[tokio::test]
async fn m2_a_bucket_that_an_operator_brings_back_is_not_closed_for_good() {
    let (world, mut worker) = found_once().await;
    let mut claim = world.write(&adoption_register(BUCKET));
    claim.entry.value = Value::Account(AccountDocument::new(b"again".to_vec()));
    world.write_on(&world.primaries(&claim.key)[..1], &claim).await;
    for _ in 0..3 {
        assert_eq!(later_pass(&world, &mut worker).await, 0);
    }
    // Nor is any while collection is held.
    let (world, mut worker) = found_once().await;
    let clock: Arc<dyn Clock> = world.clock.clone();
    IndexLoss::hold(&world.shared, &clock).await.unwrap();
    // A worker that doesn't know of the hold yet.
    world.clock.advance_ms(APART_MS);
    let now_ms = world.clock.now_ms();
    let held = worker.unpurged.close(&world.step(), &*worker.cursors, now_ms).await;
    assert!(held.is_err_and(|error| error.to_string().contains("held")));
    assert_eq!(later_pass(&world, &mut worker).await, 0);
    IndexLoss::release(&world.shared, &clock).await.unwrap();
    assert_eq!(later_pass(&world, &mut worker).await, everyone().len());
}

#[tokio::test]
async fn m2_silence_closes_no_bucket_for_good() {
    let (world, mut worker) = found_once().await;
    for silent in everyone() {
        world.memory(silent).set_offline(silent, true);
        world.clock.advance_ms(APART_MS);
        let _ = run_once(&mut worker).await;
        world.memory(silent).set_offline(silent, false);
        assert_eq!(closed_for_good(&world).await, 0, "without device {silent}");
    }
    let voteless = DeviceId(2);
    world.memory(voteless).set_voting(voteless, false).await.unwrap();
    assert_eq!(later_pass(&world, &mut worker).await, 0, "it may have forgotten");
    world.memory(voteless).set_voting(voteless, true).await.unwrap();
    assert_eq!(later_pass(&world, &mut worker).await, everyone().len());
}

#[tokio::test]
async fn m2_a_bucket_that_was_opened_again_is_not_closed_for_good() {
    for device in everyone() {
        let (world, mut worker) = found_once().await;
        let open = BucketFence { bucket: BUCKET, generation: 3, open: true };
        fence_on(&world, &[device], open).await;
        for _ in 0..3 {
            assert_eq!(later_pass(&world, &mut worker).await, 0, "open on {device}");
        }
        assert!(!worker.unpurged.is_waiting());
    }
}

/// Buckets that can't be closed fill a check, and the bucket that can has a higher id. The position outlives a restart.
#[tokio::test]
async fn m2_buckets_behind_many_that_stay_closed_are_closed_for_good_over_passes() {
    const OTHERS: u16 = 2100;
    let (world, _) = unpurged_bucket().await;
    for number in 0..OTHERS {
        let mut id = [0; 16];
        // Below the id of the unpurged bucket, which is 0707…
        id[1..3].copy_from_slice(&number.to_be_bytes());
        let bucket = BucketId(id);
        let closed = BucketFence { bucket, generation: 2, open: false };
        fence_on(&world, &everyone(), closed).await;
        let key = RegisterKey::object(bucket, 16, "k");
        let write = world.inline(&key);
        world.write_on(&[DeviceId(4)], &EntryWrite { mode: WriteMode::Repair, ..write }).await;
    }
    let cursors: Arc<dyn Cursors> = Arc::new(crate::cursors::MemoryCursors::default());
    let mut unpurged = UnpurgedBuckets::default();
    let mut passes = 0;
    while closed_for_good(&world).await == 0 {
        passes += 1;
        assert!(passes <= 8, "it is never met");
        world.clock.advance_ms(APART_MS);
        let closed = unpurged.close(&world.step(), &*cursors, world.clock.now_ms()).await;
        assert_eq!(closed.unwrap(), u64::from(closed_for_good(&world).await > 0));
        if passes == 2 {
            // A restart between the passes.
            assert!(unpurged.is_waiting(), "not all were looked at");
            unpurged = UnpurgedBuckets::default();
        }
    }
    assert_eq!(closed_for_good(&world).await, everyone().len());
    assert_eq!(passes, 4, "two passes of 1,000, the rest, and the second look");
}

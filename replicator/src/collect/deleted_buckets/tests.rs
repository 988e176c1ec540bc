//! Registers of deleted buckets are removed, and nothing else.

use std::sync::Arc;

use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::Value;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BackendExt, Clock, PolicyId, RegisterKey};

use crate::IndexLoss;
use crate::cluster::DeviceScope;
use crate::collect::{Collect, CollectOptions};
use crate::replicate::testing::BUCKET;
use crate::testing::multi_node::{MultiNodeWorld, key};
use crate::{ReplicateRegisters, run_once};

use super::*;

const DEVICES: u32 = 5;
const KEYS: usize = 40;

fn everyone() -> Vec<DeviceId> {
    (0..DEVICES).map(DeviceId).collect()
}

fn name_of_bucket() -> RegisterKey {
    RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket")
}

/// Makes a bucket with objects, one of them with a hint; every device has recorded that it is
/// closed.
async fn closed_bucket() -> MultiNodeWorld {
    let world = MultiNodeWorld::new(DEVICES);
    world.make_bucket(PolicyId(0)).await;
    for number in 0..KEYS {
        let write = world.inline(&key(&format!("k{number}")));
        world.write_on(&world.primaries(&write.key), &write).await;
    }
    let write = world.inline(&key("hinted"));
    world.keep_on(world.handoff(&write.key), &write).await;
    let fence = BucketFence { bucket: BUCKET, generation: 2, open: false };
    for device in everyone() {
        world.memory(device).fence(device, fence).await.unwrap();
    }
    world
}

/// Returns the write that deletes the bucket.
fn tombstone(world: &MultiNodeWorld) -> EntryWrite {
    let mut write = world.write(&name_of_bucket());
    write.entry.value = Value::Tombstone;
    write
}

/// Deletes the bucket without a purge, and waits until no write can be in flight.
async fn deleted_bucket() -> MultiNodeWorld {
    let world = closed_bucket().await;
    world.write_on(&world.primaries(&name_of_bucket()), &tombstone(&world)).await;
    grow_old(&world);
    world
}

fn grow_old(world: &MultiNodeWorld) {
    world.clock.advance_ms(FIRST_HAND_AGE_MS_MAX + 1000);
}

/// Number of the bucket's registers on all devices.
fn left(world: &MultiNodeWorld) -> usize {
    let of = |device| {
        let all = world.memory(device).registers(device);
        all.iter().filter(|(key, _)| key.bucket == BUCKET).count()
    };
    everyone().into_iter().map(of).sum()
}

async fn collect(world: &MultiNodeWorld) -> u64 {
    let options = CollectOptions { age_ms: 60_000 };
    let worker = Collect::new(world.shared.clone(), world.clock.clone(), DeviceScope::All, options);
    run_once(&mut { worker }).await.unwrap().done
}

async fn replicate(world: &MultiNodeWorld) {
    let worker =
        ReplicateRegisters::new(world.shared.clone(), world.clock.clone(), DeviceScope::All);
    run_once(&mut { worker }).await.unwrap();
}

async fn is_closed(world: &MultiNodeWorld, device: DeviceId) -> bool {
    let fences = world.memory(device).fences(device).await.unwrap();
    fences.iter().any(|fence| fence.bucket == BUCKET && !fence.open)
}

#[tokio::test]
async fn m2_what_a_dead_deleter_left_is_taken_and_the_bucket_stays_closed() {
    let world = closed_bucket().await;
    world.write_on(&world.primaries(&name_of_bucket()), &tombstone(&world)).await;
    collect(&world).await;
    assert_eq!(left(&world), 3 * KEYS, "a write may be on its way yet");
    grow_old(&world);
    assert!(collect(&world).await > 0);
    assert_eq!((left(&world), world.hints().await), (0, 0));
    for device in everyone() {
        assert!(is_closed(&world, device).await);
    }
    let again = world.memory(DeviceId(0)).write(DeviceId(0), world.inline(&key("again"))).await;
    assert_eq!(again.unwrap(), martlet_protocol::backend::WriteReply::Fenced);
}

#[tokio::test]
async fn m2_a_stale_fence_takes_nothing_of_a_bucket_that_lost_its_register() {
    // A deletion was given up while a device was out: it has the closed fence yet.
    let world = deleted_bucket().await;
    let open = BucketFence { bucket: BUCKET, generation: 3, open: true };
    let stale = world.primaries(&key("k0"))[0];
    for device in everyone().into_iter().filter(|device| *device != stale) {
        world.memory(device).fence(device, open).await.unwrap();
    }
    replicate(&world).await;
    collect(&world).await;
    assert_eq!(left(&world), 3 * KEYS);
    // Nor does a deletion that ended: an operator may bring the register back under a hold.
    let world = deleted_bucket().await;
    let clock: Arc<dyn Clock> = world.clock.clone();
    IndexLoss::hold(&world.shared, &clock).await.unwrap();
    replicate(&world).await;
    collect(&world).await;
    assert_eq!(left(&world), 3 * KEYS);
    IndexLoss::release(&world.shared, &clock).await.unwrap();
    grow_old(&world);
    assert!(collect(&world).await > 0);
    assert_eq!(left(&world), 0);
}

#[tokio::test]
async fn m2_a_bucket_known_to_any_device_keeps_its_entries() {
    let world = closed_bucket().await;
    grow_old(&world);
    collect(&world).await;
    assert_eq!(left(&world), 3 * KEYS, "it is closed, and not deleted");
    // One primary of its name has missed the deletion.
    let primaries = world.primaries(&name_of_bucket());
    let gone = tombstone(&world);
    world.write_on(&primaries[1..], &gone).await;
    collect(&world).await;
    assert_eq!(left(&world), 3 * KEYS);
    // A handoff keeps the bucket's entry as a hint.
    let world = closed_bucket().await;
    let held = world.read_on(primaries[0], &name_of_bucket()).await.unwrap();
    world.write_on(&primaries, &tombstone(&world)).await;
    let kept = EntryWrite { entry: held, ..world.write(&name_of_bucket()) };
    world.keep_on(world.handoff(&name_of_bucket()), &kept).await;
    grow_old(&world);
    collect(&world).await;
    assert_eq!(left(&world), 3 * KEYS);
}

#[tokio::test]
async fn m2_silence_keeps_what_is_left_of_a_bucket() {
    let world = deleted_bucket().await;
    for silent in everyone() {
        world.memory(silent).set_offline(silent, true);
        collect(&world).await;
        replicate(&world).await;
        world.memory(silent).set_offline(silent, false);
        assert_eq!(left(&world), 3 * KEYS, "without device {silent}");
    }
    collect(&world).await;
    assert_eq!(left(&world), 0);
}

#[tokio::test]
async fn m2_a_list_of_buckets_that_was_lost_takes_nothing_with_it() {
    let world = MultiNodeWorld::new(DEVICES);
    for number in 0..KEYS {
        let write = world.inline(&key(&format!("k{number}")));
        world.write_on(&world.primaries(&write.key)[number % 3..], &write).await;
    }
    grow_old(&world);
    collect(&world).await;
    replicate(&world).await;
    assert_eq!(left(&world), 3 * KEYS, "nobody was told that the bucket is closed");
}

#[tokio::test]
async fn m2_who_was_out_does_not_hand_on_what_is_left_of_a_bucket() {
    let world = deleted_bucket().await;
    let out = DeviceId(2);
    let before = left(&world);
    for device in everyone().into_iter().filter(|device| *device != out) {
        // The worker that purged it died before it closed the bucket again.
        world.memory(device).purge_bucket(device, BUCKET).await.unwrap();
    }
    assert!(left(&world) > 0 && left(&world) < before);
    replicate(&world).await;
    assert_eq!(left(&world), 0);
    assert!(is_closed(&world, out).await);

    // A device without the fence gets registers from a device that returned.
    let world = deleted_bucket().await;
    for device in everyone().into_iter().filter(|device| *device != out) {
        world.wipe(device).await;
        world.memory(device).set_voting(device, true).await.unwrap();
        let repair = martlet_protocol::register::WriteMode::Repair;
        let write = EntryWrite { mode: repair, ..world.inline(&key("brought back")) };
        world.write_on(&[device], &write).await;
    }
    grow_old(&world);
    collect(&world).await;
    assert_eq!(left(&world), 0);
}

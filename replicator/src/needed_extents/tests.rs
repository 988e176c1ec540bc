//! Devices that must agree before an extent is deleted, in a cluster of several nodes (rule X3).

use bytes::Bytes;
use futures::{StreamExt, stream};
use martlet_protocol::backend::{BucketFence, EntryWrite, NewExtent};
use martlet_protocol::entry::{Bucket, BucketState, Manifest, Value};
use martlet_protocol::extent::{ExtentRole, Layout, Owner};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INDEX_SHARDS_DEFAULT};
use martlet_protocol::{Backend, BackendExt, VersionId, WriteId};

use super::*;
use crate::testing::POLICY;
use crate::testing::multi_node::{MultiNodeWorld, key, write};
use crate::{Reclaim, ReclaimOptions, StepProgress, Sweep, SweepOptions, run_once};

const GRACE_MS: u64 = 1000;

/// Stores an extent of `key` on its primaries, and on one handoff.
async fn extent(world: &MultiNodeWorld, key: &RegisterKey) -> (Body, ExtentId) {
    let owner = Owner {
        bucket: key.bucket,
        key: String::from_utf8(key.name.to_vec()).unwrap(),
        write_id: WriteId::random(),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    };
    let id = ExtentId::random();
    let ring = world.data(POLICY);
    let partition = ring.partition(id.placement());
    let mut extents = Vec::new();
    for device in ring.primaries(partition).chain(ring.handoffs(partition).take(1)) {
        let body = stream::iter([Ok(Bytes::from_static(b"bytes"))]).boxed();
        let new = NewExtent {
            id,
            owner: owner.clone(),
            length: None,
            birth_ms: None,
            layout: Layout::default(),
            hashes: None,
        };
        extents = vec![world.memory(device).write_extent(device, new, body).await.unwrap()];
    }
    (
        Body::Extents(Manifest {
            policy: POLICY,
            extents,
            parts: Vec::new(),
            part_checksums: Vec::new(),
        }),
        id,
    )
}

/// Makes a new write of `key` with a body.
fn object(world: &MultiNodeWorld, key: &RegisterKey, body: Body) -> EntryWrite {
    world.clock.advance_ms(1);
    write(key, world.stamps.issue(), 5, body)
}

/// Number of devices that have an extent.
fn copies(world: &MultiNodeWorld, id: ExtentId) -> usize {
    (0..5).map(DeviceId).filter(|at| world.memory(*at).extents(*at).contains(&id)).count()
}

async fn make_bucket(world: &MultiNodeWorld, id: BucketId) {
    let bucket = Bucket {
        id,
        created_ms: 0,
        generation: 1,
        state: BucketState::Open,
        index_shards: 16,
        policy: POLICY,
        owner: "root".into(),
        consistency: martlet_protocol::Level::default(),
        settings: martlet_protocol::Settings::default(),
    };
    let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
    let mut made = object(world, &root, Body::Empty);
    made.entry.value = Value::Bucket(Box::new(bucket));
    world.write_on(&world.primaries(&root), &made).await;
}

/// Makes a world in which `key` was overwritten: its old extent is garbage on every primary.
async fn overwritten() -> (MultiNodeWorld, RegisterKey, EntryWrite, ExtentId) {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    make_bucket(&world, key.bucket).await;
    let (body, id) = extent(&world, &key).await;
    let old = object(&world, &key, body);
    world.write_on(&world.primaries(&key), &old).await;
    (world, key, old, id)
}

async fn overwrite(world: &MultiNodeWorld, key: &RegisterKey, on: &[DeviceId]) -> EntryWrite {
    let new = object(world, key, Body::Empty);
    world.write_on(on, &new).await;
    world.clock.advance_ms(GRACE_MS + 1);
    new
}

async fn reclaim(world: &MultiNodeWorld) -> StepProgress {
    let options = ReclaimOptions { grace_ms: GRACE_MS };
    let mut worker = Reclaim::new(world.shared.clone(), world.clock.clone(), options);
    let mut totals = StepProgress::default();
    // A silent device ends a step; the next steps go on.
    for _ in 0..20 {
        if let Ok(progress) = crate::Worker::step(&mut worker).await {
            totals.add(&progress);
        }
    }
    totals
}

/// Runs passes of the sweep long after every commit window.
async fn sweep(world: &MultiNodeWorld, sweep: &mut Sweep) {
    for _ in 0..30 {
        world.clock.advance_ms(GRACE_MS);
        let _ = crate::Worker::step(sweep).await;
    }
}

fn sweeper(world: &MultiNodeWorld) -> Sweep {
    Sweep::new(world.shared.clone(), world.clock.clone(), SweepOptions::among_others(GRACE_MS))
}

#[tokio::test]
async fn every_copy_goes_once_all_primaries_hold_the_newer_entry() {
    let (world, key, _, id) = overwritten().await;
    assert_eq!(copies(&world, id), 4);
    overwrite(&world, &key, &world.primaries(&key)).await;
    assert_eq!(reclaim(&world).await.freed, 1);
    assert_eq!(copies(&world, id), 0, "handoffs too");
    for device in world.primaries(&key) {
        assert_eq!(world.memory(device).garbage(device, u64::MAX, 9).await.unwrap(), []);
    }
}

#[tokio::test]
async fn garbage_of_one_replica_stays_while_another_missed_the_newer_entry() {
    let (world, key, _, id) = overwritten().await;
    let primaries = world.primaries(&key);
    let new = overwrite(&world, &key, &primaries[..2]).await;
    world.memory(primaries[2]).set_offline(primaries[2], true);
    assert_eq!(reclaim(&world).await.freed, 0);
    world.memory(primaries[2]).set_offline(primaries[2], false);
    assert_eq!((reclaim(&world).await.freed, copies(&world, id)), (0, 4), "it still names them");
    // The last replica or the sweep finds garbage records that were forgotten meanwhile.
    world.write_on(&primaries[2..], &new).await;
    world.clock.advance_ms(GRACE_MS + 1);
    assert_eq!((reclaim(&world).await.freed, copies(&world, id)), (1, 0));
}

/// One primary holds a write under a newer one. The other two know neither yet, and a running
/// ballot will bring them the first.
#[tokio::test]
async fn garbage_of_a_write_that_is_still_under_way_stays() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    make_bucket(&world, key.bucket).await;
    let (body, id) = extent(&world, &key).await;
    let (mut first, primaries) = (object(&world, &key, body), world.primaries(&key));
    world.write_on(&primaries[..1], &first).await;
    overwrite(&world, &key, &primaries[..1]).await;
    assert_eq!((reclaim(&world).await.freed, copies(&world, id)), (0, 4), "nobody can tell");
    first.entry.order = world.stamps.issue();
    world.write_on(&primaries, &first).await;
    world.clock.advance_ms(GRACE_MS + 1);
    assert_eq!((reclaim(&world).await.freed, copies(&world, id)), (0, 4), "it has won");
    overwrite(&world, &key, &primaries).await;
    assert_eq!((reclaim(&world).await.freed, copies(&world, id)), (1, 0));
}

#[tokio::test]
async fn a_silent_or_voteless_primary_and_a_silent_handoff_mean_keep() {
    for case in 0..3 {
        let (world, key, _, id) = overwritten().await;
        let primaries = world.primaries(&key);
        overwrite(&world, &key, &primaries).await;
        let victim = if case == 2 { world.handoff(&key) } else { primaries[1] };
        let memory = world.memory(victim);
        if case == 1 {
            memory.set_voting(victim, false).await.unwrap();
        } else {
            memory.set_offline(victim, true);
        }
        assert_eq!(reclaim(&world).await.freed, 0, "case {case}");
        let mut swept = sweeper(&world);
        world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS);
        sweep(&world, &mut swept).await;
        assert_eq!(copies(&world, id), 4, "case {case}");
        memory.set_voting(victim, true).await.ok();
        memory.set_offline(victim, false);
        assert_eq!((reclaim(&world).await.freed, copies(&world, id)), (1, 0), "case {case}");
    }
}

#[tokio::test]
async fn extents_of_a_hint_are_kept_until_its_delivery() {
    let (world, key, _, id) = overwritten().await;
    overwrite(&world, &key, &world.primaries(&key)).await;
    let (body, hinted) = extent(&world, &key).await;
    let hint = object(&world, &key, body);
    world.keep_on(world.handoff(&key), &hint).await;
    world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS);
    let mut swept = sweeper(&world);
    sweep(&world, &mut swept).await;
    assert_eq!((copies(&world, id), copies(&world, hinted)), (0, 4));
    let handoff = world.handoff(&key);
    world.memory(handoff).forget_hint(handoff, &key, hint.entry.order).await.unwrap();
    sweep(&world, &mut swept).await;
    assert_eq!(copies(&world, hinted), 0);
}

/// A version beside the head of its key, on any primary or in any hint, keeps its extents.
#[tokio::test]
async fn x3_what_a_version_beside_the_head_names_stays() {
    let (world, key, _, id) = overwritten().await;
    let primaries = world.primaries(&key);
    let numbered = VersionId::Numbered { position: 7, write_id: WriteId::random() };
    for (version, hinted) in [(numbered, false), (VersionId::Null, false), (numbered, true)] {
        let beside = RegisterKey::version(&key, version);
        let (body, kept) = extent(&world, &key).await;
        let aside = object(&world, &beside, body);
        if hinted {
            world.keep_on(world.handoff(&key), &aside).await;
        } else {
            // One primary has it: the others may get it soon.
            world.write_on(&primaries[1..2], &aside).await;
            assert_eq!(reclaim(&world).await.freed, 0, "{version}");
            world.write_on(&primaries, &aside).await;
        }
        overwrite(&world, &key, &primaries).await;
        world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS);
        let mut swept = sweeper(&world);
        sweep(&world, &mut swept).await;
        reclaim(&world).await;
        assert_eq!((copies(&world, id), copies(&world, kept)), (0, 4), "{version} {hinted}");
        let mut gone = object(&world, &beside, Body::Empty);
        gone.entry.value = Value::Tombstone;
        if hinted {
            world.keep_on(world.handoff(&key), &gone).await;
        } else {
            world.write_on(&primaries, &gone).await;
        }
        sweep(&world, &mut swept).await;
        assert_eq!(copies(&world, kept), 0, "{version} {hinted}");
    }
}

#[tokio::test]
async fn among_others_nothing_goes_before_its_commit_window_is_over() {
    let (world, key, _, _) = overwritten().await;
    let (_, orphan) = extent(&world, &key).await;
    let mut swept = sweeper(&world);
    sweep(&world, &mut swept).await;
    world.clock.advance_ms(COMMIT_WINDOW_MS - 60 * GRACE_MS);
    sweep(&world, &mut swept).await;
    assert_eq!(copies(&world, orphan), 4);
    world.clock.advance_ms(60 * GRACE_MS);
    sweep(&world, &mut swept).await;
    assert_eq!(copies(&world, orphan), 0);
}

#[tokio::test]
async fn a_bucket_that_only_one_primary_knows_keeps_its_extents() {
    let world = MultiNodeWorld::new(5);
    let key = key("k");
    let (_, unknown) = extent(&world, &key).await;
    let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
    make_bucket(&world, key.bucket).await;
    let (body, owned) = extent(&world, &key).await;
    world.write_on(&world.primaries(&key), &object(&world, &key, body)).await;
    for device in &world.primaries(&root)[1..] {
        let memory = world.memory(*device);
        let fence = BucketFence { bucket: BucketId::ROOT, generation: 1, open: false };
        memory.fence(*device, fence).await.unwrap();
        memory.purge_bucket(*device, BucketId::ROOT).await.unwrap();
    }
    world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS);
    let mut swept = sweeper(&world);
    sweep(&world, &mut swept).await;
    assert_eq!((copies(&world, unknown), copies(&world, owned)), (0, 4));
}

#[tokio::test]
async fn a_process_sweeps_the_devices_that_it_looks_after() {
    let (world, key, _, _) = overwritten().await;
    let (_, orphan) = extent(&world, &key).await;
    world.clock.advance_ms(COMMIT_WINDOW_MS + GRACE_MS);
    for left in (0..5).rev() {
        let scope = crate::DeviceScope::Nodes(vec![format!("n{left}")]);
        let mut swept = sweeper(&world).limited_to(scope);
        sweep(&world, &mut swept).await;
        let there = |at: u32| world.memory(DeviceId(at)).extents(DeviceId(at)).contains(&orphan);
        assert!((left..5).all(|at| !there(at)), "n{left}");
    }
    run_once(&mut sweeper(&world)).await.unwrap();
}

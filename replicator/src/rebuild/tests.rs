//! Loss of most replicas of a partition: the hold, the acceptance, and the scan for keys.

mod again;
mod late;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::NewExtent;
use martlet_protocol::entry::{Body, Bucket, BucketState, Manifest, Value};
use martlet_protocol::extent::{BodyFacts, ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INDEX_SHARDS_DEFAULT};
use martlet_protocol::lost::LostKey;
use martlet_protocol::testing::whole_body;
use martlet_protocol::{
    Backend, BackendExt, BucketId, Clock, DeviceId, ExtentId, Partition, RegisterKey, Settings,
    Stamp, WriteId,
};

use super::loss::CollectionHold;
use super::*;
use crate::replicate::delete_marks::check_marks;
use crate::testing::POLICY;
use crate::testing::multi_node::{MultiNodeWorld, key, write};
use crate::worker::StepProgress;
use crate::{Sweep, SweepOptions, Worker, run_once};

const GRACE_MS: u64 = 1000;

/// Devices that lose their registers: the primaries of one key.
fn lost_devices(world: &MultiNodeWorld) -> Vec<DeviceId> {
    world.primaries(&key("lost"))
}

/// A key whose replicas are all on the lost devices, or most of them, or one.
fn key_with(world: &MultiNodeWorld, lost: usize) -> RegisterKey {
    let devices = lost_devices(world);
    let on_lost = |key: &RegisterKey| {
        world.primaries(key).iter().filter(|device| devices.contains(device)).count()
    };
    let mut keys = (0..10_000).map(|number| key(&format!("with {lost} {number}")));
    keys.find(|key| on_lost(key) == lost).unwrap()
}

fn name_of(key: &RegisterKey) -> String {
    String::from_utf8(key.name.to_vec()).unwrap()
}

async fn make_bucket(world: &MultiNodeWorld) {
    let bucket = Bucket {
        id: key("any").bucket,
        created_ms: 0,
        generation: 1,
        state: BucketState::Open,
        index_shards: 16,
        policy: POLICY,
        owner: "root".into(),
        consistency: martlet_protocol::Level::default(),
        settings: Settings::default(),
    };
    let at = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
    let mut entry = write(&at, world.stamps.issue(), 0, Body::Empty);
    entry.entry.value = Value::Bucket(Box::new(bucket));
    world.write_on(&world.primaries(&at), &entry).await;
}

/// Stores an extent on its homes, and returns its reference.
async fn store(world: &MultiNodeWorld, key: &RegisterKey, length: usize) -> ExtentRef {
    let id = ExtentId::random().whole();
    let owner = Owner {
        bucket: key.bucket,
        key: name_of(key),
        write_id: WriteId::random(),
        upload: None,
        role: ExtentRole::Data,
        offset: BodyFacts { is_last: true, ..BodyFacts::default() }.at(0),
    };
    let mut stored = None;
    for device in homes(world, id) {
        let layout = Layout { policy: POLICY, stripe: None };
        let birth_ms = Some(world.clock.now_ms());
        let new =
            NewExtent { id, owner: owner.clone(), length: None, birth_ms, layout, hashes: None };
        let body = whole_body(Bytes::from(vec![7; length]));
        stored = Some(world.memory(device).write_extent(device, new, body).await.unwrap());
    }
    stored.unwrap()
}

fn homes(world: &MultiNodeWorld, id: ExtentId) -> Vec<DeviceId> {
    let ring = world.data(POLICY);
    ring.primaries(ring.partition(id.placement())).collect()
}

/// Stores an object: its extent, and its entry on all primaries.
async fn put(world: &MultiNodeWorld, key: &RegisterKey) -> ExtentRef {
    let extent = store(world, key, 100).await;
    world.clock.advance_ms(1);
    let (extents, parts, part_checksums) = (vec![extent], Vec::new(), Vec::new());
    let body = Body::Extents(Manifest { policy: POLICY, extents, parts, part_checksums });
    let entry = write(key, world.stamps.issue(), 100, body);
    world.write_on(&world.primaries(key), &entry).await;
    extent
}

/// Removes the registers of devices, which keep their extents and lose their votes.
async fn forget(world: &MultiNodeWorld, devices: &[DeviceId]) {
    for device in devices {
        let (before, device) = (world.memory(*device), *device);
        let extents = before.list_extents(device, None, usize::MAX).await.unwrap();
        world.wipe(device).await;
        for record in extents {
            let new = NewExtent {
                id: record.extent.id,
                owner: record.owner,
                length: None,
                birth_ms: Some(record.birth_ms),
                layout: record.layout,
                hashes: None,
            };
            let bytes = vec![7; usize::try_from(record.extent.length).unwrap()];
            let body = whole_body(Bytes::from(bytes));
            world.memory(device).write_extent(device, new, body).await.unwrap();
        }
    }
}

fn clock(world: &MultiNodeWorld) -> Arc<dyn Clock> {
    world.clock.clone()
}

async fn accept(world: &MultiNodeWorld) -> martlet_protocol::Result<AcceptedLoss> {
    let clock = world.clock.clone();
    let devices = without_votes(world).await;
    let mut done = 0;
    let mut observe = |stage: AcceptStage| {
        clock.advance_ms(1000);
        assert!((done..=devices.len() as u64).contains(&stage.done), "{stage:?} after {done}");
        done = stage.done;
    };
    accept_loss(&world.shared, world.clock.clone(), &devices, &mut observe).await
}

async fn without_votes(world: &MultiNodeWorld) -> BTreeSet<DeviceId> {
    let statuses = world.step().statuses().await;
    let lacks_votes = statuses.iter().filter(|(_, status)| !status.voting);
    lacks_votes.map(|(device, _)| *device).collect()
}

async fn scan(world: &MultiNodeWorld, scope: ScanScope) -> (Vec<LostKey>, ScanFigures) {
    let mut lost = LostKeys::new(world.shared.clone(), world.clock.clone(), scope);
    let mut keys = Vec::new();
    while let Some(slice) = lost.next_slice(&mut |_| {}).await.unwrap() {
        keys.extend(slice);
    }
    (keys, lost.figures().clone())
}

async fn scope(world: &MultiNodeWorld) -> ScanScope {
    let loss = IndexLoss::read(&world.shared).await.unwrap();
    let born_before_ms = loss.held_since_ms.unwrap();
    ScanScope { bucket: None, partition: None, lost: loss.partitions, born_before_ms }
}

fn sweep(world: &MultiNodeWorld) -> Sweep {
    let options = SweepOptions::among_others(GRACE_MS);
    Sweep::new(world.shared.clone(), world.clock.clone(), options)
}

async fn has(world: &MultiNodeWorld, extent: ExtentRef) -> bool {
    let mut copies = 0;
    for device in world.devices() {
        let held = world.memory(device).list_extents(device, None, usize::MAX).await.unwrap();
        copies += held.iter().filter(|record| record.extent.id == extent.id).count();
    }
    copies > 0
}

#[tokio::test(start_paused = true)]
async fn an_accepted_loss_returns_votes_and_the_scan_finds_the_lost_keys_alone() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    // An earlier hold does not hide what was written after it.
    IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    world.clock.advance_ms(60_000);
    let (all, most, one) = (key_with(&world, 3), key_with(&world, 2), key_with(&world, 1));
    let (lost, kept, safe) =
        (put(&world, &all).await, put(&world, &most).await, put(&world, &one).await);
    let devices = lost_devices(&world);
    forget(&world, &devices).await;
    let accepted = accept(&world).await.unwrap();
    assert_eq!(BTreeSet::from_iter(accepted.devices), BTreeSet::from_iter(devices.clone()));
    assert!(accepted.partitions.contains(all.placement()));
    assert!(accepted.partitions.contains(most.placement()));
    assert!(!accepted.partitions.contains(one.placement()));
    for device in devices {
        assert!(world.is_voting(device).await, "{device}");
    }
    for key in [&most, &one] {
        for device in world.primaries(key) {
            let entry = world.read_on(device, key).await;
            assert!(entry.is_some(), "{device} got {} from a survivor", name_of(key));
        }
    }
    let (keys, figures) = scan(&world, scope(&world).await).await;
    let found: Vec<(&str, ExtentId)> =
        keys.iter().map(|it| (it.key.as_str(), it.extents[0].record.extent.id)).collect();
    assert_eq!(found, [(name_of(&all).as_str(), lost.id)]);
    assert_eq!((figures.unowned, figures.uncertain, figures.passes), (1, 0, 1));
    assert!(has(&world, kept).await && has(&world, safe).await);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_accepted_only_if_all_answer_and_peers_cannot_help() {
    let world = MultiNodeWorld::new(7);
    let refused = preview_loss(&world.shared).await.unwrap_err().to_string();
    assert!(refused.contains("all devices of the index ring have their votes"), "{refused}");
    let (devices, other) = (lost_devices(&world), world.handoff(&key("lost")));
    forget(&world, &devices[..1]).await;
    let refused = preview_loss(&world.shared).await.unwrap_err().to_string();
    assert!(refused.contains("a replicator's sync fills them"), "{refused}");
    forget(&world, &devices[1..]).await;
    world.memory(other).set_offline(other, true);
    let refused = accept(&world).await.unwrap_err().to_string();
    assert!(refused.contains("may hold what the others lost"), "{refused}");
    assert!(!world.is_voting(devices[0]).await);
    world.memory(other).set_offline(other, false);
    accept(&world).await.unwrap();
    assert!(world.is_voting(devices[0]).await);
}

#[tokio::test(start_paused = true)]
async fn no_vote_returns_once_the_hold_has_ended() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let lost = put(&world, &key_with(&world, 3)).await;
    let devices = lost_devices(&world);
    forget(&world, &devices).await;
    let ending = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let refused = IndexLoss::release(&world.shared, &clock(&world)).await.unwrap_err();
        assert!(refused.to_string().contains("has no votes"), "{refused}");
        // An operator of an earlier release is not refused.
        IndexLoss::end(&world.shared, &clock(&world)).await.unwrap();
    };
    let (accepted, ()) = tokio::join!(accept(&world), ending);
    let failed = accepted.unwrap_err().to_string();
    assert!(failed.contains("the hold on collection has ended"), "{failed}");
    for device in &devices {
        assert!(!world.is_voting(*device).await, "{device}");
    }
    accept(&world).await.unwrap();
    assert!(has(&world, lost).await);
    IndexLoss::release(&world.shared, &clock(&world)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_device_that_loses_its_votes_later_is_not_part_of_the_acceptance() {
    let world = MultiNodeWorld::new(7);
    let (devices, other) = (lost_devices(&world), world.handoff(&key("lost")));
    forget(&world, &devices).await;
    let losing = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        forget(&world, &[other]).await;
    };
    let (accepted, ()) = tokio::join!(accept(&world), losing);
    let failed = accepted.unwrap_err().to_string();
    assert!(failed.contains("has lost its votes too"), "{failed}");
    assert!(!world.is_voting(other).await);
    let accepted = accept(&world).await.unwrap();
    assert!(accepted.devices.contains(&other), "{accepted:?}");
    let loss = IndexLoss::read(&world.shared).await.unwrap();
    assert_eq!(loss.partitions, accepted.partitions);
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_is_applied_again_above_the_floor() {
    let world = MultiNodeWorld::new(7);
    let register = RegisterKey::account("index-loss");
    let device = world.primaries(&register)[0];
    let floor = Stamp::at_ms(world.clock.now_ms() + 5000);
    world.memory(device).raise_floor(device, floor).await.unwrap();
    let held = IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    assert!(held.held_since_ms.is_some());
    for device in world.primaries(&register) {
        let entry = world.read_on(device, &register).await.unwrap();
        assert!(entry.order > floor, "{device}");
    }
    let lost = lost_devices(&world);
    let noted = IndexLoss::note_lost(&world.shared, &clock(&world), &lost).await.unwrap();
    assert_eq!(noted.lost, BTreeSet::from_iter(lost));
    assert_eq!(IndexLoss::read(&world.shared).await.unwrap(), noted);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_swept_under_a_hold_and_everything_after_its_release() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let lost = put(&world, &key_with(&world, 3)).await;
    let mut sweep = sweep(&world);
    run_once(&mut sweep).await.unwrap();
    forget(&world, &lost_devices(&world)).await;
    accept(&world).await.unwrap();
    for _ in 0..5 {
        world.clock.advance_ms(2 * COMMIT_WINDOW_MS);
        run_once(&mut sweep).await.unwrap();
    }
    assert!(has(&world, lost).await, "it is held");
    IndexLoss::release(&world.shared, &clock(&world)).await.unwrap();
    for _ in 0..5 {
        world.clock.advance_ms(2 * COMMIT_WINDOW_MS);
        sweep.step().await.unwrap();
    }
    assert!(!has(&world, lost).await, "no entry names it");
    let loss = IndexLoss::read(&world.shared).await.unwrap();
    assert_eq!(loss, IndexLoss::default());
}

#[tokio::test(start_paused = true)]
async fn extents_of_deleted_bytes_young_writes_and_unknown_buckets_are_left_out() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let (lost_key, other) = (key_with(&world, 3), RegisterKey::object(BucketId([9; 16]), 16, "x"));
    let kept = put(&world, &lost_key).await;
    let deleted = store(&world, &lost_key, 50).await;
    store(&world, &other, 10).await;
    forget(&world, &lost_devices(&world)).await;
    // One home has deleted it, and the others missed the delete.
    let home = homes(&world, deleted.id)[0];
    world.memory(home).delete_extents(home, &[deleted.id]).await.unwrap();
    accept(&world).await.unwrap();
    store(&world, &lost_key, 20).await;
    let (keys, figures) = scan(&world, scope(&world).await).await;
    let found: Vec<ExtentId> =
        keys.iter().flat_map(|it| &it.extents).map(|it| it.record.extent.id).collect();
    assert_eq!((found, figures.deleted), (vec![kept.id], 1));
    let unknown: Vec<(&BucketId, u64)> =
        figures.unknown.iter().map(|(id, of)| (id, of.copies)).collect();
    assert_eq!(unknown, [(&BucketId([9; 16]), 3)]);
    let partition = world.index().partition(lost_key.placement());
    let elsewhere = Partition(partition.0 ^ 1);
    for (partition, count) in [(partition, 1), (elsewhere, 0)] {
        let scope = ScanScope { partition: Some(partition), ..scope(&world).await };
        assert_eq!(scan(&world, scope).await.0.len(), count, "{partition:?}");
    }
    let scope = ScanScope { bucket: Some(other.bucket), ..scope(&world).await };
    assert_eq!(scan(&world, scope).await.0, []);
}

#[tokio::test(start_paused = true)]
async fn more_extents_than_a_slice_holds_take_more_passes_and_each_key_comes_once() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let lost = key_with(&world, 3);
    let partition = world.index().partition(lost.placement());
    let keys: Vec<RegisterKey> = (0..5000)
        .map(|number| key(&format!("many {number}")))
        .filter(|key| world.index().partition(key.placement()) == partition)
        .take(40)
        .collect();
    assert!(keys.len() > 20, "{}", keys.len());
    for key in &keys {
        put(&world, key).await;
    }
    forget(&world, &lost_devices(&world)).await;
    accept(&world).await.unwrap();
    let scope = scope(&world).await;
    let mut scan = LostKeys::new(world.shared.clone(), world.clock.clone(), scope);
    scan.limit_extents(10);
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    let mut observe = |figures: &ScanFigures| seen.push(figures.clone());
    while let Some(slice) = scan.next_slice(&mut observe).await.unwrap() {
        assert!(slice.len() <= 10, "{}", slice.len());
        found.extend(slice.into_iter().map(|it| it.key));
    }
    let last = scan.figures();
    assert!(last.passes > 2 && last.passes_left == 0, "{last:?}");
    // The expected work is all copies in each pass, and grows with the passes.
    let (first, stored) = (&seen[0], last.stored.unwrap());
    assert_eq!((first.listed, first.passes, first.passes_left), (0, 0, 1), "{first:?}");
    assert_eq!(last.listed, stored * last.passes, "{last:?}");
    for figures in &seen {
        let expected = stored * (figures.passes + figures.passes_left);
        assert!(figures.listed <= expected, "{figures:?}");
    }
    found.sort();
    let mut expected: Vec<String> = keys.iter().map(name_of).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_known_to_workers_within_its_time_and_silence_counts_as_a_hold() {
    let world = MultiNodeWorld::new(5);
    let hold = CollectionHold::default();
    let is_on = async || hold.is_on(&world.step(), world.clock.now_ms()).await;
    assert!(!is_on().await);
    let held = IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    world.clock.advance_ms(HOLD_SETTLES_MS);
    assert!(is_on().await);
    let again = IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    assert_eq!(held, again, "a hold keeps its start");
    for device in world.primaries(&RegisterKey::account("index-loss")) {
        let entry = world.read_on(device, &RegisterKey::account("index-loss")).await;
        assert!(entry.is_some(), "{device} holds the document");
    }
    IndexLoss::release(&world.shared, &clock(&world)).await.unwrap();
    world.clock.advance_ms(HOLD_SETTLES_MS);
    assert!(!is_on().await);
    for device in world.devices() {
        world.memory(device).set_offline(device, true);
    }
    world.clock.advance_ms(HOLD_SETTLES_MS);
    assert!(is_on().await, "the state is unknown");
}

#[tokio::test(start_paused = true)]
async fn delete_marks_do_not_count_under_a_hold() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let lost = put(&world, &key_with(&world, 3)).await;
    forget(&world, &lost_devices(&world)).await;
    accept(&world).await.unwrap();
    let device = homes(&world, lost.id)[1];
    let cluster = world.step();
    let records = async || {
        let mut held = world.memory(device).list_extents(device, None, usize::MAX).await.unwrap();
        held.retain(|record| record.extent.id == lost.id);
        held
    };
    let mut progress = StepProgress::default();
    assert_eq!(records().await.len(), 1);
    let time = &*world.clock;
    let stay = check_marks(&cluster, device, records().await, time, &mut progress).await.unwrap();
    assert_eq!((stay.len(), progress.kept, progress.done), (0, 1, 0));
    assert_eq!(records().await.len(), 1, "the hold keeps it");
    IndexLoss::release(&world.shared, &clock(&world)).await.unwrap();
    check_marks(&cluster, device, records().await, time, &mut progress).await.unwrap();
    assert_eq!((progress.done, records().await.len()), (1, 0), "no entry names it");
}

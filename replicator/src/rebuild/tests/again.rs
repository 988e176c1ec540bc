//! Losses that meet another event: a second loss, a ring change, a bucket that comes back.

use martlet_protocol::backend::{BucketFence, EntryWrite};
use martlet_protocol::entry::{AccountDocument, Entry};
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{Phase, Term};

use super::*;
use crate::rebuild::walks::DeviceWalks;
use crate::replicate::testing::BUCKET;
use crate::testing::growth::{key_of, small_ring, successor};
use crate::testing::multi_node::ring;

/// Number of the last device of a ring of six.
const LAST: DeviceId = DeviceId(5);

/// A world whose index ring has few partitions.
fn small_world() -> MultiNodeWorld {
    let world = MultiNodeWorld::new(6);
    world.follow(Arc::new(small_ring(6)));
    world
}

#[tokio::test(start_paused = true)]
async fn a_second_loss_under_the_hold_includes_what_was_written_since_the_first() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let (lost_key, devices) = (key_with(&world, 3), lost_devices(&world));
    let before = put(&world, &lost_key).await;
    forget(&world, &devices).await;
    let first = accept(&world).await.unwrap();
    // The floor of the acceptance lies ahead by the skew.
    world.clock.advance_ms(2 * CLOCK_SKEW_MS_MAX);
    let meanwhile = put(&world, &lost_key).await;
    let found = async || {
        let (keys, _) = scan(&world, scope(&world).await).await;
        let extents = keys.iter().flat_map(|it| &it.extents).map(|it| it.record.extent.id);
        extents.collect::<BTreeSet<ExtentId>>()
    };
    assert_eq!(found().await, [before.id].into(), "the other has an entry");
    let held_ms = scope(&world).await.born_before_ms;
    forget(&world, &devices).await;
    assert_eq!(accept(&world).await.unwrap(), first);
    assert!(scope(&world).await.born_before_ms > held_ms);
    assert_eq!(found().await, [before.id, meanwhile.id].into());
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_comes_back_under_a_second_hold_keeps_its_extents() {
    let world = MultiNodeWorld::new(7);
    let extent = put(&world, &key_with(&world, 3)).await;
    let mut sweep = sweep(&world);
    world.clock.advance_ms(2 * COMMIT_WINDOW_MS);
    // Nothing is held, and the bucket counts as deleted: the extent is a suspect.
    for device in world.devices() {
        let fence = BucketFence::of_deleted(BUCKET);
        world.memory(device).fence(device, fence).await.unwrap();
    }
    run_once(&mut sweep).await.unwrap();
    assert_eq!(sweep.step().await.unwrap().backlog, 3);
    IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    world.clock.advance_ms(HOLD_SETTLES_MS);
    assert_eq!(sweep.step().await.unwrap().backlog, 0, "suspects are forgotten");
    make_bucket(&world).await;
    IndexLoss::release(&world.shared, &clock(&world)).await.unwrap();
    for _ in 0..5 {
        world.clock.advance_ms(HOLD_SETTLES_MS);
        run_once(&mut sweep).await.unwrap();
    }
    assert!(has(&world, extent).await, "its entry was there all the time");
}

#[tokio::test(start_paused = true)]
async fn old_and_new_holders_of_a_moving_replica_count() {
    let world = small_world();
    let ring = world.grow(6).await;
    let new = DeviceId(6);
    let moving = world.key_moving_to(new);
    let partition = ring.partition(moving.placement());
    let primaries: Vec<DeviceId> = ring.primaries(partition).collect();
    let at = primaries.iter().position(|id| *id == new).unwrap();
    let (old, common) = (ring.previous(partition, at).unwrap(), primaries[(at + 1) % 3]);
    for (lost, is_lost) in
        [([old, common], true), ([new, common], true), ([old, new], false), ([new, new], false)]
    {
        let partitions = LostPartitions::of(&world.step(), &lost.into());
        assert_eq!(partitions.contains(moving.placement()), is_lost, "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_left_the_ring_does_not_prevent_an_acceptance() {
    let world = small_world();
    let ring = successor(&world.index(), |builder| builder.remove(LAST, true).unwrap());
    assert!(ring.device(LAST).is_none());
    let moved = ring.partitions().find_map(|at| {
        let place = (0..3).find(|replica| ring.previous(at, *replica) == Some(LAST))?;
        let mate = ring.primaries(at).enumerate().find(|(replica, _)| *replica != place)?.1;
        Some((at, mate))
    });
    let (at, mate) = moved.unwrap();
    world.follow(ring.clone());
    // One holder has left, and one is lost.
    let partitions = LostPartitions::of(&world.step(), &[mate].into());
    let is_there = |key: &RegisterKey| ring.partition(key.placement()) == at;
    let moved = (0..10_000).map(key_of).find(is_there).unwrap();
    assert!(partitions.contains(moved.placement()), "{partitions:?}");
    world.memory(LAST).set_offline(LAST, true);
    let rest: Vec<DeviceId> = (0..5).map(DeviceId).collect();
    // All terms are lost too, so the change counts as just begun.
    forget(&world, &rest).await;
    let accepted = accept(&world).await.unwrap();
    assert_eq!(accepted.devices, rest);
    for device in rest {
        assert!(world.is_voting(device).await, "{device}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_ends_with_one_document_on_all_devices() {
    let world = MultiNodeWorld::new(7);
    let register = RegisterKey::account("index-loss");
    let devices = world.primaries(&register);
    IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    // A release failed after one device had stored it.
    let held = world.read_on(devices[0], &register).await.unwrap();
    let order = Stamp::at_ms(held.order.time_ms() + 1000);
    let value = Value::Account(AccountDocument::new(b"1 - - 0 -".to_vec()));
    let entry = Entry { order, write_id: WriteId::random(), value };
    let released = EntryWrite { entry, ..write(&register, order, 0, Body::Empty) };
    world.write_on(&devices[..1], &released).await;
    IndexLoss::note_lost(&world.shared, &clock(&world), &lost_devices(&world)).await.unwrap();
    for device in devices {
        let entry = world.read_on(device, &register).await.unwrap();
        assert!(entry.order > order, "{device}");
    }
    assert!(IndexLoss::read(&world.shared).await.unwrap().held_since_ms.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_scan_waits_for_a_device_that_restarts_and_not_for_ever() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let devices = lost_devices(&world);
    let is_lost = |key: &RegisterKey| world.primaries(key).iter().all(|id| devices.contains(id));
    let keys = (0..).map(|number| key(&format!("lost {number}"))).filter(is_lost);
    let keys: Vec<RegisterKey> = keys.take(2).collect();
    for key in &keys {
        put(&world, key).await;
    }
    forget(&world, &devices).await;
    accept(&world).await.unwrap();
    let begin = async || {
        let scope = scope(&world).await;
        let mut scan = LostKeys::new(world.shared.clone(), world.clock.clone(), scope);
        scan.limit_extents(1);
        let first = scan.next_slice(&mut |_| {}).await.unwrap().unwrap();
        (scan, first.len())
    };
    let (mut scan, mut found) = begin().await;
    let silent = world.handoff(&key("lost"));
    world.memory(silent).set_offline(silent, true);
    let returning = async {
        tokio::time::sleep(Duration::from_mins(5)).await;
        world.memory(silent).set_offline(silent, false);
        world.clock.advance_ms(5 * 60 * 1000);
    };
    let scanning = async {
        while let Some(slice) = scan.next_slice(&mut |_| {}).await.unwrap() {
            found += slice.len();
        }
    };
    tokio::join!(returning, scanning);
    assert_eq!((found, scan.figures().uncertain), (2, 0));
    let (mut scan, _) = begin().await;
    world.memory(silent).set_offline(silent, true);
    let failed = scan.next_slice(&mut |_| {}).await.unwrap_err().to_string();
    assert!(failed.contains("can't be listed"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_key_with_more_extents_than_a_slice_holds_is_left_out_alone() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    let devices = lost_devices(&world);
    let is_lost = |key: &RegisterKey| world.primaries(key).iter().all(|id| devices.contains(id));
    let mut keys = (0..).map(|number| key(&format!("lost {number}"))).filter(is_lost);
    let (long, short) = (keys.next().unwrap(), keys.next().unwrap());
    for _ in 0..5 {
        put(&world, &long).await;
    }
    let kept = put(&world, &short).await;
    forget(&world, &devices).await;
    accept(&world).await.unwrap();
    let scope = scope(&world).await;
    let mut scan = LostKeys::new(world.shared.clone(), world.clock.clone(), scope);
    scan.limit_extents(2);
    let mut found = Vec::new();
    while let Some(slice) = scan.next_slice(&mut |_| {}).await.unwrap() {
        found.extend(slice);
    }
    let extents = found.iter().flat_map(|it| &it.extents);
    let ids: Vec<ExtentId> = extents.map(|it| it.record.extent.id).collect();
    assert_eq!(ids, [kept.id]);
    let figures = scan.figures();
    assert!(figures.uncertain >= 5 && figures.passes < 64, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_scan_does_not_wait_for_a_silent_device_that_leaves_the_rings() {
    let world = MultiNodeWorld::new(7);
    make_bucket(&world).await;
    put(&world, &key_with(&world, 3)).await;
    let (cluster, silent) = (world.step(), world.handoff(&key("lost")));
    let mut walks = DeviceWalks::new(&cluster);
    world.memory(silent).set_offline(silent, true);
    let listed = walks.next_round(&cluster, &world.shared).await.unwrap().unwrap();
    assert!(!listed.is_empty(), "the others are listed");
    let again = walks.next_round(&cluster, &world.shared).await.unwrap();
    assert_eq!(again, Some(Vec::new()), "the silent one is asked again");
    let rest = (0..7).filter(|id| *id != silent.0);
    world.edit(|parts| _ = parts.data.insert(POLICY, Arc::new(ring(rest))));
    assert_eq!(walks.next_round(&cluster, &world.shared).await.unwrap(), None);
}

/// The next ring may move the document of the hold to devices that this process doesn't know.
#[tokio::test(start_paused = true)]
async fn x8_a_hold_needs_the_ring_of_a_change_in_progress() {
    let world = small_world();
    world.shared.raise_term(Term::of(world.index().change() + 1, Phase::Joint));
    assert!(IndexLoss::hold(&world.shared, &clock(&world)).await.is_err());
    assert!(CollectionHold::is_on_now(&world.step()).await, "it is unknown");
    world.grow(6).await;
    assert!(!CollectionHold::is_on_now(&world.step()).await);
    IndexLoss::hold(&world.shared, &clock(&world)).await.unwrap();
    assert!(CollectionHold::is_on_now(&world.step()).await);
}

//! Requests of a collection: each device is asked about a page once, and sums permit no drop.

use std::collections::BTreeSet;

use martlet_protocol::Partition;
use martlet_protocol::backend::{CallKind, Reply};
use martlet_protocol::tree::Sum;

use super::*;
use crate::testing::growth::small_ring;
use crate::testing::recorded::recorded;

/// Replaces sums by those of a node that holds nothing.
fn without_sums(reply: Reply) -> Reply {
    match reply {
        Reply::Sums(sums) => Reply::Sums(vec![Sum::default(); sums.len()]),
        reply => reply,
    }
}

/// Deletes `count` keys whose first primary is `device`.
async fn delete_on(world: &MultiNodeWorld, device: DeviceId, count: usize) {
    let keys = (0..).map(key_of).filter(|key| world.primaries(key)[0] == device).take(count);
    for key in keys.collect::<Vec<_>>() {
        world.write_on(&world.primaries(&key), &delete(world, &key)).await;
    }
    world.clock.advance_ms(AGE_MS + 1000);
}

/// In a cluster of 60 devices, a page costs one request about its tombstones to each device, and a few
/// more to its primaries. Sums of all devices serve all pages of a visit.
#[tokio::test]
async fn each_device_gets_one_request_a_page() {
    let (world, requests) = recorded(60, |reply| reply);
    world.edit(|parts| parts.index = Arc::new(small_ring(60)));
    let ring = world.index();
    let device = ring.primaries(Partition(0)).next().unwrap();
    let first = ring.partitions().filter(|at| ring.primaries(*at).next() == Some(device));
    let primaries: BTreeSet<DeviceId> = first.flat_map(|at| ring.primaries(at)).collect();
    delete_on(&world, device, 1200).await;
    requests.lock().clear();
    let options = CollectOptions { age_ms: AGE_MS };
    let scope = DeviceScope::Nodes(vec![format!("n{}", device.0)]);
    let mut worker = Collect::new(world.shared.clone(), world.clock.clone(), scope, options);
    assert_eq!(run_once(&mut worker).await.unwrap().done, 1200);
    let requests = std::mem::take(&mut *requests.lock());
    let pages = 1200_usize.div_ceil(queries::PAGE);
    let count = |of: DeviceId, kind| requests.iter().filter(|it| **it == (of, Some(kind))).count();
    for other in (0..60).map(DeviceId).filter(|other| !primaries.contains(other)) {
        assert_eq!(count(other, CallKind::Holdings), pages, "device {other}");
        assert_eq!(count(other, CallKind::Sums), 1, "device {other}");
        assert_eq!(count(other, CallKind::DropStrays), 0, "device {other} holds nothing");
    }
    for primary in primaries {
        assert!(count(primary, CallKind::Holdings) <= 3 * pages, "device {primary}");
        assert!(count(primary, CallKind::MarkCollectable) <= pages, "device {primary}");
        assert!(count(primary, CallKind::DropStrays) <= pages, "device {primary}");
    }
}

/// Sums that show nothing let the tombstone be marked. The answers after the marks keep it.
#[tokio::test]
async fn wrong_sums_drop_no_tombstone() {
    let (world, requests) = recorded(5, without_sums);
    delete_in(&world, 1).await;
    let key = key_of(0);
    let mut old = world.write(&key);
    old.entry.order = Stamp::at_ms(1);
    old.mode = martlet_protocol::register::WriteMode::Repair;
    world.write_on(&[world.handoff(&key)], &old).await;
    for _ in 0..3 {
        assert_eq!(run(&world).await.done, 0);
    }
    assert_eq!(holders(&world, &key).await, 4);
    let marks =
        requests.lock().iter().filter(|(_, it)| *it == Some(CallKind::MarkCollectable)).count();
    assert!(marks > 0, "it was marked, and asked about afterwards");
}

/// Copies outside of their place are known for a while: they keep the tombstones of their keys alone.
#[tokio::test]
async fn a_copy_outside_of_its_place_keeps_its_own_tombstone_alone() {
    let world = world_of_deleted(50).await;
    let key = key_of(7);
    let mut old = world.write(&key);
    old.entry.order = Stamp::at_ms(1);
    old.mode = martlet_protocol::register::WriteMode::Repair;
    world.write_on(&[world.handoff(&key)], &old).await;
    let progress = run(&world).await;
    assert_eq!((progress.done, progress.kept), (49, 1));
    let marked = world.memory(world.primaries(&key)[0]);
    let held = marked.holdings(world.primaries(&key)[0], std::slice::from_ref(&key)).await;
    assert!(!held.unwrap()[0].collectable, "nothing older may be there when it is marked");
}

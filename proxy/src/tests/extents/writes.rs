//! Placement of copies, and the number of copies that make a write (rule X5).

use std::time::Duration;

use martlet_protocol::backend::Presence;
use martlet_protocol::{BackendExt, DeviceId, ErrorKind};
use tokio::time::Instant;

use super::fixture::{ExtentFixture, extent, extents};
use super::wayward::Conduct;
use crate::tests::harness::{pattern, settle};
use crate::{Error, StoreOptions};

const NOT_NOW: Conduct = Conduct::Refuses(ErrorKind::Unavailable);

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    match result {
        Err(Error::Backend(error)) => Some(error.kind()),
        _ => None,
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn copies_are_on_three_devices_of_three_nodes_when_the_write_returns() {
    let fixture = ExtentFixture::with(12, 4, StoreOptions::default()).await;
    for seed in 0..20 {
        let written = fixture.put("key", pattern(100_000, seed)).await.unwrap();
        let id = extent(&written);
        assert_eq!((fixture.holders(id).len(), fixture.nodes_of(id)), (3, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn twelve_full_devices_of_fourteen_stop_nothing() {
    let fixture = ExtentFixture::new(14).await;
    for seed in 0..20 {
        let free = [seed % 14 + 1, (seed + 5) % 14 + 1].map(DeviceId);
        for device in fixture.devices() {
            fixture.node.memory.set_full(device, !free.contains(&device));
        }
        let key = format!("{seed}");
        let begun = Instant::now();
        let id = extent(&fixture.put(&key, pattern(100_000, seed)).await.unwrap());
        assert!(begun.elapsed() < ms(1));
        let mut free = free.to_vec();
        free.sort();
        assert_eq!(fixture.holders(id), free);
        assert_eq!(fixture.get(&key).await.unwrap(), pattern(100_000, seed));
    }
    for device in fixture.devices() {
        fixture.node.memory.set_full(device, device != DeviceId(7));
    }
    let before = fixture.node.memory.extents(DeviceId(7)).len();
    let refused = fixture.put("key", pattern(100_000, 1)).await;
    assert_eq!(kind(refused), Some(ErrorKind::Full), "one copy is no majority");
    settle().await;
    assert_eq!(fixture.node.memory.extents(DeviceId(7)).len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_refuses_is_stood_in_for_with_the_whole_extent() {
    for conduct in [
        NOT_NOW,
        Conduct::Refuses(ErrorKind::Internal),
        Conduct::WriteBreaks(60_000, ErrorKind::Unavailable),
        Conduct::WriteBreaks(100_000, ErrorKind::Full),
    ] {
        let fixture = ExtentFixture::new(6).await;
        fixture.let_be([1, 4].map(DeviceId), conduct);
        for seed in 0..20 {
            let bytes = pattern(300_000, seed);
            let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
            let holders = fixture.holders(id);
            assert_eq!(holders.len(), 3, "{conduct:?}");
            assert!(!holders.contains(&DeviceId(1)) && !holders.contains(&DeviceId(4)));
            assert_eq!(fixture.get("key").await.unwrap(), bytes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_just_failed_is_skipped_for_a_while() {
    let fixture = ExtentFixture::new(4).await;
    fixture.let_be([DeviceId(2)], NOT_NOW);
    let put = |seed: u32| {
        let fixture = &fixture;
        async move { fixture.put("key", pattern(100_000, seed)).await.unwrap() }
    };
    for seed in 0..10 {
        put(seed).await;
    }
    let writes = fixture.node.writes().iter().filter(|device| **device == DeviceId(2)).count();
    assert_eq!(writes, 1);
    fixture.let_be([DeviceId(2)], Conduct::Well);
    tokio::time::sleep(Duration::from_secs(10)).await;
    for seed in 0..20 {
        put(seed).await;
    }
    assert!(fixture.node.writes().iter().filter(|device| **device == DeviceId(2)).count() > 5);
}

#[tokio::test(start_paused = true)]
async fn stand_ins_are_sought_on_nodes_that_have_no_copy() {
    let fixture = ExtentFixture::with(16, 4, StoreOptions::default()).await;
    // The first three devices of each node are full.
    for device in fixture.devices() {
        fixture.node.memory.set_full(device, device.0 % 4 != 0);
    }
    for seed in 0..20 {
        let id = extent(&fixture.put("key", pattern(100_000, seed)).await.unwrap());
        assert_eq!((fixture.holders(id).len(), fixture.nodes_of(id)), (3, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn two_disks_of_one_machine_are_no_majority_where_there_are_more_machines() {
    let fixture = ExtentFixture::with(12, 4, StoreOptions::default()).await;
    fixture.let_be((5..=12).map(DeviceId), NOT_NOW);
    let refused = fixture.put("key", pattern(100_000, 1)).await;
    assert_eq!(kind(refused), Some(ErrorKind::Unavailable));
    fixture.let_be([DeviceId(9)], Conduct::Well);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let id = extent(&fixture.put("key", pattern(100_000, 1)).await.unwrap());
    assert!(fixture.holders(id).contains(&DeviceId(9)) && fixture.nodes_of(id) == 2);
    let alone = ExtentFixture::with(4, 4, StoreOptions::default()).await;
    alone.let_be([1, 2].map(DeviceId), NOT_NOW);
    let id = extent(&alone.put("key", pattern(100_000, 1)).await.unwrap());
    assert_eq!(alone.holders(id).len(), 2, "a single machine has only disks to tell apart");
}

#[tokio::test(start_paused = true)]
async fn a_copy_with_another_hash_does_not_count_and_is_deleted() {
    let fixture = ExtentFixture::new(3).await;
    fixture.let_be([DeviceId(2)], Conduct::WritesAnother);
    let id = extent(&fixture.put("key", pattern(100_000, 1)).await.unwrap());
    settle().await;
    assert_eq!(fixture.holders(id), [1, 3].map(DeviceId));
    // A mark of a delete would keep repair from ever filling the device (rule X4).
    let presence = fixture.node.memory.presence(DeviceId(2), &[id]).await.unwrap();
    assert_eq!(
        presence,
        [Presence::Missing],
        "the differing copy goes, and nothing marks it deleted"
    );
    fixture.let_be([DeviceId(3)], NOT_NOW);
    let refused = fixture.put("key", pattern(100_000, 2)).await;
    assert!(refused.is_err(), "two that differ are no majority");
    settle().await;
    assert_eq!(fixture.node.memory.extents_in_use(), [id, id]);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_change_on_their_way_are_not_stored() {
    for length in [100_000, 3_000_000] {
        let fixture = ExtentFixture::new(3).await;
        fixture.let_be([DeviceId(2)], Conduct::WriteFlips);
        let bytes = pattern(length, 1);
        let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
        settle().await;
        assert_eq!(fixture.holders(id), [1, 3].map(DeviceId), "two good copies are a majority");
        assert!(fixture.get("key").await.unwrap() == bytes);
        let stat = fixture.node.memory.stat_extent(DeviceId(1), id).await.unwrap();
        assert_eq!(stat.record.extent.blake3, *blake3::hash(&bytes).as_bytes());
        // Copies that change alike are no majority either.
        fixture.let_be([DeviceId(3)], Conduct::WriteFlips);
        let refused = fixture.put("other", bytes).await;
        assert_eq!(kind(refused), Some(ErrorKind::Unavailable));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_many_extents_has_three_copies_of_each() {
    let fixture = ExtentFixture::new(5).await;
    let bytes = pattern(140_000_000, 1);
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    let ids = extents(&written);
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| fixture.holders(*id).len() == 3));
    assert!(fixture.get("key").await.unwrap() == bytes);
}

#[tokio::test(start_paused = true)]
async fn the_search_for_a_device_ends_in_time() {
    let fixture = ExtentFixture::new(60).await;
    fixture.let_be(fixture.devices(), Conduct::Hangs);
    let begun = Instant::now();
    let refused = fixture.put("key", pattern(100_000, 1)).await;
    assert_eq!(kind(refused), Some(ErrorKind::Unavailable));
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

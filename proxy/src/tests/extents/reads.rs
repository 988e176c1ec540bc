//! Replica choice of reads, and their timeouts.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::Instant;

use super::fixture::{ExtentFixture, extent};
use super::wayward::Conduct;
use crate::tests::harness::pattern;
use crate::{Error, ReadConditions, Selection};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    match result {
        Err(Error::Backend(error)) => Some(error.kind()),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn an_extent_on_the_last_handoff_of_fourteen_devices_is_found() {
    let fixture = ExtentFixture::new(14).await;
    let bytes = pattern(100_000, 1);
    let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
    let last = *fixture.order(id).last().unwrap();
    fixture.move_to(id, last).await;
    let begun = Instant::now();
    assert_eq!(fixture.get("key").await.unwrap(), bytes);
    assert!(begun.elapsed() < ms(30), "those who answer are not waited for");
    let (_, places) = fixture.store.in_place().places("b", "key").await.unwrap();
    assert_eq!(places[0].device, last);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_devices_that_hang_do_not_take_a_hundred_timeouts() {
    let fixture = ExtentFixture::new(100).await;
    let bytes = pattern(100_000, 1);
    let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
    let last = *fixture.order(id).last().unwrap();
    fixture.move_to(id, last).await;
    fixture.let_be(fixture.devices(), Conduct::Hangs);
    fixture.let_be([last], Conduct::Well);
    let begun = Instant::now();
    assert_eq!(fixture.get("key").await.unwrap(), bytes);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    fixture.let_be([last], Conduct::Hangs);
    let begun = Instant::now();
    assert_eq!(kind(fixture.get("key").await), Some(ErrorKind::Unavailable));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_extent_is_lost_only_if_every_device_replied() {
    let fixture = ExtentFixture::new(9).await;
    let id = extent(&fixture.put("key", pattern(100_000, 1)).await.unwrap());
    let order = fixture.order(id);
    for holder in fixture.holders(id) {
        martlet_protocol::BackendExt::delete_extents(&*fixture.node.memory, holder, &[id])
            .await
            .unwrap();
    }
    fixture.node.reads();
    assert_eq!(kind(fixture.get("key").await), Some(ErrorKind::Internal));
    let mut reads: Vec<_> = fixture.node.reads().into_iter().map(|(device, _)| device).collect();
    reads.sort();
    assert_eq!(reads, fixture.devices(), "each was asked once");
    for out in order {
        fixture.let_be([out], Conduct::Refuses(ErrorKind::Unavailable));
        assert_eq!(
            kind(fixture.get("key").await),
            Some(ErrorKind::Unavailable),
            "{out} may have it"
        );
        fixture.let_be([out], Conduct::Well);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_gone_refused_or_corrupt_is_made_up_for_by_the_others() {
    let fixture = ExtentFixture::new(5).await;
    let bytes = pattern(100_000, 1);
    let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
    let holders = fixture.holders(id);
    for conduct in [
        Conduct::Refuses(ErrorKind::NotFound),
        Conduct::Refuses(ErrorKind::Unavailable),
        Conduct::Refuses(ErrorKind::Corrupt),
        Conduct::Refuses(ErrorKind::Internal),
        Conduct::ReadBreaks(0, ErrorKind::Corrupt),
    ] {
        for good in 0..3 {
            fixture.let_be(holders.clone(), conduct);
            fixture.let_be([holders[good]], Conduct::Well);
            assert_eq!(fixture.get("key").await.unwrap(), bytes, "{conduct:?}");
        }
    }
    fixture.let_be(holders.clone(), Conduct::Well);
    fixture.node.memory.corrupt(holders[0], id);
    fixture.node.memory.corrupt(holders[1], id);
    assert_eq!(fixture.get("key").await.unwrap(), bytes);
    fixture.node.memory.corrupt(holders[2], id);
    assert_eq!(kind(fixture.get("key").await), Some(ErrorKind::Corrupt));
}

#[tokio::test(start_paused = true)]
async fn a_late_first_byte_is_requested_from_a_second_device() {
    for conduct in [Conduct::Late(ms(900)), Conduct::ReadStalls(0), Conduct::Hangs] {
        let fixture = ExtentFixture::new(3).await;
        let bytes = pattern(100_000, 1);
        let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
        fixture.get("key").await.unwrap();
        let (first, _) = fixture.node.reads()[0].clone();
        assert!(fixture.holders(id).contains(&first));
        fixture.let_be([first], conduct);
        let begun = Instant::now();
        assert_eq!(fixture.get("key").await.unwrap(), bytes);
        let took = begun.elapsed();
        assert!(took >= ms(30) && took < ms(32), "{conduct:?}: {took:?}");
        assert_eq!(fixture.node.open.load(Ordering::SeqCst), 0, "who lost was told to stop");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_its_limit_gets_few_hedged_reads() {
    let fixture = ExtentFixture::new(3).await;
    fixture.put("key", pattern(100_000, 1)).await.unwrap();
    fixture.let_be(fixture.devices(), Conduct::Late(ms(200)));
    let reads = 2000;
    for _ in 0..reads / 50 {
        futures::future::join_all((0..50).map(|_| fixture.get("key"))).await;
    }
    let reads = fixture.node.reads().len();
    assert!(reads <= reads + reads / 20 + 16, "{reads} calls for {reads} reads");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stopped_costs_a_few_hedges_and_not_one_for_each_read() {
    let _repeats = martlet_protocol::testing::seeded_ids::SeededIds::new(7);
    let fixture = ExtentFixture::new(3).await;
    for key in 0..30 {
        fixture.put(&format!("{key}"), pattern(10_000, key)).await.unwrap();
    }
    fixture.let_be([DeviceId(2)], Conduct::Hangs);
    let begun = Instant::now();
    for _ in 0..10 {
        let reads = (0..30).map(|key| {
            let fixture = &fixture;
            async move {
                assert_eq!(fixture.get(&format!("{key}")).await.unwrap(), pattern(10_000, key));
            }
        });
        futures::future::join_all(reads).await;
        tokio::time::sleep(ms(500)).await;
    }
    let took = begun.elapsed();
    assert!(took < ms(5000 + 1500), "{took:?}, of which 5 s were spent between the reads");
    let to_it = fixture.node.reads().iter().filter(|(device, _)| *device == DeviceId(2)).count();
    assert!(to_it < 60, "{to_it} of 300 reads asked it");
    fixture.let_be([DeviceId(2)], Conduct::Well);
    // All waiting calls have timed out by then, and reads no longer avoid the device.
    tokio::time::sleep(ms(30_000)).await;
    fixture.node.reads();
    for _ in 0..2 {
        for key in 0..30 {
            fixture.get(&format!("{key}")).await.unwrap();
        }
    }
    let to_it = fixture.node.reads().iter().filter(|(device, _)| *device == DeviceId(2)).count();
    assert!(to_it > 5, "it is back, and {to_it} of 60 reads asked it");
}

#[tokio::test(start_paused = true)]
async fn reads_are_spread_over_all_who_have_the_bytes() {
    let fixture = ExtentFixture::new(3).await;
    for key in 0..300 {
        let written = fixture.put(&format!("{key}"), pattern(9_000, key)).await.unwrap();
        // Two replicas have acknowledged; the third may still be writing and would report NotFound.
        let id = extent(&written);
        let all_have_it = async {
            while fixture.holders(id).len() < 3 {
                tokio::time::sleep(ms(1)).await;
            }
        };
        tokio::time::timeout(ms(60_000), all_have_it).await.expect("the third gets its copy");
        fixture.get(&format!("{key}")).await.unwrap();
    }
    let mut reads: HashMap<DeviceId, usize> = HashMap::new();
    for (device, _) in fixture.node.reads() {
        *reads.entry(device).or_default() += 1;
    }
    assert_eq!(reads.values().sum::<usize>(), 300, "each was read once");
    assert!(reads.values().all(|reads| (60..140).contains(reads)), "{reads:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_away_takes_its_streams_along() {
    let fixture = ExtentFixture::new(3).await;
    fixture.put("key", pattern(5_000_000, 1)).await.unwrap();
    for pieces in 0..4 {
        let conditions = ReadConditions::default();
        let read = fixture.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
        let mut body = read.body.unwrap();
        for _ in 0..pieces {
            body.next().await.unwrap().unwrap();
        }
        assert_eq!(fixture.node.open.load(Ordering::SeqCst), 1);
        drop(body);
        assert_eq!(fixture.node.open.load(Ordering::SeqCst), 0);
    }
}

//! Reads whose streams break, stall or return wrong bytes in the middle.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::Instant;

use super::fixture::{ExtentFixture, extent};
use super::wayward::Conduct;
use crate::tests::harness::pattern;
use crate::{ReadConditions, Selection};

/// A fixture with an object of `bytes`, and the device that a read uses first.
async fn with_object(bytes: &Bytes) -> (ExtentFixture, DeviceId) {
    let fixture = ExtentFixture::new(3).await;
    fixture.put("key", bytes.clone()).await.unwrap();
    fixture.get("key").await.unwrap();
    let first = fixture.node.reads()[0].0;
    (fixture, first)
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_resumes_on_another_device_at_its_offset() {
    let bytes = pattern(5_000_000, 1);
    for at in [1, 1_048_575, 1_048_576, 3_000_000, 4_999_999] {
        for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt] {
            let (fixture, first) = with_object(&bytes).await;
            fixture.let_be([first], Conduct::ReadBreaks(at, kind));
            assert_eq!(fixture.get("key").await.unwrap(), bytes, "{kind:?} after {at} bytes");
            let reads = fixture.node.reads();
            assert_eq!(reads.len(), 2);
            assert_eq!((reads[0].0, reads[0].1.clone()), (first, 0..5_000_000));
            assert_ne!(reads[1].0, first);
            assert_eq!(reads[1].1, at as u64..5_000_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_read_resumes_on_another_device() {
    let bytes = pattern(5_000_000, 1);
    let (fixture, first) = with_object(&bytes).await;
    fixture.let_be([first], Conduct::ReadStalls(2_000_000));
    let begun = Instant::now();
    assert_eq!(fixture.get("key").await.unwrap(), bytes);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(fixture.node.reads()[1].1, 2_000_000..5_000_000);
    let begun = Instant::now();
    assert_eq!(fixture.get("key").await.unwrap(), bytes);
    assert!(begun.elapsed() < Duration::from_millis(1), "it is not asked first again");
}

#[tokio::test(start_paused = true)]
async fn all_may_break_as_long_as_each_gives_a_little() {
    let bytes = pattern(5_000_000, 1);
    let (fixture, _) = with_object(&bytes).await;
    let breaks = Conduct::ReadBreaks(300_000, ErrorKind::Unavailable);
    fixture.let_be(fixture.devices(), breaks);
    assert_eq!(fixture.get("key").await.unwrap(), bytes);
    fixture.node.reads();
    fixture.let_be(fixture.devices(), Conduct::ReadBreaks(300_000, ErrorKind::Corrupt));
    let error = fixture.get("key").await.expect_err("none of them can be trusted");
    assert!(matches!(error, crate::Error::Backend(e) if e.kind() == ErrorKind::Corrupt));
    assert_eq!(fixture.node.reads().len(), 3, "each was asked once");
}

#[tokio::test(start_paused = true)]
async fn a_range_is_resumed_within_itself() {
    let bytes = pattern(5_000_000, 1);
    let (fixture, first) = with_object(&bytes).await;
    fixture.let_be([first], Conduct::ReadBreaks(100_000, ErrorKind::Unavailable));
    let range = Selection::From { first: 1_000_000, last: Some(1_499_999) };
    let part = crate::tests::harness::get(&fixture.store, "key", range).await.unwrap();
    assert_eq!(part, bytes.slice(1_000_000..1_500_000));
    assert_eq!(fixture.node.reads()[1].1, 1_100_000..1_500_000);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_survives_nodes_that_close_on_it() {
    let bytes = pattern(12_000_000, 1);
    let (fixture, _) = with_object(&bytes).await;
    fixture.let_be(fixture.devices(), Conduct::ReadMinds(Duration::from_secs(10)));
    let conditions = ReadConditions::default();
    let read = fixture.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    let mut body = read.body.unwrap();
    let mut got = Vec::new();
    while let Some(piece) = body.next().await {
        got.extend_from_slice(&piece.unwrap());
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
    assert!(got == bytes);
    // Two readers at once would share windows.
    drop(body);
    fixture.node.reads();
    fixture.get("key").await.unwrap();
    assert_eq!(fixture.node.reads().len(), 1, "and blames none of them");
}

#[tokio::test(start_paused = true)]
async fn the_next_extent_is_found_while_this_one_flows() {
    let bytes = pattern(70_000_000, 1);
    let (fixture, _) = with_object(&bytes).await;
    let conditions = ReadConditions::default();
    let read = fixture.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    let mut body = read.body.unwrap();
    let mut got = 0;
    while got < 60_000_000 {
        got += body.next().await.unwrap().unwrap().len();
    }
    let reads = fixture.node.reads();
    assert_eq!(reads.len(), 2, "the second is open before the first has ended");
    fixture.let_be(fixture.devices(), Conduct::Late(Duration::from_millis(500)));
    let begun = Instant::now();
    while let Some(piece) = body.next().await {
        got += piece.unwrap().len();
    }
    assert_eq!((got, begun.elapsed()), (70_000_000, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_read_of_two_extents_survives_a_node_that_breaks_in_each() {
    let bytes = pattern(70_000_000, 1);
    let fixture = ExtentFixture::new(4).await;
    fixture.put("key", bytes.clone()).await.unwrap();
    for device in fixture.devices() {
        fixture.let_be(fixture.devices(), Conduct::Well);
        fixture.let_be([device], Conduct::ReadBreaks(1_500_000, ErrorKind::Unavailable));
        assert!(fixture.get("key").await.unwrap() == bytes, "{device} breaks");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extent_that_moved_meanwhile_is_found_where_it_went() {
    let bytes = pattern(5_000_000, 1);
    let fixture = ExtentFixture::new(6).await;
    let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
    fixture.let_be(fixture.holders(id), Conduct::ReadBreaks(2_000_000, ErrorKind::Unavailable));
    let conditions = ReadConditions::default();
    let read = fixture.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    let mut body = read.body.unwrap();
    let mut got = body.next().await.unwrap().unwrap().to_vec();
    let last = *fixture.order(id).last().unwrap();
    fixture.move_to(id, last).await;
    while let Some(piece) = body.next().await {
        got.extend_from_slice(&piece.unwrap());
    }
    assert!(got == bytes);
}

//! Reads whose streams break, stall or return wrong bytes in the middle.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::Instant;

use super::rig::{Rig, extent};
use super::wayward::Conduct;
use crate::tests::harness::pattern;
use crate::{ReadConditions, Selection};

/// A rig with an object of `bytes`, and the device that a read uses first.
async fn with_object(bytes: &Bytes) -> (Rig, DeviceId) {
    let rig = Rig::new(3).await;
    rig.put("key", bytes.clone()).await.unwrap();
    rig.get("key").await.unwrap();
    let first = rig.node.reads()[0].0;
    (rig, first)
}

#[tokio::test(start_paused = true)]
async fn what_breaks_goes_on_elsewhere_where_it_broke() {
    let bytes = pattern(5_000_000, 1);
    for at in [1, 1_048_575, 1_048_576, 3_000_000, 4_999_999] {
        for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt] {
            let (rig, first) = with_object(&bytes).await;
            rig.let_be([first], Conduct::ReadBreaks(at, kind));
            assert_eq!(rig.get("key").await.unwrap(), bytes, "{kind:?} after {at} bytes");
            let reads = rig.node.reads();
            assert_eq!(reads.len(), 2);
            assert_eq!((reads[0].0, reads[0].1.clone()), (first, 0..5_000_000));
            assert_ne!(reads[1].0, first);
            assert_eq!(reads[1].1, at as u64..5_000_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_stalls_goes_on_elsewhere() {
    let bytes = pattern(5_000_000, 1);
    let (rig, first) = with_object(&bytes).await;
    rig.let_be([first], Conduct::ReadStalls(2_000_000));
    let begun = Instant::now();
    assert_eq!(rig.get("key").await.unwrap(), bytes);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(rig.node.reads()[1].1, 2_000_000..5_000_000);
    let begun = Instant::now();
    assert_eq!(rig.get("key").await.unwrap(), bytes);
    assert!(begun.elapsed() < Duration::from_millis(1), "it is not asked first again");
}

#[tokio::test(start_paused = true)]
async fn all_may_break_as_long_as_each_gives_a_little() {
    let bytes = pattern(5_000_000, 1);
    let (rig, _) = with_object(&bytes).await;
    let breaks = Conduct::ReadBreaks(300_000, ErrorKind::Unavailable);
    rig.let_be(rig.devices(), breaks);
    assert_eq!(rig.get("key").await.unwrap(), bytes);
    rig.node.reads();
    rig.let_be(rig.devices(), Conduct::ReadBreaks(300_000, ErrorKind::Corrupt));
    let error = rig.get("key").await.expect_err("none of them can be trusted");
    assert!(matches!(error, crate::Error::Backend(e) if e.kind() == ErrorKind::Corrupt));
    assert_eq!(rig.node.reads().len(), 3, "each was asked once");
}

#[tokio::test(start_paused = true)]
async fn a_range_is_resumed_within_itself() {
    let bytes = pattern(5_000_000, 1);
    let (rig, first) = with_object(&bytes).await;
    rig.let_be([first], Conduct::ReadBreaks(100_000, ErrorKind::Unavailable));
    let range = Selection::From { first: 1_000_000, last: Some(1_499_999) };
    let part = crate::tests::harness::get(&rig.store, "key", range).await.unwrap();
    assert_eq!(part, bytes.slice(1_000_000..1_500_000));
    assert_eq!(rig.node.reads()[1].1, 1_100_000..1_500_000);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_survives_nodes_that_close_on_it() {
    let bytes = pattern(12_000_000, 1);
    let (rig, _) = with_object(&bytes).await;
    rig.let_be(rig.devices(), Conduct::ReadMinds(Duration::from_secs(10)));
    let conditions = ReadConditions::default();
    let read = rig.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    let mut body = read.body.unwrap();
    let mut got = Vec::new();
    while let Some(piece) = body.next().await {
        got.extend_from_slice(&piece.unwrap());
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
    assert!(got == bytes);
    rig.node.reads();
    rig.get("key").await.unwrap();
    assert_eq!(rig.node.reads().len(), 1, "and blames none of them");
}

#[tokio::test(start_paused = true)]
async fn the_next_extent_is_found_while_this_one_flows() {
    let bytes = pattern(70_000_000, 1);
    let (rig, _) = with_object(&bytes).await;
    let conditions = ReadConditions::default();
    let read = rig.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    let mut body = read.body.unwrap();
    let mut got = 0;
    while got < 60_000_000 {
        got += body.next().await.unwrap().unwrap().len();
    }
    let reads = rig.node.reads();
    assert_eq!(reads.len(), 2, "the second is open before the first has ended");
    rig.let_be(rig.devices(), Conduct::Late(Duration::from_millis(500)));
    let begun = Instant::now();
    while let Some(piece) = body.next().await {
        got += piece.unwrap().len();
    }
    assert_eq!((got, begun.elapsed()), (70_000_000, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_read_of_two_extents_survives_a_node_that_breaks_in_each() {
    let bytes = pattern(70_000_000, 1);
    let rig = Rig::new(4).await;
    rig.put("key", bytes.clone()).await.unwrap();
    for device in rig.devices() {
        rig.let_be(rig.devices(), Conduct::Well);
        rig.let_be([device], Conduct::ReadBreaks(1_500_000, ErrorKind::Unavailable));
        assert!(rig.get("key").await.unwrap() == bytes, "{device} breaks");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extent_that_moved_meanwhile_is_found_where_it_went() {
    let bytes = pattern(5_000_000, 1);
    let rig = Rig::new(6).await;
    let id = extent(&rig.put("key", bytes.clone()).await.unwrap());
    rig.let_be(rig.holders(id), Conduct::ReadBreaks(2_000_000, ErrorKind::Unavailable));
    let conditions = ReadConditions::default();
    let read = rig.store.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    let mut body = read.body.unwrap();
    let mut got = body.next().await.unwrap().unwrap().to_vec();
    let last = *rig.order(id).last().unwrap();
    rig.move_to(id, last).await;
    while let Some(piece) = body.next().await {
        got.extend_from_slice(&piece.unwrap());
    }
    assert!(got == bytes);
}

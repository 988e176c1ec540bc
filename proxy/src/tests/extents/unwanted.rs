//! Failed writes: their extents are deleted from every device.

use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::{Instant, timeout};

use super::fixture::ExtentFixture;
use super::wayward::Conduct;
use crate::tests::harness::{body, pattern, put, settle};
use crate::{NewBody, WriteConditions};

/// A whole body that is then refused for its wrong MD5.
fn refused(length: usize) -> NewBody {
    NewBody { md5: Some([9; 16]), ..body(pattern(length, 1)) }
}

async fn put_in_vain(fixture: &ExtentFixture, new_body: NewBody) {
    let refused = put(&fixture.store, "key", new_body, WriteConditions::default()).await;
    refused.expect_err("the body isn't what was said of it");
}

#[tokio::test(start_paused = true)]
async fn primaries_and_handoffs_are_reported() {
    let fixture = ExtentFixture::new(9).await;
    fixture.let_be((1..=5).map(DeviceId), Conduct::Refuses(ErrorKind::Full));
    for length in [20_000, 900_000, 5_000_000] {
        put_in_vain(&fixture, refused(length)).await;
        settle().await;
        assert!(fixture.node.memory.extents_in_use().is_empty(), "{length} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_laggard_is_broken_off_or_deleted_when_it_is_done() {
    for conduct in [
        Conduct::WritesLate(Duration::from_secs(3)),
        Conduct::Late(Duration::from_secs(3)),
        Conduct::WriteStalls(100_000),
        Conduct::Hangs,
    ] {
        let fixture = ExtentFixture::new(3).await;
        fixture.let_be([DeviceId(2)], conduct);
        put_in_vain(&fixture, refused(500_000)).await;
        fixture.let_be([DeviceId(2)], Conduct::Well);
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(fixture.node.memory.extents_in_use().is_empty(), "{conduct:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_does_not_delay_deletes_on_others() {
    let fixture = ExtentFixture::new(3).await;
    let (length, halves) = (600_000, 2);
    let all = pattern(length, 1);
    let bytes = all.clone();
    let node = fixture.node.clone();
    let dying = futures::stream::iter(0..halves).then(move |half| {
        let (bytes, node) = (bytes.clone(), node.clone());
        async move {
            if half == 1 {
                node.let_be(DeviceId(1), Conduct::Hangs);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(bytes.slice(half * length / halves..(half + 1) * length / halves))
        }
    });
    let new_body = NewBody { bytes: dying.boxed(), ..refused(length) };
    let begun = Instant::now();
    put_in_vain(&fixture, new_body).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "the client doesn't wait for that");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let left: Vec<_> =
        fixture.devices().into_iter().map(|d| fixture.node.memory.extents(d).len()).collect();
    assert_eq!(left, [1, 0, 0], "the sweep finds what a dead node keeps");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_cut_off_leaves_nothing_anywhere() {
    for cut_ms in 0..30 {
        let fixture = ExtentFixture::new(5).await;
        fixture.let_be([DeviceId(2)], Conduct::WriteSlow(Duration::from_millis(7)));
        fixture.let_be([DeviceId(4)], Conduct::Refuses(ErrorKind::Unavailable));
        let bytes = pattern(2_000_000, 1);
        let new_body = body(bytes.clone());
        let slow = new_body.bytes.then(|piece| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            piece
        });
        let new_body = NewBody { bytes: slow.boxed(), ..body(bytes) };
        let write = put(&fixture.store, "key", new_body, WriteConditions::default());
        timeout(Duration::from_millis(cut_ms), write).await.expect_err("it takes longer");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(fixture.node.memory.extents_in_use().is_empty(), "cut off after {cut_ms} ms");
    }
}

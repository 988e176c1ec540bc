//! Memory of coded writes: bounded over all writes, released at the end, and without endless waits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use martlet_protocol::{BackendExt, DeviceId, ErrorKind};
use tokio::time::Instant;

use super::fixture::{CodedFixture, extents};
use crate::tests::extents::slow::HeldBytes;
use crate::tests::extents::wayward::Conduct;
use crate::tests::harness::{body, pattern, put, settle};
use crate::{Error, NewBody, StoreOptions, WriteConditions};

const MIB: usize = 1024 * 1024;
const PIECE: usize = MIB / 16;

async fn fixture(buffer_bytes_max: usize) -> CodedFixture {
    let options = StoreOptions { buffer_bytes_max, ..StoreOptions::default() };
    CodedFixture::with("4+2", 6, 1, options).await
}

/// Bytes of the budget in use.
fn taken(fixture: &CodedFixture, budget: usize) -> usize {
    budget - fixture.store.services.extents.buffer.available_permits()
}

/// Writes a body, and releases its extents so that the test itself holds little memory.
async fn write(fixture: &CodedFixture, held: &HeldBytes, key: String, size_known: bool) {
    let mut new_body = held.body(2 * MIB / PIECE, PIECE);
    new_body.size = new_body.size.filter(|_| size_known);
    let written = put(&fixture.store, &key, new_body, WriteConditions::default()).await.unwrap();
    for extent in extents(&written) {
        let on = fixture.held(extent.id);
        assert!(on.len() >= 5, "{on:?}");
        for (fragment, device) in on {
            let id = extent.id.fragment(fragment.0);
            fixture.node.memory.delete_extents(device, &[id]).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_writers_share_the_budget_and_all_come_to_their_end() {
    let (budget, writers) = (8 * MIB, 64);
    for conduct in [Conduct::Hangs, Conduct::WriteSlow(Duration::from_millis(30))] {
        let fixture = fixture(budget).await;
        fixture.let_be([DeviceId(2)], conduct);
        let held = HeldBytes::default();
        let begun = Instant::now();
        let writes = (0..writers).map(|at| write(&fixture, &held, format!("{at}"), at % 4 > 0));
        join_all(writes).await;
        let took = begun.elapsed();
        assert!(took < Duration::from_mins(1), "{conduct:?}: {took:?}");
        // Beyond the budget: bytes kept for retries, and each writer's bytes to hash and its
        // present chunk.
        let most = held.most.load(Ordering::SeqCst);
        let beyond = budget / 4 + writers * (MIB / 2 + 2 * PIECE);
        assert!(most <= budget + beyond, "{conduct:?}: {most} bytes at once");
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(
            (held.now.load(Ordering::SeqCst), taken(&fixture, budget)),
            (0, 0),
            "{conduct:?}"
        );
        assert_eq!(fixture.store.services.extents.kept.available_permits(), budget / 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_smaller_than_an_extent_is_enough() {
    let budget = MIB / 2;
    let fixture = fixture(budget).await;
    let bodies: Vec<_> = (0..4).map(|seed| pattern(5 * MIB, seed)).collect();
    let writes = bodies.iter().zip(0..).map(|(bytes, at)| {
        let (fixture, mut new_body) = (&fixture, body(bytes.clone()));
        async move {
            new_body.size = new_body.size.filter(|_| at % 2 > 0);
            let key = format!("{at}");
            let written = put(&fixture.store, &key, new_body, WriteConditions::default()).await;
            fixture.check_at_home(&written.unwrap(), bytes).await;
        }
    });
    join_all(writes).await;
    settle().await;
    assert_eq!(taken(&fixture, budget), 0);
}

/// A body whose client sends the first MiB, and the rest after an hour.
fn stopping(bytes: &Bytes, size: Option<u64>) -> NewBody {
    let begin = futures::stream::iter([Ok(bytes.slice(..MIB))]);
    let rest = bytes.slice(MIB..);
    let end = futures::stream::once(async move {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Ok(rest)
    });
    NewBody { bytes: begin.chain(end).boxed(), size, ..body(Bytes::new()) }
}

#[tokio::test(start_paused = true)]
async fn clients_that_stopped_give_way_to_one_who_waits() {
    let budget = 16 * MIB;
    let fixture = fixture(budget).await;
    let bytes = pattern(16 * MIB, 1);
    for size in [Some(6_000_000), None] {
        // The stopped write holds parity of 8 MiB, which is the limit.
        let stopped = stopping(&bytes, Some(bytes.len() as u64));
        let stopped = Box::pin(put(&fixture.store, "stopped", stopped, WriteConditions::default()));
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let begun = Instant::now();
            let new_body = NewBody { size, ..body(pattern(6_000_000, 2)) };
            let written = put(&fixture.store, "other", new_body, WriteConditions::default()).await;
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            fixture.check_at_home(&written.unwrap(), &pattern(6_000_000, 2)).await;
        };
        let (stopped, ()) = futures::future::join(stopped, other).await;
        let Err(Error::Backend(error)) = stopped else { panic!("others waited") };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        settle().await;
        assert_eq!(taken(&fixture, budget), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_is_awaited_while_no_other_write_needs_its_memory() {
    let budget = 16 * MIB;
    let fixture = fixture(budget).await;
    let bytes = pattern(16 * MIB, 1);
    let stopped = stopping(&bytes, Some(bytes.len() as u64));
    let written = put(&fixture.store, "stopped", stopped, WriteConditions::default()).await;
    fixture.check_at_home(&written.unwrap(), &bytes).await;
    settle().await;
    assert_eq!(taken(&fixture, budget), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_dropped_gives_back_what_it_held() {
    let budget = 32 * MIB;
    let fixture = fixture(budget).await;
    let bytes = pattern(16 * MIB, 1);
    for size in [Some(bytes.len() as u64), None] {
        let write = put(&fixture.store, "key", stopping(&bytes, size), WriteConditions::default());
        tokio::time::timeout(Duration::from_secs(9), write).await.expect_err("it has stopped");
        settle().await;
        assert_eq!(taken(&fixture, budget), 0);
        assert!(fixture.node.memory.extents_in_use().is_empty());
    }
}

//! Nodes that are slow, stop, or hang while they receive bytes: no request waits long for them, and
//! the memory that they hold is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::Instant;

use super::fixture::{ExtentFixture, extent, extents};
use super::wayward::Conduct;
use crate::tests::harness::{body, pattern, put};
use crate::{Error, NewBody, StoreOptions, WriteConditions};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_a_write_a_short_grace_and_soon_nothing() {
    let fixture = ExtentFixture::new(3).await;
    fixture.let_be([DeviceId(2)], Conduct::Hangs);
    let begun = Instant::now();
    let id = extent(&fixture.put("key", pattern(100_000, 1)).await.unwrap());
    assert_eq!((begun.elapsed(), fixture.holders(id).len()), (ms(250), 2));
    for seed in 0..20 {
        fixture.put("key", pattern(100_000, seed)).await.unwrap();
    }
    let fixture = ExtentFixture::new(4).await;
    fixture.let_be([DeviceId(2)], Conduct::Hangs);
    let begun = Instant::now();
    for seed in 0..100 {
        fixture.put("key", pattern(100_000, seed)).await.unwrap();
    }
    assert!(begun.elapsed() <= ms(1500), "{:?}", begun.elapsed());
    let id = extent(&fixture.put("key", pattern(100_000, 1)).await.unwrap());
    assert_eq!(fixture.holders(id), [1, 3, 4].map(DeviceId), "another device stands in");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_in_mid_body_is_left_behind() {
    for taken in [0, 100_000, 2_000_000, 40_000_000] {
        let fixture = ExtentFixture::new(3).await;
        let bytes = pattern(60_000_000, 1);
        fixture.let_be([DeviceId(3)], Conduct::WriteStalls(taken));
        let begun = Instant::now();
        let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
        assert!(begun.elapsed() < ms(1000), "{taken} bytes: {:?}", begun.elapsed());
        assert_eq!(fixture.holders(id), [1, 2].map(DeviceId));
        assert!(fixture.get("key").await.unwrap() == bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_took_little_before_it_stopped_is_stood_in_for() {
    let fixture = ExtentFixture::new(4).await;
    fixture.let_be([DeviceId(3)], Conduct::WriteStalls(500_000));
    let bytes = pattern(60_000_000, 1);
    for _ in 0..5 {
        let id = extent(&fixture.put("key", bytes.clone()).await.unwrap());
        assert_eq!(fixture.holders(id), [1, 2, 4].map(DeviceId));
        assert!(fixture.get("key").await.unwrap() == bytes);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_does_not_set_the_pace() {
    let fixture = ExtentFixture::new(3).await;
    // One MB every 300 ms: about 20 s for the whole.
    fixture.let_be([DeviceId(1)], Conduct::WriteSlow(ms(300)));
    let begun = Instant::now();
    let id = extent(&fixture.put("key", pattern(64_000_000, 1)).await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(fixture.holders(id).len() >= 2);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_slow_alike_are_waited_for() {
    let fixture = ExtentFixture::new(3).await;
    fixture.let_be(fixture.devices(), Conduct::WriteSlow(ms(300)));
    let id = extent(&fixture.put("key", pattern(30_000_000, 1)).await.unwrap());
    assert_eq!(fixture.holders(id).len(), 3);
    fixture.let_be([DeviceId(1)], Conduct::WriteSlow(ms(330)));
    let id = extent(&fixture.put("key", pattern(30_000_000, 2)).await.unwrap());
    assert_eq!(fixture.holders(id).len(), 3, "a tenth slower is no reason to leave it behind");
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_not_taken_for_a_slow_node() {
    let fixture = ExtentFixture::new(3).await;
    let bytes = pattern(3_000_000, 1);
    let new_body = body(bytes.clone());
    let slow = new_body.bytes.then(|chunk| async {
        tokio::time::sleep(Duration::from_secs(90)).await;
        chunk
    });
    let new_body = NewBody { bytes: slow.boxed(), ..body(bytes.clone()) };
    let written = put(&fixture.store, "key", new_body, WriteConditions::default()).await.unwrap();
    assert_eq!(fixture.holders(extent(&written)).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_majority_that_moves_ends_in_an_error() {
    for taken in [0, 3_000_000] {
        let fixture = ExtentFixture::new(3).await;
        fixture.let_be([1, 2].map(DeviceId), Conduct::WriteStalls(taken));
        let begun = Instant::now();
        let refused = fixture.put("key", pattern(20_000_000, 1)).await;
        assert!(matches!(refused, Err(Error::Backend(e)) if e.kind() == ErrorKind::Unavailable));
        assert!(begun.elapsed() < Duration::from_secs(125), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_a_little_late_is_waited_for_and_one_that_is_later_goes_on_behind() {
    let fixture = ExtentFixture::new(3).await;
    fixture.let_be([DeviceId(2)], Conduct::WritesLate(ms(200)));
    let begun = Instant::now();
    fixture.put("key", pattern(100_000, 1)).await.unwrap();
    assert_eq!(begun.elapsed(), ms(200));
    fixture.let_be([DeviceId(2)], Conduct::Late(ms(3000)));
    let begun = Instant::now();
    let id = extent(&fixture.put("key", pattern(1_000_000, 1)).await.unwrap());
    assert_eq!((begun.elapsed(), fixture.holders(id).len()), (ms(0), 2), "it was late before");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(fixture.holders(id).len(), 3, "it went on behind the write");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_slow_by_habit_does_not_set_the_latency() {
    let fixture = ExtentFixture::new(3).await;
    fixture.let_be([DeviceId(2)], Conduct::WritesLate(ms(200)));
    fixture.put("key", pattern(100_000, 1)).await.unwrap();
    let mut written = Vec::new();
    for seed in 0..20 {
        tokio::time::sleep(ms(50)).await;
        let begun = Instant::now();
        written.push(extent(&fixture.put("key", pattern(100_000, seed)).await.unwrap()));
        assert!(begun.elapsed() < ms(50), "{:?}", begun.elapsed());
    }
    tokio::time::sleep(ms(300)).await;
    let last = written.pop().unwrap();
    assert_eq!(fixture.holders(last).len(), 3, "its copy went on behind the write");
    // Once the device is as fast as the other ones, writes wait for it again.
    fixture.let_be([DeviceId(2)], Conduct::Well);
    for seed in 0..40 {
        fixture.put("key", pattern(100_000, seed)).await.unwrap();
    }
    fixture.let_be([DeviceId(2)], Conduct::WritesLate(ms(10)));
    let id = extent(&fixture.put("key", pattern(100_000, 1)).await.unwrap());
    assert_eq!(fixture.holders(id).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_last_copy_is_as_long_as_for_the_others() {
    let fixture = ExtentFixture::new(3).await;
    fixture.let_be(fixture.devices(), Conduct::WritesLate(ms(1000)));
    fixture.let_be([DeviceId(2)], Conduct::WritesLate(ms(1800)));
    let begun = Instant::now();
    fixture.put("key", pattern(100_000, 1)).await.unwrap();
    assert_eq!(begun.elapsed(), ms(1800));
}

/// Counts bytes that are still held in memory, and their maximum.
#[derive(Clone, Default)]
pub(in crate::tests) struct HeldBytes {
    pub(in crate::tests) now: Arc<AtomicUsize>,
    pub(in crate::tests) most: Arc<AtomicUsize>,
}

struct HeldChunk(Vec<u8>, HeldBytes);

impl HeldBytes {
    fn chunk(&self, length: usize) -> Bytes {
        let now = self.now.fetch_add(length, Ordering::SeqCst) + length;
        self.most.fetch_max(now, Ordering::SeqCst);
        Bytes::from_owner(HeldChunk(vec![7; length], self.clone()))
    }

    /// A body whose chunks are made on demand.
    pub(in crate::tests) fn body(&self, chunks: usize, length: usize) -> NewBody {
        let held = self.clone();
        let stream = futures::stream::iter(0..chunks).map(move |_| Ok(held.chunk(length)));
        let size = Some((chunks * length) as u64);
        NewBody { bytes: stream.boxed(), size, ..body(Bytes::new()) }
    }
}

impl AsRef<[u8]> for HeldChunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for HeldChunk {
    fn drop(&mut self) {
        self.1.now.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

const MIB: usize = 1024 * 1024;

#[tokio::test(start_paused = true)]
async fn bytes_that_wait_for_a_hanging_node_are_bounded_and_delay_no_write() {
    let budget = 16 * MIB;
    for conduct in [Conduct::Hangs, Conduct::WriteStalls(MIB), Conduct::WriteSlow(ms(900))] {
        let options = StoreOptions { buffer_bytes_max: budget, ..StoreOptions::default() };
        let fixture = ExtentFixture::with(3, 1, options).await;
        fixture.let_be([DeviceId(2)], conduct);
        let (held, writers) = (HeldBytes::default(), 12);
        let begun = Instant::now();
        let writes = (0..writers).map(|writer| {
            let (fixture, held) = (&fixture, held.clone());
            async move {
                for round in 0..4 {
                    let key = format!("{writer}-{round}");
                    let new_body = held.body(48, MIB / 4);
                    let written = put(&fixture.store, &key, new_body, WriteConditions::default())
                        .await
                        .unwrap();
                    assert!(extents(&written).iter().all(|id| fixture.holders(*id).len() >= 2));
                }
            }
        });
        futures::future::join_all(writes).await;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{conduct:?}: {took:?}");
        // Beyond the budget: each writer's bytes kept for retries, its bytes to hash, and its
        // present chunk.
        let beyond = writers * (MIB + MIB / 2 + MIB / 2);
        let most = held.most.load(Ordering::SeqCst);
        assert!(most <= budget + beyond, "{conduct:?}: {most} bytes at once");
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(held.now.load(Ordering::SeqCst), 0, "{conduct:?}: nothing is kept for ever");
    }
}

#[tokio::test(start_paused = true)]
async fn copies_that_go_on_behind_their_writes_hold_a_quarter_of_the_budget_at_most() {
    let budget = 16 * MIB;
    let options = StoreOptions { buffer_bytes_max: budget, ..StoreOptions::default() };
    let fixture = ExtentFixture::with(3, 1, options).await;
    // It accepts one chunk every four seconds, which is not slow enough to give up the device.
    fixture.let_be([DeviceId(2)], Conduct::WriteSlow(ms(4000)));
    let held = HeldBytes::default();
    for round in 0..40 {
        let key = format!("{round}");
        let new_body = held.body(8, MIB / 4);
        put(&fixture.store, &key, new_body, WriteConditions::default()).await.unwrap();
        let now = held.now.load(Ordering::SeqCst);
        assert!(now <= budget / 4 + 2 * MIB, "{now} bytes after {round} writes");
    }
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(held.now.load(Ordering::SeqCst), 0);
}

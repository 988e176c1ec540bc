//! Many readers of one object at once.

use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{ByteStream, DeviceId};
use tokio::time::{Instant, sleep};

use super::harness::{Harness, create, faulty, get, pattern, sharing};
use crate::{ListObjects, ObjectStore, ReadConditions, Selection, WindowFigures};

const READERS: usize = 100;
const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_herd_of_gets_reads_each_extent_about_once() {
    let harness = Harness::with_bucket(1).await;
    let bytes = pattern(5_000_000, 1);
    harness.put("key", bytes.clone()).await.unwrap();
    let store = faulty(&harness.memory, 1, 1, |call| match call.op {
        CallKind::ReadExtent => Fault::Delay(Duration::from_millis(5)),
        _ => Fault::None,
    });
    let herd = join_all((0..READERS).map(|_| get(&store, "key", Selection::Whole))).await;
    assert!(herd.into_iter().all(|read| read.unwrap() == bytes));
    let figures = WindowFigures::of(&store);
    assert!(figures.read_bytes <= 3 * bytes.len() as u64, "{figures:?}");
    assert!(figures.served > (READERS as u64 - 5) * figures.fetched, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_herd_reads_right_bytes_though_a_device_fails_in_mid_body() {
    let harness = Harness::new(2, 2);
    create(&harness.store, "b").await;
    let bytes = pattern(5_000_000, 2);
    harness.put("key", bytes.clone()).await.unwrap();
    let store = faulty(&harness.memory, 2, 2, |call| match (call.op, call.device) {
        (CallKind::ReadExtent, DeviceId(1)) => Fault::CutBody(300_000),
        (CallKind::ReadExtent, _) => Fault::Delay(Duration::from_millis(5)),
        _ => Fault::None,
    });
    let herd = join_all((0..20).map(|_| get(&store, "key", Selection::Whole))).await;
    assert!(herd.into_iter().all(|read| read.unwrap() == bytes));
}

async fn open(store: &ObjectStore) -> ByteStream {
    let conditions = ReadConditions::default();
    store.get("b", "key", Selection::Whole, &conditions).await.unwrap().body.unwrap()
}

/// Reads an object whole; each MiB takes a client so long. Returns the time it took.
async fn read_slowly(mut body: ByteStream, bytes: &[u8], each_mib: Duration) -> Duration {
    let (begun, mut count) = (Instant::now(), 0);
    while let Some(chunk) = body.next().await {
        let chunk = chunk.unwrap();
        assert!(bytes[count..].starts_with(&chunk), "after {count} bytes");
        let mibs_before = count / MIB;
        count += chunk.len();
        let mibs = u32::try_from(count / MIB - mibs_before).unwrap();
        sleep(each_mib * mibs).await;
    }
    assert_eq!(count, bytes.len());
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn readers_of_uneven_clients_stay_within_the_cache() {
    let harness = Harness::with_bucket(1).await;
    let bytes = pattern(160 * MIB, 4);
    harness.put("key", bytes.clone()).await.unwrap();
    let store = sharing(&harness.memory, 64 * MIB);
    let bodies = join_all((10..18).map(|_| open(&store))).await;
    let clients = bodies.into_iter().zip(10..);
    let clients = clients.map(|(body, ms)| read_slowly(body, &bytes, Duration::from_millis(ms)));
    join_all(clients).await;
    let figures = WindowFigures::of(&store);
    assert!(figures.read_bytes * 5 <= bytes.len() as u64 * 6, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_delays_the_others_by_seconds_at_most() {
    let harness = Harness::with_bucket(1).await;
    let bytes = pattern(160 * MIB, 4);
    harness.put("key", bytes.clone()).await.unwrap();
    let store = sharing(&harness.memory, 64 * MIB);
    let stalled = open(&store).await;
    let bodies = join_all((0..4).map(|_| open(&store))).await;
    let each_mib = Duration::from_millis(100);
    let clients = bodies.into_iter().map(|body| read_slowly(body, &bytes, each_mib));
    let times = join_all(clients).await;
    assert!(times.iter().all(|time| *time < Duration::from_secs(16 + 3)), "{times:?}");
    let figures = WindowFigures::of(&store);
    assert!(figures.read_bytes * 5 <= bytes.len() as u64 * 6, "{figures:?}");
    drop(stalled);
}

#[tokio::test]
async fn a_herd_of_heads_and_lists_gets_whole_answers() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    for number in 0..50 {
        harness.put(&format!("step/{number:03}"), "shard").await.unwrap();
    }
    harness.put(".metadata", pattern(6000, 3)).await.unwrap();
    let heads = (0..READERS).map(|_| harness.head(".metadata", Selection::Whole));
    let lists = (0..READERS).map(|_| {
        let list = ListObjects { prefix: "step/".into(), limit: 1000, ..ListObjects::default() };
        harness.store.list("b", list)
    });
    let gets = (0..READERS).map(|_| async {
        let conditions = ReadConditions::default();
        harness.store.get("b", ".metadata", Selection::Whole, &conditions).await
    });
    let (heads, lists, gets) = tokio::join!(join_all(heads), join_all(lists), join_all(gets));
    assert!(heads.iter().all(Result::is_ok) && gets.iter().all(Result::is_ok));
    assert!(lists.into_iter().all(|page| page.unwrap().objects.len() == 50));
    assert_eq!(WindowFigures::of(&harness.store).fetched, 0, "inline objects take no window");
}

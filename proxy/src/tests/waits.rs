//! Requests that wait for no more devices than they need.

use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, Level, RegisterKind};
use tokio::time::{Instant, sleep};

use super::harness::{Harness, faulty, pattern};
use super::multipart::{begin, naming, send};
use super::nodes::{Fortune, Nodes};
use crate::Selection;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_listing_waits_for_no_replica_beyond_a_quorum() {
    let nodes = Nodes::new(3);
    let (proxy, primaries, _) = nodes.with_bucket("key").await;
    for number in 0..20 {
        proxy.put(Level::Strict, &format!("key {number}"), "x").await.unwrap();
    }
    proxy.fares(&primaries[2..], Fortune::Late(ms(100)));
    let begun = Instant::now();
    assert_eq!(proxy.list(Level::Strict, None).await.unwrap().1.len(), 20);
    assert!(begun.elapsed() < ms(40), "{:?}", begun.elapsed());
    proxy.fares(&primaries[2..], Fortune::Silent);
    for number in 0..20 {
        proxy.get(Level::Strict, &format!("key {number}")).await.unwrap();
        sleep(ms(200)).await;
    }
    let begun = Instant::now();
    assert_eq!(proxy.list(Level::Strict, None).await.unwrap().1.len(), 20);
    assert_eq!(begun.elapsed(), ms(0), "it is known to be silent");
}

/// Number of an upload's parts on a device.
fn parts(harness: &Harness) -> usize {
    let held = harness.memory.registers(DeviceId(1));
    let is_part = |kind, live| kind == RegisterKind::Part && live;
    held.iter().filter(|(key, entry)| is_part(key.kind, !entry.value.is_tombstone())).count()
}

#[tokio::test(start_paused = true)]
async fn a_complete_answers_before_its_parts_are_freed() {
    let harness = Harness::with_bucket(1).await;
    let upload = begin(&harness, "key").await;
    let bytes = pattern(100_000, 1);
    let first = send(&harness, upload, 1, &bytes).await.unwrap();
    send(&harness, upload, 2, &pattern(100_000, 2)).await.unwrap();
    let store = faulty(&harness.memory, 1, 1, |call| {
        let frees = call.op == CallKind::Write
            && call.key.is_some_and(|key| key.kind == RegisterKind::Part)
            && call.write.is_some_and(|write| write.entry.value.is_tombstone());
        if frees { Fault::Delay(ms(900)) } else { Fault::None }
    });
    let begun = Instant::now();
    let complete = naming(&[(1, &first)]);
    store.uploads().complete("b", "key", upload, complete.clone()).await.unwrap();
    store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert!(begun.elapsed() < ms(500), "{:?}", begun.elapsed());
    assert_eq!(parts(&harness), 2);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(parts(&harness), 0, "they are freed behind the answer");
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
}

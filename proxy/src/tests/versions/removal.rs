//! Removal of the current version: the search for the next one goes before the ballot.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use martlet_protocol::backend::{CallKind, EntryWrite, Want};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Fault, MemoryBackend};
use martlet_protocol::{BackendExt, DeviceId, RegisterKey, Stamp, Term, VersionId, WriteId};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::{get_version, put_version, shown, versioned};
use crate::Error;
use crate::tests::harness::{Harness, faulty};

#[tokio::test]
async fn nothing_is_listed_between_the_promise_and_the_write() {
    let harness = versioned().await;
    let mut ids = Vec::new();
    for bytes in ["1", "22", "333"] {
        ids.push(put_version(&harness.store, "k", bytes).await.unwrap());
    }
    for (id, expected) in [(ids[2], vec!["k 2*", "k 1"]), (ids[1], vec!["k 1*"]), (ids[0], vec![])]
    {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = calls.clone();
        let store = faulty(&harness.memory, 3, 3, move |call| {
            noted.lock().push(call.op);
            Fault::None
        });
        store.versions().delete("b", "k", id).await.unwrap();
        let calls = calls.lock().clone();
        let promise = calls.iter().position(|op| *op == CallKind::Promise).unwrap();
        assert!(calls[..promise].contains(&CallKind::ListRows), "{calls:?}");
        assert!(!calls[promise..].contains(&CallKind::ListRows), "{calls:?}");
        assert_eq!(shown(&harness.store).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn r8_a_version_that_went_after_the_search_does_not_become_current() {
    let harness = versioned().await;
    let mut ids = Vec::new();
    for bytes in ["1", "22", "333"] {
        ids.push(put_version(&harness.store, "k", bytes).await.unwrap());
    }
    let slow = faulty(&harness.memory, 3, 3, |call| match call.op {
        CallKind::Promise => Fault::Delay(Duration::from_millis(100)),
        _ => Fault::None,
    });
    let meanwhile = async {
        sleep(Duration::from_millis(50)).await;
        harness.store.versions().delete("b", "k", ids[1]).await.unwrap();
    };
    let (removed, ()) = tokio::join!(slow.versions().delete("b", "k", ids[2]), meanwhile);
    removed.unwrap();
    assert_eq!(shown(&harness.store).await, ["k 1*"]);
}

/// Writes a tombstone over a register on all devices, as a repair does.
fn entomb(memory: &MemoryBackend, key: &RegisterKey) {
    let devices = || (1..=3).map(DeviceId);
    let held = devices().map(|device| now(memory.read(device, key, Want::Entry, Term::ANY)));
    let newest = held.filter_map(|view| Some(view.entry?.order)).max().unwrap();
    for device in devices() {
        let order = Stamp::at_ms(newest.time_ms() + 1);
        let write = EntryWrite {
            key: key.clone(),
            entry: Entry { order, write_id: WriteId([9; 16]), value: Value::Tombstone },
            inline: None,
            mode: WriteMode::Repair,
            generation: 0,
            commit_by_ms: u64::MAX,
            keep_body: true,
            term: Term::ANY,
        };
        now(memory.write(device, write));
    }
}

/// Result of a call to a backend in memory, which never waits.
fn now<T>(call: impl Future<Output = martlet_protocol::Result<T>>) -> T {
    call.now_or_never().unwrap().unwrap()
}

async fn head_of_k(harness: &Harness) -> RegisterKey {
    let bucket = harness.store.bucket("b").await.unwrap();
    RegisterKey::object(bucket.id, bucket.index_shards, "k")
}

#[tokio::test]
async fn a_version_below_a_head_without_one_can_be_removed() {
    let harness = versioned().await;
    let mut ids = Vec::new();
    for bytes in ["1", "22"] {
        ids.push(put_version(&harness.store, "k", bytes).await.unwrap());
    }
    entomb(&harness.memory, &head_of_k(&harness).await);
    assert_eq!(get_version(&harness.store, "k", ids[0]).await.unwrap(), "1");
    harness.store.versions().delete("b", "k", ids[0]).await.unwrap();
    let gone = get_version(&harness.store, "k", ids[0]).await;
    assert!(matches!(gone, Err(Error::NoSuchVersion)), "{gone:?}");
    harness.store.versions().delete("b", "k", ids[0]).await.unwrap();
    harness.store.versions().delete("b", "k", VersionId::Null).await.unwrap();
}

/// A removal that reaches its replicas between the ballot's search and any read after that.
#[tokio::test]
async fn r8_a_search_that_finds_a_removed_version_goes_on_below() {
    for at in 1.. {
        let harness = versioned().await;
        let mut ids = Vec::new();
        for bytes in ["1", "22", "333"] {
            ids.push(put_version(&harness.store, "k", bytes).await.unwrap());
        }
        let beside = RegisterKey::version(&head_of_k(&harness).await, ids[1]);
        let (memory, reads) = (harness.memory.clone(), Arc::new(Mutex::new(0)));
        let counted = reads.clone();
        let store = faulty(&harness.memory, 3, 3, move |call| {
            if call.op == CallKind::Read && call.key == Some(&beside) {
                *counted.lock() += 1;
                if *counted.lock() == at {
                    entomb(&memory, &beside);
                }
            }
            Fault::None
        });
        store.versions().delete("b", "k", ids[2]).await.unwrap();
        if *reads.lock() < at {
            assert!(at > 3, "only {at} reads");
            assert_eq!(shown(&harness.store).await, ["k 2*", "k 1"]);
            return;
        }
        assert_eq!(shown(&harness.store).await, ["k 1*"], "removed at read {at}");
    }
}

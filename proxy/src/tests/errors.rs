//! Each call to a node fails in turn, in each way: replies to clients must be true, an object must
//! be old or new and never torn, and no extent may stay without an owner.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::{Body, Marks};
use martlet_protocol::testing::Fault;
use martlet_protocol::{ErrorKind, ExtentId};
use parking_lot::Mutex;

use super::conditional::only_over;
use super::harness::{Harness, body, create, faulty, pattern, put, settle};
use super::multipart::naming;
use crate::{CopyObject, Error, NewUpload, ObjectStore, ReadConditions, Result, Selection};
use crate::{WriteConditions, WrittenObject};

const FAULTS: [Fault; 5] = [
    Fault::Refuse(ErrorKind::Unavailable),
    Fault::LoseReply(ErrorKind::Unavailable),
    Fault::Refuse(ErrorKind::Full),
    Fault::Refuse(ErrorKind::Corrupt),
    Fault::LoseReply(ErrorKind::Internal),
];

fn old() -> bytes::Bytes {
    pattern(20_000, 1)
}

fn new() -> bytes::Bytes {
    pattern(70_000, 2)
}

/// A harness with an old object, and a store over it whose call number `failing` fails.
struct Faulted {
    harness: Harness,
    before: WrittenObject,
    store: ObjectStore,
    /// Calls so far.
    calls: Arc<Mutex<Vec<CallKind>>>,
}

impl Faulted {
    async fn new(replicas: usize, failing: usize, fault: Fault) -> Self {
        let devices = u32::try_from(replicas).unwrap();
        let harness = Harness::new(replicas, devices);
        create(&harness.store, "b").await;
        let before = harness.put("key", old()).await.unwrap();
        // The faulty store has a stamp source of its own, whose stamps must be above.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let made = calls.clone();
        let store = faulty(&harness.memory, replicas, devices, move |call| {
            let mut made = made.lock();
            made.push(call.op);
            if made.len() == failing + 1 { fault } else { Fault::None }
        });
        Self { harness, before, store, calls }
    }

    /// Extents that neither the object nor garbage names.
    async fn orphans(&self) -> Vec<ExtentId> {
        settle().await;
        let named = match self.harness.head("key", Selection::Whole).await {
            Ok(read) => match &read.object.body {
                Body::Extents(manifest) => manifest.extents.iter().map(|e| e.id).collect(),
                _ => Vec::new(),
            },
            Err(_) => Vec::new(),
        };
        let mut orphans = self.harness.memory.extents_in_use();
        orphans.retain(|id| !named.contains(id));
        orphans
    }
}

/// Runs `act` with each fault at each of its calls. `after` is the key's content after a success.
async fn at_every_call(
    after: Option<bytes::Bytes>,
    act: impl AsyncFn(&ObjectStore, &WrittenObject) -> Result<()>,
) {
    for replicas in [1, 3] {
        for fault in FAULTS {
            for failing in 0.. {
                let faulted = Faulted::new(replicas, failing, fault).await;
                let done = act(&faulted.store, &faulted.before).await;
                let failed = faulted.calls.lock().get(failing).copied();
                let what = format!("{replicas} replicas, {fault:?} at call {failing} ({failed:?})");
                let held = match faulted.harness.get("key", Selection::Whole).await {
                    Ok(held) => Some(held),
                    Err(Error::NoSuchKey) => None,
                    Err(error) => panic!("{what}: {error}"),
                };
                let worked = done.is_ok();
                assert!(held == after || (held == Some(old()) && !worked), "{what}: {done:?}");
                let survivable = matches!(fault, Fault::Refuse(ErrorKind::Unavailable));
                assert!(worked || !(survivable && replicas == 3), "{what}: {done:?}");
                // A write of unknown outcome keeps its extents for the sweep.
                let excused = matches!(failed, Some(CallKind::Write | CallKind::DeleteExtents));
                let orphans = faulted.orphans().await;
                assert!(excused || orphans.is_empty(), "{what}: {orphans:?} left, {done:?}");
                if failed.is_none() {
                    done.expect("without a fault it works");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn overwrites() {
    at_every_call(Some(new()), async |store, _| {
        put(store, "key", body(new()), WriteConditions::default()).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn conditional_overwrites() {
    at_every_call(Some(new()), async |store, before| {
        put(store, "key", body(new()), only_over(before)).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn inline_overwrites() {
    at_every_call(Some(pattern(500, 3)), async |store, _| {
        put(store, "key", body(pattern(500, 3)), WriteConditions::default()).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn deletes() {
    at_every_call(None, async |store, _| {
        store.delete("b", "key", &WriteConditions::default()).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn conditional_deletes() {
    at_every_call(None, async |store, before| {
        store.delete("b", "key", &only_over(before)).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn tags() {
    at_every_call(Some(old()), async |store, _| {
        store.versions().set_tags("b", "key", vec![("a".into(), "b".into())]).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn copies() {
    at_every_call(Some(old()), async |store, _| {
        let copy = CopyObject {
            source: ("b".into(), "key".into()),
            source_version: None,
            source_conditions: ReadConditions::default(),
            attributes: Some(martlet_protocol::entry::Attributes::default()),
            tags: None,
            marks: Marks::default(),
            storage_class: None,
            checksum: None,
            conditions: WriteConditions::default(),
        };
        store.copy("b", "key", copy).await.map(drop)
    })
    .await;
}

/// Runs a whole upload through the faulty store. Another proxy aborts the upload if it did not end.
#[tokio::test]
async fn uploads() {
    for fault in FAULTS {
        for failing in 0.. {
            let faulted = Faulted::new(1, failing, fault).await;
            let store = &faulted.store;
            let whole = async {
                let upload = NewUpload {
                    attributes: martlet_protocol::entry::Attributes::default(),
                    checksum: None,
                };
                let upload = store.uploads().create("b", "key", upload).await?.id;
                let first = store.uploads().put_part("b", "key", upload, 1, body(new())).await?;
                store.uploads().put_part("b", "key", upload, 2, body(old())).await?;
                store.uploads().complete("b", "key", upload, naming(&[(1, &first)])).await.map(drop)
            };
            let done = whole.await;
            // Parts are freed after the reply.
            settle().await;
            let failed = faulted.calls.lock().get(failing).copied();
            let what = format!("{fault:?} at call {failing} ({failed:?}): {done:?}");
            let open = crate::ListUploads { limit: 9, ..crate::ListUploads::default() };
            let open = faulted.harness.store.uploads().list("b", open).await.unwrap();
            for upload in open.uploads {
                let aborted = faulted.harness.store.uploads().abort("b", "key", upload.id).await;
                assert!(matches!(aborted, Ok(()) | Err(Error::NoSuchUpload)), "{what}");
            }
            let held = faulted.harness.get("key", Selection::Whole).await.unwrap();
            assert!(held == new() || (held == old() && done.is_err()), "{what}");
            // If freeing failed, the sweep must find the parts of an upload that ended.
            let excused = matches!(
                failed,
                Some(CallKind::Write | CallKind::DeleteExtents | CallKind::ListRows)
            );
            let orphans = faulted.orphans().await;
            assert!(excused || orphans.is_empty(), "{what}: {orphans:?} left");
            if failed.is_none() {
                done.expect("without a fault it works");
                break;
            }
        }
    }
}

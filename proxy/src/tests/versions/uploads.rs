//! Uploads completed again after newer versions of their key (rule M1): the reply names the version
//! of the upload while that version exists.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use martlet_protocol::backend::Reply;
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::testing::{CallHook, FaultyBackend};
use martlet_protocol::{Backend, Clock, ManualClock, SystemClock, Version, VersionId};
use tokio::time::timeout;

use super::super::dying::{dying, uploaded};
use super::super::harness::{Harness, create, pattern, store_with};
use super::super::multipart::{begin, naming, send};
use super::dying::{holding, some};
use super::{all_versions, put_version};
use crate::{Error, ListedVersion, ObjectStore};

/// Versions of so many bytes.
pub(super) async fn of_size(store: &ObjectStore, bytes: usize) -> Vec<VersionId> {
    let versions = all_versions(store).await.into_iter();
    let has = |it: &ListedVersion| it.object.as_ref().is_some_and(|it| it.size == bytes as u64);
    versions.filter(has).map(|it| it.id).collect()
}

#[tokio::test(start_paused = true)]
async fn m1_a_complete_is_answered_with_its_version_while_that_is_there() {
    let old = pattern(300, 1);
    let (_nodes, proxy, _) = holding(&some(slice::from_ref(&old))).await;
    let store = &proxy.store;
    let (upload, complete) = uploaded(&proxy, &pattern(40_000, 2)).await;
    let again = || store.uploads().complete("b", "key", upload, complete.clone());
    let first = again().await.unwrap().object;
    let version = first.version.map(Version::name).unwrap();
    for newer in 3..6 {
        put_version(store, "key", pattern(20_000, newer)).await.unwrap();
        let found = again().await.unwrap().object;
        assert_eq!((found.version, found.size, found.etag), (first.version, 40_000, first.etag));
    }
    store.versions().delete("b", "key", version).await.unwrap();
    let gone = again().await.unwrap().object;
    assert_eq!((gone.version, gone.etag), (None, first.etag), "what is left of it is its tag");
    assert_eq!(of_size(store, 40_000).await, []);
}

/// A proxy that continues another's decision finds the written version, also behind a newer one.
#[tokio::test(start_paused = true)]
async fn m1_who_drives_an_upload_on_finds_it_behind_what_came_in_front() {
    let (old, new) = (pattern(300, 1), pattern(40_000, 2));
    let mut behind = 0;
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let (nodes, proxy, _) = holding(&some(slice::from_ref(&old))).await;
        let (upload, complete) = uploaded(&proxy, &new).await;
        let first = dying(&nodes, calls).await;
        let first = first.uploads().complete("b", "key", upload, complete.clone());
        let done = timeout(Duration::from_millis(500), first).await;
        put_version(&proxy.store, "key", "newer").await.unwrap();
        let written = of_size(&proxy.store, new.len()).await;
        let again = proxy.store.uploads().complete("b", "key", upload, complete.clone()).await;
        let after = of_size(&proxy.store, new.len()).await;
        match again {
            Ok(again) => {
                let version = again.object.version.map(Version::name);
                assert_eq!(after, version.into_iter().collect::<Vec<_>>(), "{what}");
                assert!(written.is_empty() || written == after, "{what}: it was made twice");
            }
            Err(Error::Backend(_) | Error::NoSuchUpload) => {
                assert!(written.is_empty() && after.is_empty(), "{what}: it is there");
            }
            Err(error) => panic!("{what}: {error}"),
        }
        behind += usize::from(!written.is_empty() && done.is_err());
        if done.is_ok() {
            break;
        }
    }
    assert!(behind > 0, "none died between the object and the answer");
}

/// Counts the rows of listings.
#[derive(Clone, Default)]
struct CountedRows(Arc<AtomicUsize>);

impl CallHook for CountedRows {
    fn after(&self, reply: Reply) -> Reply {
        if let Reply::List(page) = &reply {
            self.0.fetch_add(page.entries.len(), Ordering::SeqCst);
        }
        reply
    }
}

/// A key may have any number of versions, and a client may complete again as often as it likes.
#[tokio::test]
async fn m1_a_repetition_reads_the_versions_of_the_time_of_its_completion() {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let harness = Harness::at(3, 3, clock.clone());
    create(&harness.store, "b").await;
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    let put_many = async || {
        for _ in 0..300 {
            put_version(&harness.store, "key", "another").await.unwrap();
            clock.advance_ms(1000);
        }
    };
    let upload = begin(&harness, "key").await;
    let part = send(&harness, upload, 1, &pattern(30_000, 1)).await.unwrap();
    let complete = naming(&[(1, &part)]);
    put_many().await;
    let first = harness.store.uploads().complete("b", "key", upload, complete.clone()).await;
    let version = first.unwrap().object.version;
    clock.advance_ms(2 * CLOCK_SKEW_MS_MAX);
    put_many().await;
    let rows = CountedRows::default();
    let node = FaultyBackend::hooked(harness.memory.clone(), rows.clone());
    let node: Arc<dyn Backend> = Arc::new(node);
    let store = store_with(&node, 3, 3, 0, clock.clone());
    for is_there in [true, false] {
        rows.0.store(0, Ordering::SeqCst);
        let again = store.uploads().complete("b", "key", upload, complete.clone()).await.unwrap();
        assert_eq!(again.object.version, version.filter(|_| is_there));
        let rows = rows.0.load(Ordering::SeqCst);
        assert!((3..=300).contains(&rows), "{rows} rows");
        let name = version.map(Version::name).unwrap();
        harness.store.versions().delete("b", "key", name).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn m1_a_null_version_of_an_upload_is_found_behind_newer_ones() {
    let (_nodes, proxy, _) = holding(&some(slice::from_ref(&pattern(300, 1)))).await;
    let (store, uploads) = (&proxy.store, proxy.store.uploads());
    store.buckets().set_versioning("b", false).await.unwrap();
    let (upload, complete) = uploaded(&proxy, &pattern(40_000, 2)).await;
    let first = uploads.complete("b", "key", upload, complete.clone()).await.unwrap().object;
    assert_eq!(first.version.map(Version::name), Some(VersionId::Null));
    store.buckets().set_versioning("b", true).await.unwrap();
    put_version(store, "key", pattern(20_000, 3)).await.unwrap();
    let again = uploads.complete("b", "key", upload, complete).await.unwrap().object;
    assert_eq!((again.version, again.size), (first.version, 40_000));
}

//! Uploads completed again after newer versions of their key (rule M1): the reply names the version
//! of the upload while that version exists.

use std::slice;
use std::time::Duration;

use martlet_protocol::VersionId;
use tokio::time::timeout;

use super::super::dying::{dying, uploaded};
use super::super::harness::pattern;
use super::dying::{holding, some};
use super::{all_versions, put_version};
use crate::{Error, ListedVersion, ObjectStore};

/// Versions of so many bytes.
async fn of_size(store: &ObjectStore, bytes: usize) -> Vec<VersionId> {
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
    let version = first.version.map(martlet_protocol::Version::name).unwrap();
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
                let version = again.object.version.map(martlet_protocol::Version::name);
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

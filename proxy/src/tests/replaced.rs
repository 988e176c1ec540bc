//! Buckets in one proxy's cache that another proxy has deleted and made again (rule M2).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::Attributes;
use martlet_protocol::testing::{Call, Fault};
use martlet_protocol::{BucketId, ErrorKind, Level, Settings};
use tokio::time::sleep;

use super::harness::{body, create, get, pattern, put};
use super::multipart::naming;
use super::nodes::{Nodes, Proxy};
use super::objects::copy_of;
use crate::{
    Error, ListUploads, ListVersions, NewBucket, NewUpload, ReadConditions, Selection,
    WriteConditions,
};

/// The proxy that made the bucket again, and one that caches the former bucket.
async fn made_again() -> (Nodes, Proxy, Proxy) {
    let nodes = Nodes::new(3);
    let (maker, ..) = nodes.with_bucket("key").await;
    let remembering = remember(&nodes).await;
    maker.store.buckets().delete("b").await.unwrap();
    create(&maker.store, "b").await;
    (nodes, maker, remembering)
}

async fn remember(nodes: &Nodes) -> Proxy {
    let proxy = nodes.proxy();
    proxy.store.bucket("b").await.unwrap();
    sleep(Duration::from_millis(1)).await;
    proxy
}

fn new_upload() -> NewUpload {
    NewUpload { attributes: Attributes::default(), checksum: None }
}

#[tokio::test(start_paused = true)]
async fn m2_what_is_in_a_bucket_that_was_made_again_is_found() {
    for way in 0..6 {
        let (_nodes, maker, remembering) = made_again().await;
        maker.put(Level::Strict, "key", "x").await.unwrap();
        // Waits for the third replica, because proxies with different clocks may otherwise
        // conflict.
        sleep(Duration::from_secs(1)).await;
        let store = &remembering.store;
        match way {
            0 => {
                let read = remembering.get(Level::Available, "key").await.unwrap();
                assert_eq!(read.1, "x");
            }
            1 => {
                let listed = remembering.list(Level::Available, None).await.unwrap();
                assert_eq!(listed.1, ["key"]);
            }
            2 => {
                let list = ListVersions { limit: 9, ..ListVersions::default() };
                let listed = store.versions().list("b", list).await.unwrap();
                assert_eq!(listed.versions.len(), 1);
            }
            3 => {
                remembering.delete(Level::Available, "key").await.unwrap();
                let gone = maker.get(Level::Strict, "key").await;
                assert!(matches!(gone, Err(Error::NoSuchKey)), "{gone:?}");
            }
            4 => {
                let tags = vec![("a".to_owned(), "b".to_owned())];
                let tagged = store.versions().set_tags("b", "key", tags.clone()).await.unwrap();
                assert_eq!(tagged.object.attributes.tags, tags);
            }
            _ => {
                let copy = copy_of("key");
                store.copy("b", "copy", copy).await.unwrap();
                assert_eq!(maker.get(Level::Strict, "copy").await.unwrap().1, "x");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m2_a_bucket_that_was_made_again_takes_writes_at_once() {
    let (nodes, maker, remembering) = made_again().await;
    remembering.put(Level::Available, "key", "x").await.unwrap();
    assert_eq!(maker.get(Level::Strict, "key").await.unwrap().1, "x");
    // Extents belong to the bucket that they were written for, so the client must send them again.
    let remembering = remember(&nodes).await;
    maker.delete(Level::Strict, "key").await.unwrap();
    maker.store.buckets().delete("b").await.unwrap();
    create(&maker.store, "b").await;
    let bytes = pattern(100_000, 1);
    let send = || put(&remembering.store, "key", body(bytes.clone()), WriteConditions::default());
    let first = send().await;
    assert!(matches!(first, Err(Error::BucketReplaced)), "{first:?}");
    send().await.unwrap();
    assert_eq!(get(&maker.store, "key", Selection::Whole).await.unwrap(), bytes);
}

#[tokio::test(start_paused = true)]
async fn m2_uploads_of_a_bucket_that_was_made_again_go_on_through_any_proxy() {
    let (_nodes, maker, remembering) = made_again().await;
    let upload = remembering.store.uploads().create("b", "key", new_upload()).await.unwrap().id;
    let part =
        maker.store.uploads().put_part("b", "key", upload, 1, body(pattern(50_000, 1))).await;
    maker
        .store
        .uploads()
        .complete("b", "key", upload, naming(&[(1, &part.unwrap())]))
        .await
        .unwrap();
    for way in 0..4 {
        let (_nodes, maker, remembering) = made_again().await;
        let upload = maker.store.uploads().create("b", "key", new_upload()).await.unwrap().id;
        let bytes = body(pattern(50_000, 1));
        let store = &remembering.store;
        match way {
            0 => drop(store.uploads().put_part("b", "key", upload, 1, bytes).await.unwrap()),
            1 => {
                let part =
                    maker.store.uploads().put_part("b", "key", upload, 1, bytes).await.unwrap();
                let complete = naming(&[(1, &part)]);
                store.uploads().complete("b", "key", upload, complete).await.unwrap();
            }
            2 => {
                let list = ListUploads { limit: 9, ..ListUploads::default() };
                assert_eq!(store.uploads().list("b", list).await.unwrap().uploads.len(), 1);
            }
            _ => store.uploads().abort("b", "key", upload).await.unwrap(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m2_what_was_allowed_in_one_bucket_is_not_done_in_anothers() {
    let nodes = Nodes::new(3);
    let (maker, ..) = nodes.with_bucket("key").await;
    let (reading, writing) = (remember(&nodes).await, remember(&nodes).await);
    maker.store.buckets().delete("b").await.unwrap();
    let settings = Settings::default();
    let new = NewBucket { owner: "another".into(), index_shards: 8, policy: None, settings };
    maker.store.buckets().create("b", new).await.unwrap();
    maker.put(Level::Strict, "key", "secret").await.unwrap();
    let read = reading.get(Level::Available, "key").await.map(drop);
    let written = writing.put(Level::Available, "key", "x").await.map(drop);
    for refused in [read, written] {
        let is_busy = matches!(&refused, Err(Error::Backend(error))
            if error.kind() == ErrorKind::Unavailable);
        assert!(is_busy, "{refused:?}");
    }
    assert_eq!(maker.get(Level::Strict, "key").await.unwrap().1, "secret");
    assert_eq!(reading.store.bucket("b").await.unwrap().owner, "another");
}

#[tokio::test(start_paused = true)]
async fn m2_a_deleted_bucket_does_not_return_no_such_key() {
    let nodes = Nodes::new(3);
    let (maker, ..) = nodes.with_bucket("key").await;
    let remembering = remember(&nodes).await;
    maker.store.buckets().delete("b").await.unwrap();
    let read = remembering.get(Level::Available, "key").await;
    assert!(matches!(read, Err(Error::NoSuchBucket)), "{read:?}");
}

#[tokio::test]
async fn keys_that_are_not_there_share_look_ups_of_their_bucket() {
    let nodes = Nodes::new(3);
    nodes.with_bucket("key").await;
    let looked = Arc::new(AtomicUsize::new(0));
    let count = looked.clone();
    let proxy = nodes.proxy_with(60_000, move |call: &Call<'_>| {
        let is_root = call.key.is_some_and(|key| key.bucket == BucketId::ROOT);
        if call.op == CallKind::Read && is_root {
            count.fetch_add(1, Ordering::SeqCst);
            return Fault::Delay(Duration::from_millis(20));
        }
        Fault::None
    });
    proxy.store.bucket("b").await.unwrap();
    let conditions = ReadConditions::default();
    let head = |key| proxy.store.head("b", key, Selection::Whole, &conditions);
    looked.store(0, Ordering::SeqCst);
    assert!(matches!(head("none").await, Err(Error::NoSuchKey)));
    let once = looked.swap(0, Ordering::SeqCst);
    assert!((1..=3).contains(&once), "{once}");
    let absent = join_all((0..50).map(|_| head("none"))).await;
    assert!(absent.iter().all(|head| matches!(head, Err(Error::NoSuchKey))));
    let looked_up = looked.swap(0, Ordering::SeqCst);
    assert!(looked_up <= 4 * once, "{looked_up} reads of the bucket's register");
    put(&proxy.store, "there", body(Bytes::from("x")), WriteConditions::default()).await.unwrap();
    head("there").await.unwrap();
    assert_eq!(looked.load(Ordering::SeqCst), 0, "only absence needs a look");
}

//! Listings and deletions of buckets with millions of names, counted in calls and entries.
//!
//! The names are computed: three devices answer alike, as replicas that agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart};
use martlet_protocol::entry::{Attributes, Body, ETag, Entry, Object, Value};
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{BucketId, RegisterKind, Stamp, WriteId};
use tokio::sync::Notify;

use super::computed_rows::ComputedRows;
use super::harness::create;
use crate::{Error, ListObjects, ObjectStore, is_within_prefix};

/// Position of no name.
const NOWHERE: usize = usize::MAX;

/// Buckets with `count` names in folders of `folder` names each. Names below `live_from` are deleted.
struct ManyNames {
    count: usize,
    folder: usize,
    live_from: usize,
    /// A further live name.
    live_at: AtomicUsize,
    calls: AtomicUsize,
    shipped: AtomicUsize,
    /// Call from which on no list is answered.
    silent_from: AtomicUsize,
    is_silent: Notify,
}

impl ManyNames {
    fn new(count: usize, folder: usize, live_from: usize) -> Arc<Self> {
        Arc::new(Self {
            count,
            folder,
            live_from,
            live_at: AtomicUsize::new(NOWHERE),
            calls: AtomicUsize::new(0),
            shipped: AtomicUsize::new(0),
            silent_from: AtomicUsize::new(NOWHERE),
            is_silent: Notify::new(),
        })
    }

    fn name(&self, at: usize) -> Bytes {
        format!("{:08}/{:08}", at / self.folder, at % self.folder).into()
    }

    /// The first position whose name is above a bound.
    fn first(&self, is_above: impl Fn(&Bytes) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if is_above(&self.name(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// The first live position from `at` on.
    fn live(&self, at: usize) -> usize {
        let extra = self.live_at.load(Ordering::SeqCst);
        let regular = at.max(self.live_from);
        if extra >= at { regular.min(extra) } else { regular }
    }

    fn names(&self, request: &ListRequest) -> ListReply {
        let mut at = match &request.start {
            ListStart::First => 0,
            ListStart::At(start) => self.first(|name| name >= start),
            ListStart::After(start) => self.first(|name| name > start),
        };
        let mut reply = ListReply::default();
        let mut passed = 0;
        while at < self.count {
            let live = self.live(at).min(self.count);
            if passed + live - at >= LIST_EMPTY_ROWS_MAX {
                reply.end_at(self.name(at + LIST_EMPTY_ROWS_MAX - passed - 1));
                break;
            }
            passed += live - at;
            if live == self.count {
                break;
            }
            if reply.entries.len() == request.limit {
                reply.truncated = true;
                break;
            }
            reply.entries.push((self.name(live), entry()));
            at = match request.fold {
                Some(_) => (live / self.folder + 1) * self.folder,
                None => live + 1,
            };
        }
        self.shipped.fetch_add(reply.entries.len(), Ordering::SeqCst);
        reply
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn entry() -> Entry {
    let object = Object {
        size: 1,
        etag: ETag::Md5([1; 16]),
        modified_ms: 1,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Empty,
        version: None,
    };
    let (order, write_id) = (Stamp::at_ms(1), WriteId([1; 16]));
    Entry { order, write_id, value: Value::Object(Box::new(object)) }
}

#[async_trait]
impl ComputedRows for ManyNames {
    async fn page(&self, request: &ListRequest) -> Option<ListReply> {
        if request.bucket == BucketId::ROOT || request.kind != RegisterKind::Object {
            return None;
        }
        if self.calls.fetch_add(1, Ordering::SeqCst) >= self.silent_from.load(Ordering::SeqCst) {
            self.is_silent.notify_one();
            return std::future::pending().await;
        }
        Some(self.names(request))
    }
}

fn by_folder(after: Option<String>) -> ListObjects {
    let delimiter = Some("/".to_owned());
    ListObjects { delimiter, after, limit: 1000, ..ListObjects::default() }
}

#[tokio::test]
async fn a_page_of_a_thousand_folders_ships_about_an_entry_for_each_and_device() {
    let names = ManyNames::new(1_000_000, 1000, 0);
    let store = names.clone().store();
    create(&store, "b").await;
    let page = store.list("b", by_folder(None)).await.unwrap();
    assert_eq!((page.prefixes.len(), page.next), (1000, None));
    let shipped = names.shipped.load(Ordering::SeqCst);
    assert!(shipped <= 20_000, "{shipped} entries");
    assert!(names.calls() < 20, "{} calls", names.calls());
}

#[tokio::test]
async fn ten_million_deleted_names_of_one_folder_are_passed_in_bounded_pages() {
    const DELETED: usize = 10_000_000;
    let names = ManyNames::new(DELETED + 5, 2 * DELETED, DELETED);
    let store = names.clone().store();
    create(&store, "b").await;
    let (mut after, mut prefixes, mut pages, mut before) = (None, Vec::new(), 0, 0);
    loop {
        let page = store.list("b", by_folder(after.clone())).await.unwrap();
        let called = names.calls() - before;
        assert!(called <= 1_000_000 / LIST_EMPTY_ROWS_MAX + 6, "{called} calls for a page");
        before = names.calls();
        prefixes.extend(page.prefixes);
        pages += 1;
        let Some(next) = page.next else { break };
        assert!(is_within_prefix(&next), "{next:?}");
        assert!(after.is_none_or(|after| after < next), "each page comes further");
        after = Some(next);
    }
    assert_eq!(prefixes, ["00000000/"]);
    assert!(pages > 10, "{pages} pages");
    // Three devices, and as many rows a call as a device passes over at once.
    assert!(names.calls() < 3 * (DELETED / LIST_EMPTY_ROWS_MAX) + 10 * pages, "{}", names.calls());
    assert!(names.shipped.load(Ordering::SeqCst) < 9000, "positions and five names");
}

#[tokio::test]
async fn a_bucket_of_deleted_names_is_listed_and_deleted() {
    let names = ManyNames::new(1_000_000, 1_000_000, 1_000_000);
    let store = names.clone().store();
    create(&store, "b").await;
    let (mut after, mut pages) = (None, 0);
    loop {
        let list = ListObjects { after, limit: 1000, ..ListObjects::default() };
        let page = store.list("b", list).await.unwrap();
        assert!(page.objects.is_empty());
        pages += 1;
        let Some(next) = page.next else { break };
        assert!(!is_within_prefix(&next), "nothing folds");
        after = Some(next);
    }
    assert!(pages > 1, "{pages} pages");
    store.buckets().delete("b").await.unwrap();
    assert!(matches!(store.bucket("b").await, Err(Error::NoSuchBucket)));
}

/// Runs a deletion until the call from which on no list is answered, and drops it there.
async fn cut_off(names: &ManyNames, store: &ObjectStore, after_calls: usize) {
    names.silent_from.store(names.calls() + after_calls, Ordering::SeqCst);
    tokio::select! {
        deleted = store.buckets().delete("b") => panic!("it wasn't cut off: {deleted:?}"),
        () = names.is_silent.notified() => {}
    }
    names.silent_from.store(NOWHERE, Ordering::SeqCst);
}

/// Calls of three devices that pass over all names once.
const PASS: usize = 3 * 200;

#[tokio::test]
async fn m2_a_deletion_that_was_cut_off_goes_on_where_it_stopped() {
    let names = ManyNames::new(1_000_000, 1_000_000, 1_000_000);
    let store = names.clone().store();
    create(&store, "b").await;
    // A first pass while the bucket is open, and three quarters of the second.
    cut_off(&names, &store, PASS + PASS * 3 / 4).await;
    let before = names.calls();
    store.buckets().delete("b").await.unwrap();
    let called = names.calls() - before;
    assert!(called < PASS / 2, "{called} calls: it began anew");
    assert!(matches!(store.bucket("b").await, Err(Error::NoSuchBucket)));
}

#[tokio::test]
async fn m2_a_write_behind_a_search_of_an_open_bucket_is_seen() {
    let names = ManyNames::new(1_000_000, 1_000_000, 1_000_000);
    let store = names.clone().store();
    create(&store, "b").await;
    cut_off(&names, &store, PASS / 2).await;
    names.live_at.store(7, Ordering::SeqCst);
    let refused = store.buckets().delete("b").await;
    assert!(matches!(refused, Err(Error::BucketNotEmpty)), "{refused:?}");
    names.live_at.store(NOWHERE, Ordering::SeqCst);
    store.buckets().delete("b").await.unwrap();
}

#[tokio::test]
async fn m2_a_write_after_a_reopening_is_seen_behind_a_search_that_was_fenced() {
    let names = ManyNames::new(1_000_000, 1_000_000, 1_000_000);
    let store = names.clone().store();
    create(&store, "b").await;
    cut_off(&names, &store, PASS + PASS * 3 / 4).await;
    // Another name is found first, so the bucket opens again.
    names.live_at.store(999_999, Ordering::SeqCst);
    let refused = store.buckets().delete("b").await;
    assert!(matches!(refused, Err(Error::BucketNotEmpty)), "{refused:?}");
    names.live_at.store(7, Ordering::SeqCst);
    let refused = store.buckets().delete("b").await;
    assert!(matches!(refused, Err(Error::BucketNotEmpty)), "{refused:?}");
    names.live_at.store(NOWHERE, Ordering::SeqCst);
    store.buckets().delete("b").await.unwrap();
}

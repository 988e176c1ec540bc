//! Listings against a model: a sorted map, folded by the definition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::backend::{CallKind, Detail, ListStart};
use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, Level, RegisterKind};
use proptest::prelude::*;

use super::harness::{Harness, faulty};
use crate::merge::successor;
use crate::walk::{Paths, Walk};
use crate::{ListObjects, NewBucket, ObjectPage};

/// Listing of live keys by S3's definition: names, with true for common prefixes.
fn model(keys: &BTreeSet<String>, list: &ListObjects) -> Vec<(String, bool)> {
    let mut found = BTreeMap::new();
    for key in keys.iter().filter(|key| key.starts_with(&list.prefix)) {
        let delimiter = list.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
        let rest = &key[list.prefix.len()..];
        let fold = delimiter.and_then(|d| rest.find(d).map(|at| at + d.len()));
        let (name, folded) = match fold {
            Some(end) => (key[..list.prefix.len() + end].to_owned(), true),
            None => (key.clone(), false),
        };
        let passed = list.after.as_ref().is_some_and(|after| {
            if folded { name <= *after || after.starts_with(&name) } else { name <= *after }
        });
        if !passed {
            found.insert(name, folded);
        }
    }
    found.into_iter().collect()
}

fn flat(page: &ObjectPage) -> Vec<(String, bool)> {
    let objects = page.objects.iter().map(|(key, _)| (key.clone(), false));
    let prefixes = page.prefixes.iter().map(|prefix| (prefix.clone(), true));
    let mut all: Vec<_> = objects.chain(prefixes).collect();
    all.sort();
    all
}

async fn check(harness: &Harness, live: &BTreeSet<String>, list: ListObjects) {
    let expected = model(live, &list);
    let page = harness.store.list("b", list.clone()).await.unwrap();
    let cut: Vec<_> = expected.iter().take(list.limit).cloned().collect();
    assert_eq!(flat(&page), cut, "{list:?} over {live:?}");
    assert_eq!(page.next.is_some(), expected.len() > list.limit && list.limit > 0, "{list:?}");
    let mut pages = flat(&page);
    let mut next = page.next;
    while let Some(after) = next {
        let page = harness.store.list("b", ListObjects { after: Some(after), ..list.clone() });
        let page = page.await.unwrap();
        pages.extend(flat(&page));
        next = page.next;
    }
    if list.limit > 0 {
        assert_eq!(pages, expected, "in pages: {list:?} over {live:?}");
    }
}

fn any_key() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[ab/\u{e9}-]{1,6}").unwrap()
}

fn any_list() -> impl Strategy<Value = ListObjects> {
    let prefix = prop_oneof![Just(String::new()), any_key()];
    let delimiter = prop_oneof![
        Just(None),
        Just(Some("/".to_owned())),
        Just(Some("//".to_owned())),
        Just(Some("\u{e9}".to_owned())),
        Just(Some("a/".to_owned())),
    ];
    (prefix, delimiter, proptest::option::of(any_key()), 0usize..8).prop_map(
        |(prefix, delimiter, after, limit)| {
            let detail = if limit % 2 == 0 { Detail::Whole } else { Detail::Summary };
            ListObjects { prefix, delimiter, after, limit, detail }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn listings_are_those_of_a_sorted_map(
        keys in proptest::collection::btree_set(any_key(), 0..40),
        deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
        lists in proptest::collection::vec(any_list(), 1..12),
        topology in prop_oneof![Just((1, 1)), Just((1, 3)), Just((3, 3))],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new(topology.0, topology.1);
            super::harness::create(&harness.store, "b").await;
            let mut live = keys.clone();
            for key in &keys {
                harness.put(key, "x").await.unwrap();
            }
            let ordered: Vec<_> = keys.iter().collect();
            for index in deleted {
                if !ordered.is_empty() {
                    let key = *index.get(&ordered);
                    harness.delete(key).await;
                    live.remove(key);
                }
            }
            for list in lists {
                check(&harness, &live, list).await;
            }
        });
    }
}

#[tokio::test]
async fn a_long_bucket_is_listed_in_full_pages() {
    let harness = Harness::with_bucket(3).await;
    let keys: BTreeSet<String> = (0..2500).map(|at| format!("k/{at:05}")).collect();
    for key in &keys {
        harness.put(key, "x").await.unwrap();
    }
    for key in keys.iter().step_by(2) {
        harness.delete(key).await;
    }
    let live: BTreeSet<String> = keys.iter().skip(1).step_by(2).cloned().collect();
    let list = ListObjects { limit: 1000, ..ListObjects::default() };
    check(&harness, &live, list.clone()).await;
    check(&harness, &live, ListObjects { delimiter: Some("/".into()), ..list }).await;
}

#[tokio::test]
async fn a_listing_needs_all_that_hold_shards() {
    let harness = Harness::new(1, 3);
    // So many shards that each device holds some.
    let new = NewBucket {
        owner: "me".into(),
        index_shards: 128,
        policy: None,
        settings: martlet_protocol::Settings::default(),
    };
    harness.store.buckets().create("b", new).await.unwrap();
    for at in 0..30 {
        harness.put(&format!("{at}"), "x").await.unwrap();
    }
    harness.memory.set_offline(DeviceId(2), true);
    let list = ListObjects { limit: 100, ..ListObjects::default() };
    assert!(harness.store.list("b", list).await.is_err(), "half a listing is no listing");
}

#[tokio::test]
async fn pages_grow_while_a_listing_crosses_tombstones() {
    let harness = Harness::with_bucket(1).await;
    for at in 0..3000 {
        harness.put(&format!("{at:05}"), "x").await.unwrap();
    }
    let bucket = harness.store.bucket("b").await.unwrap();
    let paths = Paths::all(&bucket, RegisterKind::Object);
    let (services, context) = (&harness.store.services, harness.store.context());
    let mut walk =
        Walk::new(&services.registers, &context, &paths, ListStart::First, 2, Level::Strict)
            .unwrap();
    walk.next().await.unwrap().unwrap();
    assert_eq!(walk.meter.seen, 2, "one key and the word that there is more");
    for at in 0..2999 {
        harness.delete(&format!("{at:05}")).await;
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let store = faulty(&harness.memory, 1, 1, move |call| {
        counted.fetch_add(usize::from(call.op == CallKind::ListRows), Ordering::SeqCst);
        Fault::None
    });
    let list = ListObjects { limit: 1, ..ListObjects::default() };
    let page = store.list("b", list).await.unwrap();
    assert_eq!(flat(&page), [("02999".to_owned(), false)]);
    assert!(calls.load(Ordering::SeqCst) < 10, "{calls:?} calls for one page");
}

#[tokio::test]
async fn folded_prefixes_are_skipped_by_the_devices_of_three_replicas() {
    let harness = Harness::new(3, 3);
    super::harness::create(&harness.store, "b").await;
    let names = |prefix: usize| (0..40).map(move |at| format!("{prefix:02}/{at:02}"));
    for name in (0..40).flat_map(names) {
        harness.put(&name, "x").await.unwrap();
    }
    // The first names of a prefix are deleted, while one replica is offline.
    harness.memory.set_offline(DeviceId(2), true);
    for name in names(7).take(30) {
        harness.delete(&name).await;
    }
    harness.memory.set_offline(DeviceId(2), false);
    let list = ListObjects { delimiter: Some("/".into()), limit: 1000, ..ListObjects::default() };
    let page = harness.store.list("b", list).await.unwrap();
    let expected: Vec<String> = (0..40).map(|prefix| format!("{prefix:02}/")).collect();
    assert_eq!(page.prefixes, expected);
    let bucket = harness.store.bucket("b").await.unwrap();
    let mut paths = Paths::all(&bucket, RegisterKind::Object);
    paths.fold = Some("/".into());
    let (services, context) = (&harness.store.services, harness.store.context());
    let mut walk =
        Walk::new(&services.registers, &context, &paths, ListStart::First, 1001, Level::Strict)
            .unwrap();
    let mut prefixes = 0;
    while let Some((name, entry)) = walk.next().await.unwrap() {
        if entry.value.is_object() {
            prefixes += 1;
            walk.skip_to(successor(&name[..3]).unwrap());
        }
    }
    assert_eq!(prefixes, 40);
    // One entry for each prefix and device, tombstones, and a page of what one device had skipped.
    assert!(walk.meter.seen < 480, "{} of 4,800 entries were shipped", walk.meter.seen);
}

#[tokio::test]
async fn a_delete_marker_hides_no_other_object_of_its_prefix() {
    for (replicas, devices) in [(1, 1), (3, 3)] {
        let harness = Harness::new(replicas, devices);
        super::harness::create(&harness.store, "b").await;
        harness.store.buckets().set_versioning("b", true).await.unwrap();
        for key in ["a/1", "a/2", "c/1"] {
            harness.put(key, "x").await.unwrap();
        }
        harness.delete("a/1").await;
        harness.delete("c/1").await;
        let list = ListObjects { delimiter: Some("/".into()), limit: 10, ..ListObjects::default() };
        let page = harness.store.list("b", list).await.unwrap();
        assert_eq!(page.prefixes, ["a/"], "{replicas} replicas");
    }
}

//! Listings of versions: pages of any size add up to the whole.

use martlet_protocol::VersionId;

use super::{delete, put_version, versioned};
use crate::{ListVersions, ObjectStore, VersionPage};

/// Keys with several versions each, with null versions and delete markers.
async fn fill(store: &ObjectStore) {
    for key in ["a", "a/1", "a/2", "b", "c/x/y", "d"] {
        for round in 0..4usize {
            store.buckets().set_versioning("b", round != 1).await.unwrap();
            put_version(store, key, vec![b'x'; round + 1]).await.unwrap();
            if round == 2 && key != "b" {
                delete(store, key).await;
            }
        }
    }
    // A key without remaining versions, between other keys.
    let gone = put_version(store, "a/11", "gone").await.unwrap();
    let older = put_version(store, "a/11", "gone too").await.unwrap();
    for id in [gone, older] {
        store.versions().delete("b", "a/11", id).await.unwrap();
    }
}

fn lines(page: &VersionPage) -> Vec<String> {
    let versions = page.versions.iter().map(|version| {
        format!("{} {} {}", version.key, version.id, if version.is_latest { "*" } else { "" })
    });
    versions.chain(page.prefixes.iter().map(|prefix| format!("{prefix} folded"))).collect()
}

async fn in_pages(store: &ObjectStore, list: &ListVersions) -> Vec<String> {
    let (mut all, mut list) = (Vec::new(), list.clone());
    loop {
        let page = store.versions().list("b", list.clone()).await.unwrap();
        let page_lines = lines(&page);
        assert!(page_lines.len() <= list.limit);
        all.extend(page_lines);
        let Some((key, version)) = page.next else { break };
        assert!(!page.versions.is_empty() || !page.prefixes.is_empty(), "pages go on");
        (list.after_key, list.after_version) = (Some(key), version);
    }
    all.sort();
    all
}

#[tokio::test]
async fn pages_of_any_size_make_the_whole() {
    let harness = versioned().await;
    let store = &harness.store;
    fill(store).await;
    for (prefix, delimiter, expected) in [
        ("", None, 29),
        ("a", None, 15),
        ("", Some("/"), 16),
        ("a/", Some("/"), 10),
        ("z", None, 0),
    ] {
        let list = ListVersions {
            prefix: prefix.into(),
            delimiter: delimiter.map(str::to_owned),
            limit: 1000,
            ..ListVersions::default()
        };
        let whole = store.versions().list("b", list.clone()).await.unwrap();
        let mut whole_lines = lines(&whole);
        assert_eq!(whole_lines.len(), expected, "{prefix} {delimiter:?}: {whole_lines:#?}");
        assert_eq!(whole.next, None);
        whole_lines.sort();
        for limit in 1..=expected + 1 {
            let list = ListVersions { limit, ..list.clone() };
            assert_eq!(in_pages(store, &list).await, whole_lines, "{prefix} {delimiter:?} {limit}");
        }
    }
    let none = store.versions().list("b", ListVersions::default()).await.unwrap();
    assert!(none.versions.is_empty() && none.next.is_none());
}

#[tokio::test]
async fn of_each_key_the_latest_comes_first_and_is_the_current_one() {
    let harness = versioned().await;
    let store = &harness.store;
    fill(store).await;
    let all = super::all_versions(store).await;
    for pair in all.windows(2) {
        assert!(pair[0].key <= pair[1].key);
        assert_eq!(pair[1].is_latest, pair[0].key != pair[1].key);
        assert!(pair[0].key != pair[1].key || pair[0].modified_ms >= pair[1].modified_ms);
    }
    let of_a: Vec<_> = all.iter().filter(|version| version.key == "a").collect();
    let sizes: Vec<_> = of_a.iter().map(|it| it.object.as_ref().map(|o| o.size)).collect();
    assert_eq!(sizes, [Some(4), None, Some(3), Some(2), Some(1)]);
    assert_eq!(of_a[3].id, VersionId::Null);
}

/// A client that empties a bucket continues from markers of versions that it has removed.
#[tokio::test]
async fn a_listing_goes_on_from_what_is_gone() {
    let harness = versioned().await;
    let store = &harness.store;
    fill(store).await;
    let mut list = ListVersions { limit: 3, ..ListVersions::default() };
    loop {
        let page = store.versions().list("b", list.clone()).await.unwrap();
        for version in &page.versions {
            store.versions().delete("b", &version.key, version.id).await.unwrap();
        }
        let Some((key, version)) = page.next else { break };
        (list.after_key, list.after_version) = (Some(key), version);
    }
    assert!(super::all_versions(store).await.is_empty());
    store.buckets().delete("b").await.unwrap();
}

//! Listings in both versions: pages, prefixes, delimiters, encodings, tokens.

use martlet_protocol::backend::{EntryWrite, Want};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{BackendExt, BucketId, RegisterKey, Stamp, Term, WriteId};

use crate::world::World;

async fn filled(keys: &[&str]) -> World {
    let world = World::with_bucket().await;
    for key in keys {
        world.put(&format!("/bkt/{key}"), "x").await;
    }
    world
}

#[tokio::test]
async fn all_keys_are_listed_once_and_in_order_for_any_page_size() {
    let keys: Vec<String> = (0..25).map(|at| format!("k{at:02}")).collect();
    let world = filled(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for size in [1, 7, 25, 1000] {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page =
                world.get(&format!("/bkt?list-type=2&max-keys={size}{token}")).await.expect(200);
            let page_keys = page.all("Key");
            assert_eq!(page.one("KeyCount"), page_keys.len().to_string());
            assert!(page_keys.len() <= size);
            found.extend(page_keys);
            if page.one("IsTruncated") == "false" {
                assert!(page.all("NextContinuationToken").is_empty());
                break;
            }
            token = format!("&continuation-token={}", page.one("NextContinuationToken"));
        }
        assert_eq!(found, keys);
    }
}

#[tokio::test]
async fn a_listing_has_the_fields_of_an_object() {
    let world = filled(&["k"]).await;
    let page = world.get("/bkt?list-type=2").await.expect(200);
    assert_eq!(page.one("Name"), "bkt");
    assert_eq!(page.one("Size"), "1");
    assert_eq!(page.one("StorageClass"), "STANDARD");
    assert_eq!(page.one("LastModified"), "2026-01-01T00:00:00.000Z");
    assert_eq!(page.one("MaxKeys"), "1000");
    assert!(page.one("ETag").contains("9dd4e461268c8034f5c8564e155c67a6"));
    assert!(page.all("Owner").is_empty());
    let page = world.get("/bkt?list-type=2&fetch-owner=true").await.expect(200);
    assert_eq!(page.one("ID"), "alice");
    assert_eq!(world.get("/bkt").await.expect(200).one("ID"), "alice");
}

#[tokio::test]
async fn prefixes_and_delimiters_fold() {
    let world = filled(&["a/1", "a/2", "b", "c/d/1", "c/e"]).await;
    let page = world.get("/bkt?list-type=2&delimiter=%2F").await.expect(200);
    assert_eq!(page.all("Key"), ["b"]);
    let folded = |page: &crate::world::TestReply| -> Vec<String> {
        let prefixes = page.all("CommonPrefixes");
        prefixes.iter().map(|one| one.replace("<Prefix>", "").replace("</Prefix>", "")).collect()
    };
    assert_eq!(folded(&page), ["a/", "c/"]);
    assert_eq!(page.one("KeyCount"), "3");
    let page = world.get("/bkt?list-type=2&delimiter=%2F&prefix=c%2F").await.expect(200);
    assert_eq!((page.all("Key"), folded(&page)), (vec!["c/e".to_owned()], vec!["c/d/".to_owned()]));
    let page = world.get("/bkt?delimiter=%2F&max-keys=1").await.expect(200);
    assert_eq!((folded(&page), page.one("NextMarker")), (vec!["a/".to_owned()], "a/".to_owned()));
    let page = world.get("/bkt?delimiter=%2F&max-keys=1&marker=a%2F").await.expect(200);
    assert_eq!((page.all("Key"), page.one("NextMarker")), (vec!["b".to_owned()], "b".to_owned()));
}

#[tokio::test]
async fn the_first_version_goes_on_from_keys() {
    let world = filled(&["a", "b", "c"]).await;
    let page = world.get("/bkt?max-keys=2").await.expect(200);
    assert_eq!(page.all("Key"), ["a", "b"]);
    assert_eq!(page.one("IsTruncated"), "true");
    assert!(page.all("NextMarker").is_empty(), "only with a delimiter");
    let page = world.get("/bkt?max-keys=2&marker=b").await.expect(200);
    assert_eq!((page.all("Key"), page.one("Marker")), (vec!["c".to_owned()], "b".to_owned()));
    let page = world.get("/bkt?list-type=2&start-after=b").await.expect(200);
    assert_eq!((page.all("Key"), page.one("StartAfter")), (vec!["c".to_owned()], "b".to_owned()));
}

#[tokio::test]
async fn odd_keys_are_encoded_on_request() {
    let world = filled(&["a%20b", "c%2Bd", "e%26f", "%D0%BA"]).await;
    let page = world.get("/bkt?list-type=2&encoding-type=url").await.expect(200);
    assert_eq!(page.all("Key"), ["a%20b", "c%2Bd", "e%26f", "%D0%BA"]);
    assert_eq!(page.one("EncodingType"), "url");
    let page = world.get("/bkt?list-type=2").await.expect(200);
    assert_eq!(page.all("Key"), ["a b", "c+d", "e&amp;f", "\u{43a}"]);
    world.get("/bkt?encoding-type=base64").await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn sizes_of_pages_are_numbers() {
    let world = filled(&["a"]).await;
    let none = world.get("/bkt?list-type=2&max-keys=0").await.expect(200);
    assert_eq!((none.one("KeyCount"), none.one("IsTruncated")), ("0".into(), "false".into()));
    assert_eq!(world.get("/bkt?max-keys=5000").await.one("MaxKeys"), "1000");
    for size in ["-1", "many", "1.5", "99999999999"] {
        let page = world.get(&format!("/bkt?list-type=2&max-keys={size}")).await;
        page.refused(400, "InvalidArgument");
    }
    world.get("/nobucket?list-type=2&max-keys=0").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn forged_tokens_are_refused() {
    let world = filled(&["a", "b"]).await;
    world.call("PUT", "/other").send().await.expect(200);
    let page = world.get("/bkt?list-type=2&max-keys=1").await.expect(200);
    let token = page.one("NextContinuationToken");
    world.get(&format!("/bkt?list-type=2&continuation-token={token}")).await.expect(200);
    let elsewhere = world.get(&format!("/other?list-type=2&continuation-token={token}")).await;
    elsewhere.refused(400, "InvalidArgument");
    for forged in ["YQ", "a", "AWFhYWFhYWFhYWFhYWFhYWFhYQ"] {
        let page = world.get(&format!("/bkt?list-type=2&continuation-token={forged}")).await;
        page.refused(400, "InvalidArgument");
    }
}

/// Deletes keys of bucket `bkt` that were never there: as many tombstones as a page looks at, and more.
async fn bury(world: &World, keys: impl Iterator<Item = String>) {
    let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bkt");
    let view = world.node.read(world.device, &root, Want::Entry, Term::ANY).await.unwrap();
    let Some(Value::Bucket(bucket)) = view.entry.map(|entry| entry.value) else {
        panic!("the bucket is there");
    };
    for key in keys {
        let (order, write_id) = (Stamp::at_ms(1), WriteId::random());
        let write = EntryWrite {
            key: RegisterKey::object(bucket.id, bucket.index_shards, &key),
            entry: Entry { order, write_id, value: Value::Tombstone },
            inline: None,
            mode: WriteMode::Repair,
            generation: 1,
            commit_by_ms: u64::MAX,
            keep_body: false,
            term: Term::ANY,
        };
        world.node.write(world.device, write).await.unwrap();
    }
}

#[tokio::test]
async fn a_page_that_ends_among_deleted_keys_names_where_the_next_begins() {
    let world = filled(&["a", "m/zz"]).await;
    bury(&world, (0..60_000).map(|at| format!("m/{at:06}"))).await;
    let listings = [
        ("?max-keys=9", "marker", "NextMarker", "Key"),
        ("?delimiter=%2F", "marker", "NextMarker", "Prefix"),
        ("?list-type=2", "continuation-token", "NextContinuationToken", "Key"),
        ("?list-type=2&delimiter=%2F", "continuation-token", "NextContinuationToken", "Prefix"),
        ("?versions", "key-marker", "NextKeyMarker", "Key"),
        ("?versions&delimiter=%2F", "key-marker", "NextKeyMarker", "Prefix"),
    ];
    for (query, parameter, element, found) in listings {
        let first = world.get(&format!("/bkt{query}")).await.expect(200);
        assert_eq!((first.all("Key"), first.one("IsTruncated")), (vec!["a".into()], "true".into()));
        let next = first.one(element);
        let position = next.replace('/', "%2F");
        let second = world.get(&format!("/bkt{query}&{parameter}={position}")).await.expect(200);
        assert_eq!(second.one("IsTruncated"), "false", "{query}");
        let expected = if found == "Key" { "m/zz" } else { "m/" };
        assert!(second.all(found).contains(&expected.to_owned()), "{query}: {next}");
    }
}

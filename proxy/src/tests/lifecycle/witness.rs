//! Reports of expirations: each one once, with its kind.

use martlet_protocol::entry::Bucket;
use parking_lot::Mutex;

use super::*;
use crate::{Expired, Witness, WitnessedExpiry};

/// Records expirations: key, version, and true for a new delete marker.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<(String, Option<String>, bool)>>);

impl Witness for Heard {
    fn expired(&self, name: &str, bucket: &Bucket, expired: &Expired<'_>) {
        assert_eq!((name, bucket.owner.as_str()), ("b", "me"));
        assert!(expired.stamp.time_ms() > 0);
        let Expired { key, version, is_new_marker, .. } = *expired;
        let version = version.map(|version| version.to_string());
        self.0.lock().push((key.to_owned(), version, is_new_marker));
    }
}

/// Applies the rules to the bucket once. Returns the reported expirations, sorted by key.
async fn received(fixture: &Fixture) -> Vec<(String, Option<String>, bool)> {
    let witness = Arc::new(Heard::default());
    let expiry = WitnessedExpiry::new(fixture.store().clone(), witness.clone());
    let carried = carry_out(&expiry).await.unwrap();
    let mut heard = std::mem::take(&mut *witness.0.lock());
    assert_eq!(carried.done, heard.len() as u64);
    heard.sort();
    heard
}

async fn version_ids(fixture: &Fixture) -> Vec<String> {
    let list = ListVersions { limit: 100, ..ListVersions::default() };
    let page = fixture.store().versions().list("b", list).await.unwrap();
    page.versions.iter().map(|version| version.id.to_string()).collect()
}

#[tokio::test]
async fn expired_objects_are_reported_once() {
    let fixture = Fixture::new(3).await;
    for key in ["a/1", "a/2", "b/1"] {
        fixture.harness.put(key, "abc").await.unwrap();
    }
    fixture.set(&rules([expiring("a/", 2)])).await;
    assert!(received(&fixture).await.is_empty());
    fixture.days(2);
    let gone = |key: &str| (key.to_owned(), None, false);
    assert_eq!(received(&fixture).await, [gone("a/1"), gone("a/2")]);
    assert!(received(&fixture).await.is_empty());
}

#[tokio::test]
async fn created_markers_and_removed_versions_are_reported_apart() {
    let fixture = Fixture::versioned().await;
    put_plain(fixture.store(), "k").await.unwrap();
    let everything = Rule { expiration: Some(Expiration::Days(1)), ..noncurrent(1, None) };
    fixture.set(&rules([everything])).await;
    fixture.days(1);
    let told = received(&fixture).await;
    let [marker, version] = version_ids(&fixture).await.try_into().unwrap();
    assert_eq!(told, [("k".to_owned(), Some(marker.clone()), true)]);
    fixture.days(1);
    assert_eq!(received(&fixture).await, [("k".to_owned(), Some(version), false)]);
    fixture.days(1);
    assert_eq!(received(&fixture).await, [("k".to_owned(), Some(marker), false)], "it was alone");
}

#[tokio::test]
async fn a_null_marker_has_a_name_too() {
    let fixture = Fixture::versioned().await;
    fixture.store().buckets().set_versioning("b", false).await.unwrap();
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.set(&rules([expiring("", 1)])).await;
    fixture.days(1);
    assert_eq!(received(&fixture).await, [("k".to_owned(), Some("null".to_owned()), true)]);
}

//! Execution of lifecycle rules: versions that expire, and versions that stay although a page lists
//! them as due.

mod hinted;
mod meanwhile;
mod witness;

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::{Attributes, Marks};
use martlet_protocol::lifecycle::{
    Day, Expiration, ExpiryOutcome, Filter, Lifecycle, Noncurrent, ObjectExpiry, Rule, Scope,
    Stretch,
};
use martlet_protocol::lock::{Lock, Retention, RetentionMode};
use martlet_protocol::testing::{Call, Fault};
use martlet_protocol::{Clock, ErrorKind, ManualClock, Setting, Settings, Shard, SystemClock};

use super::harness::{Harness, body, create, faulty, put};
use crate::{
    Error, ListObjects, ListVersions, NewBucket, ObjectStore, PutObject, Result, Selection,
    WriteConditions, lock_from_the_beginning,
};

const DAY: Day = Day::of_seconds(1);
/// Number of shards of the harness's buckets.
const SHARDS: u16 = 8;

/// A store whose clock is half a minute late, with a bucket `b`.
struct Fixture {
    harness: Harness,
    clock: Arc<ManualClock>,
}

impl Fixture {
    async fn new(replicas: usize) -> Self {
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms() - 30_000));
        let devices = u32::try_from(replicas).unwrap();
        let harness = Harness::at(replicas, devices, clock.clone());
        create(&harness.store, "b").await;
        Self { harness, clock }
    }

    async fn versioned() -> Self {
        let fixture = Self::new(3).await;
        fixture.store().buckets().set_versioning("b", true).await.unwrap();
        // Null versions from before versioning sort below all others.
        fixture.days(10);
        fixture
    }

    /// Makes a fixture with a bucket with object lock.
    async fn locked() -> Self {
        let fixture = Self::new(3).await;
        fixture.store().buckets().delete("b").await.unwrap();
        let mut settings = Settings::default();
        lock_from_the_beginning(&mut settings).unwrap();
        let new = NewBucket { owner: "me".into(), index_shards: SHARDS, policy: None, settings };
        fixture.store().buckets().create("b", new).await.unwrap();
        fixture.days(10);
        fixture
    }

    fn store(&self) -> &ObjectStore {
        &self.harness.store
    }

    fn days(&self, days: u64) {
        self.clock.advance_ms(days * DAY.ms());
    }

    async fn set(&self, rules: &Lifecycle) {
        let document = rules.document();
        self.store().buckets().put_setting("b", Setting::Lifecycle, document).await.unwrap();
    }

    /// Writes an object with tags and marks.
    async fn put_with(&self, key: &str, tags: &[(&str, &str)], marks: Marks) {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let attributes = Attributes { tags: tags.collect(), marks, ..Attributes::default() };
        let (body, conditions) = (body(Bytes::from_static(b"abc")), WriteConditions::default());
        let put = PutObject { attributes, body, conditions };
        self.store().put("b", key, put).await.unwrap();
    }

    async fn keys(&self) -> Vec<String> {
        let list = ListObjects { limit: 1000, ..ListObjects::default() };
        let page = self.store().list("b", list).await.unwrap();
        page.objects.into_iter().map(|(key, _)| key).collect()
    }

    /// Lists versions: keys, with `*` for the current version and `-` for delete markers.
    async fn versions(&self) -> Vec<String> {
        let list = ListVersions { limit: 100_000, ..ListVersions::default() };
        let page = self.store().versions().list("b", list).await.unwrap();
        let shown = page.versions.into_iter().map(|it| {
            let latest = if it.is_latest { "*" } else { "" };
            format!("{}{}{latest}", it.key, if it.object.is_some() { "" } else { " -" })
        });
        shown.collect()
    }
}

/// Applies the rules to a whole bucket.
async fn carry_out(store: &dyn ObjectExpiry) -> martlet_protocol::Result<ExpiryOutcome> {
    let mut sum = ExpiryOutcome::default();
    for shard in (0..SHARDS).map(Shard) {
        let mut after = None;
        loop {
            let stretch = Stretch { bucket: "b".into(), shard, after: after.take(), day: DAY };
            let ExpiryOutcome { seen, done, kept, next } = store.carry_out(&stretch).await?;
            sum.seen += seen;
            sum.done += done;
            sum.kept += kept;
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(sum)
}

fn rules(rules: impl IntoIterator<Item = Rule>) -> Lifecycle {
    Lifecycle { rules: rules.into_iter().collect(), transition_minimum: None }
}

fn rule(prefix: &str) -> Rule {
    Rule {
        id: prefix.to_owned(),
        is_enabled: true,
        scope: Scope::Prefix(prefix.to_owned()),
        expiration: None,
        noncurrent: None,
        abort_upload_days: None,
    }
}

fn expiring(prefix: &str, days: u32) -> Rule {
    Rule { expiration: Some(Expiration::Days(days)), ..rule(prefix) }
}

fn noncurrent(days: u32, newer: Option<u32>) -> Rule {
    Rule { noncurrent: Some(Noncurrent { days, newer }), ..rule("") }
}

async fn put_plain(store: &ObjectStore, key: &str) -> Result<()> {
    put(store, key, body(Bytes::from_static(b"abc")), WriteConditions::default()).await.map(drop)
}

#[tokio::test]
async fn objects_go_when_they_are_old_enough_and_others_stay() {
    let fixture = Fixture::new(3).await;
    for key in ["a/1", "a/2", "b/1", "c"] {
        fixture.harness.put(key, "abc").await.unwrap();
    }
    assert_eq!(carry_out(fixture.store()).await.unwrap(), ExpiryOutcome::default(), "no rules");
    fixture.set(&rules([expiring("a/", 2), expiring("b/", 4)])).await;
    fixture.days(1);
    fixture.harness.put("a/2", "again").await.unwrap();
    fixture.days(1);
    let carried = carry_out(fixture.store()).await.unwrap();
    assert_eq!((carried.seen, carried.done, carried.kept), (4, 1, 0));
    assert_eq!(fixture.keys().await, ["a/2", "b/1", "c"]);
    fixture.days(2);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 2);
    assert_eq!(fixture.keys().await, ["c"]);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 0);
    assert!(matches!(fixture.harness.get("a/1", Selection::Whole).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn tags_choose() {
    let fixture = Fixture::new(3).await;
    fixture.put_with("tagged", &[("x", "1"), ("y", "2")], Marks::default()).await;
    fixture.put_with("other", &[("x", "2")], Marks::default()).await;
    let filter = Filter { tag: Some(("x".into(), "1".into())), ..Filter::default() };
    fixture.set(&rules([Rule { scope: Scope::Filter(filter), ..expiring("", 1) }])).await;
    fixture.days(2);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 1);
    assert_eq!(fixture.keys().await, ["other"]);
}

#[tokio::test]
async fn versioned_objects_expire_to_a_marker_which_expires_last() {
    let fixture = Fixture::versioned().await;
    fixture.set(&rules([expiring("k", 2), noncurrent(3, None)])).await;
    put_plain(fixture.store(), "k").await.unwrap();
    put_plain(fixture.store(), "other").await.unwrap();
    fixture.days(2);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 1);
    assert_eq!(fixture.versions().await, ["k -*", "k", "other*"]);
    assert_eq!(fixture.keys().await, ["other"]);
    fixture.days(2);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 0, "the marker is not alone");
    fixture.days(1);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 1);
    assert_eq!(fixture.versions().await, ["k -*", "other*"]);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 1);
    assert_eq!(fixture.versions().await, ["other*"]);
}

#[tokio::test]
async fn a_locked_version_gets_a_marker_in_front_and_stays_behind_it() {
    let fixture = Fixture::locked().await;
    let until_ms = fixture.clock.now_ms() + 10 * DAY.ms();
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms });
    let locks = [
        ("held", Lock { legal_hold: Some(true), retention: None }),
        ("kept", Lock { legal_hold: None, retention }),
    ];
    for (key, lock) in locks {
        let mut marks = Marks::default();
        lock.write(&mut marks);
        fixture.put_with(key, &[], marks).await;
    }
    fixture.set(&rules([expiring("", 1), noncurrent(1, None)])).await;
    fixture.days(1);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 2);
    fixture.days(5);
    let carried = carry_out(fixture.store()).await.unwrap();
    assert_eq!((carried.done, carried.kept), (0, 0));
    assert_eq!(fixture.versions().await, ["held -*", "held", "kept -*", "kept"]);
    fixture.days(5);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 1, "its retention is over");
    assert_eq!(fixture.versions().await, ["held -*", "held", "kept -*"]);
}

#[tokio::test]
async fn a_suspended_bucket_loses_its_null_version_to_a_null_marker() {
    let fixture = Fixture::versioned().await;
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.store().buckets().set_versioning("b", false).await.unwrap();
    put_plain(fixture.store(), "k").await.unwrap();
    assert_eq!(fixture.versions().await, ["k*", "k"]);
    fixture.set(&rules([expiring("", 1)])).await;
    fixture.days(1);
    assert_eq!(carry_out(fixture.store()).await.unwrap().done, 1);
    assert_eq!(fixture.versions().await, ["k -*", "k"]);
}

#[tokio::test]
async fn of_more_versions_than_a_page_has_the_newest_stay() {
    let fixture = Fixture::versioned().await;
    for _ in 0..270 {
        put_plain(fixture.store(), "k").await.unwrap();
        fixture.clock.advance_ms(1);
    }
    put_plain(fixture.store(), "j").await.unwrap();
    fixture.set(&rules([noncurrent(1, Some(255))])).await;
    fixture.days(2);
    let carried = carry_out(fixture.store()).await.unwrap();
    assert_eq!((carried.seen, carried.done), (271, 14));
    assert_eq!(fixture.versions().await.len(), 1 + 1 + 255);
}

/// Successors of a version go at once with it, so no version depends on its direct one.
#[tokio::test]
async fn all_due_versions_of_a_key_go_in_one_pass() {
    for newer in [None, Some(2)] {
        let fixture = Fixture::versioned().await;
        let kept = 1 + newer.map_or(0, |newer| newer as usize);
        for _ in 0..300 + kept {
            put_plain(fixture.store(), "k").await.unwrap();
            fixture.clock.advance_ms(1);
        }
        fixture.set(&rules([noncurrent(1, newer)])).await;
        fixture.days(2);
        let carried = carry_out(fixture.store()).await.unwrap();
        assert_eq!((carried.done, carried.kept), (300, 0));
        assert_eq!(fixture.versions().await.len(), kept);
    }
}

#[tokio::test]
async fn r7_without_a_quorum_nothing_goes() {
    let fixture = Fixture::new(3).await;
    fixture.harness.put("k", "abc").await.unwrap();
    fixture.set(&rules([expiring("", 1)])).await;
    fixture.days(2);
    // Listings succeed, promises fail.
    let store = faulty(&fixture.harness.memory, 3, 3, |call| match call {
        Call { op: CallKind::Promise, .. } => Fault::Refuse(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let carried = carry_out(&store).await.unwrap();
    assert_eq!((carried.done, carried.kept), (0, 1));
    assert_eq!(fixture.keys().await, ["k"]);
}

#[tokio::test]
async fn rules_that_are_not_understood_take_nothing() {
    let fixture = Fixture::new(1).await;
    fixture.harness.put("k", "abc").await.unwrap();
    let mut document = rules([expiring("", 1)]).document();
    document[0] = 99;
    fixture.store().buckets().put_setting("b", Setting::Lifecycle, document).await.unwrap();
    fixture.days(9);
    assert!(carry_out(fixture.store()).await.is_err());
    assert_eq!(fixture.keys().await, ["k"]);
    fixture.store().delete("b", "k", &WriteConditions::default()).await.unwrap();
    fixture.store().buckets().delete("b").await.unwrap();
    assert_eq!(carry_out(fixture.store()).await.unwrap(), ExpiryOutcome::default(), "no bucket");
}

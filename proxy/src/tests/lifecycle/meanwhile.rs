//! Changes between the page that lists a version and the ballot that removes it.

use martlet_protocol::entry::Bucket;
use martlet_protocol::lifecycle::{LifecycleAction, ListedHead, VersionPosition};
use martlet_protocol::{BucketId, VersionId};

use super::*;
use crate::lifecycle::{ExpirationCandidate, ExpirationOutcome, ExpirationRun, Expirations};
use crate::{ObjectName, ReadConditions};

/// Treats version number `at` of a listing as due.
async fn candidate_at(
    fixture: &Fixture,
    at: usize,
    action: LifecycleAction,
    position: fn(u64) -> VersionPosition,
) -> ExpirationCandidate {
    let list = ListVersions { limit: 100, ..ListVersions::default() };
    let mut page = fixture.store().versions().list("b", list).await.unwrap();
    let first = &page.versions[0];
    let head = ListedHead { version: first.id, modified_ms: first.modified_ms };
    let version = page.versions.remove(at);
    let (modified_ms, position) = (version.modified_ms, position(version.modified_ms));
    ExpirationCandidate { key: version.key, id: version.id, modified_ms, position, head, action }
}

/// Reads a version of `k` by its id.
async fn is_readable(fixture: &Fixture, id: VersionId) -> bool {
    let name = ObjectName { key: "k", version: Some(id) };
    let any = ReadConditions::default();
    fixture.store().get("b", name, Selection::Whole, &any).await.is_ok()
}

fn current(modified_ms: u64) -> VersionPosition {
    VersionPosition::Current { modified_ms }
}

fn noncurrent_since(since_ms: u64) -> VersionPosition {
    VersionPosition::Noncurrent { since_ms, newer: 9 }
}

fn alone(modified_ms: u64) -> VersionPosition {
    VersionPosition::LoneMarker { modified_ms }
}

async fn expire(
    fixture: &Fixture,
    rules: &Lifecycle,
    candidate: &ExpirationCandidate,
) -> ExpirationOutcome {
    let bucket = fixture.store().bucket("b").await.unwrap();
    expire_of(fixture, &bucket, rules, candidate).await
}

/// Expires a candidate of a page that was read from this state of the bucket.
async fn expire_of(
    fixture: &Fixture,
    bucket: &Bucket,
    rules: &Lifecycle,
    candidate: &ExpirationCandidate,
) -> ExpirationOutcome {
    let run = ExpirationRun { bucket, rules, day: DAY, now_ms: fixture.clock.now_ms() };
    let store = fixture.store();
    let (services, context) = (&*store.services, &*store.context());
    Expirations { services, context }.expire("b", candidate, &run).await
}

fn is_done(outcome: &ExpirationOutcome) -> bool {
    matches!(outcome, ExpirationOutcome::Done(_))
}

#[tokio::test]
async fn m1_a_newer_write_is_never_removed() {
    for is_versioned in [false, true] {
        let fixture = if is_versioned { Fixture::versioned().await } else { Fixture::new(3).await };
        let rules = rules([expiring("", 1)]);
        put_plain(fixture.store(), "k").await.unwrap();
        fixture.days(2);
        let candidate = candidate_at(&fixture, 0, LifecycleAction::Expire, current).await;
        put_plain(fixture.store(), "k").await.unwrap();
        let before = fixture.versions().await;
        assert_eq!(expire(&fixture, &rules, &candidate).await, ExpirationOutcome::NotDue);
        assert_eq!(fixture.versions().await, before);
        fixture.harness.delete("k").await;
        let before = fixture.versions().await;
        assert_eq!(
            expire(&fixture, &rules, &candidate).await,
            ExpirationOutcome::NotDue,
            "it has gone"
        );
        assert_eq!(fixture.versions().await, before);
    }
}

#[tokio::test]
async fn m1_rules_that_were_removed_or_replaced_take_nothing_more() {
    let fixture = Fixture::new(3).await;
    let rules = rules([expiring("", 1)]);
    fixture.set(&rules).await;
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.days(2);
    let candidate = candidate_at(&fixture, 0, LifecycleAction::Expire, current).await;
    let listed = fixture.store().bucket("b").await.unwrap();
    fixture.store().buckets().delete_setting("b", Setting::Lifecycle).await.unwrap();
    let outcome = expire_of(&fixture, &listed, &rules, &candidate).await;
    assert_eq!(outcome, ExpirationOutcome::NotDue);
    fixture.set(&super::rules([expiring("", 9)])).await;
    let outcome = expire_of(&fixture, &listed, &rules, &candidate).await;
    assert_eq!(outcome, ExpirationOutcome::NotDue);
    let another = Bucket { id: BucketId([9; 16]), ..(*listed).clone() };
    let outcome = expire_of(&fixture, &another, &rules, &candidate).await;
    assert_eq!(outcome, ExpirationOutcome::NotDue, "the bucket was made again");
    assert_eq!(fixture.keys().await, ["k"]);
    fixture.set(&rules).await;
    assert!(is_done(&expire_of(&fixture, &listed, &rules, &candidate).await));
    assert_eq!(fixture.keys().await, [""; 0]);
}

#[tokio::test]
async fn m1_other_tags_save_an_object() {
    let fixture = Fixture::new(3).await;
    let filter = Filter { tag: Some(("x".into(), "1".into())), ..Filter::default() };
    let rules = rules([Rule { scope: Scope::Filter(filter), ..expiring("", 1) }]);
    fixture.put_with("k", &[("x", "1")], Marks::default()).await;
    fixture.days(2);
    let candidate = candidate_at(&fixture, 0, LifecycleAction::Expire, current).await;
    fixture.store().versions().set_tags("b", "k", Vec::new()).await.unwrap();
    assert_eq!(expire(&fixture, &rules, &candidate).await, ExpirationOutcome::NotDue);
    fixture.store().versions().set_tags("b", "k", vec![("x".into(), "1".into())]).await.unwrap();
    assert!(is_done(&expire(&fixture, &rules, &candidate).await));
    assert_eq!(fixture.keys().await, [""; 0]);
}

#[tokio::test]
async fn m1_a_version_that_is_the_current_one_again_stays() {
    let fixture = Fixture::versioned().await;
    let rules = rules([noncurrent(1, None)]);
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.days(1);
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.days(2);
    let newer = candidate_at(&fixture, 0, LifecycleAction::Expire, current).await;
    let candidate = candidate_at(&fixture, 1, LifecycleAction::Remove, noncurrent_since).await;
    fixture.store().versions().delete("b", "k", newer.id).await.unwrap();
    assert_eq!(expire(&fixture, &rules, &candidate).await, ExpirationOutcome::NotDue);
    assert_eq!(fixture.versions().await, ["k*"]);
    // Noncurrent again, but for no time yet.
    put_plain(fixture.store(), "k").await.unwrap();
    assert_eq!(expire(&fixture, &rules, &candidate).await, ExpirationOutcome::NotDue);
    assert_eq!(fixture.versions().await, ["k*", "k"]);
    assert!(is_readable(&fixture, candidate.id).await);
    fixture.days(2);
    let candidate = candidate_at(&fixture, 1, LifecycleAction::Remove, noncurrent_since).await;
    put_plain(fixture.store(), "k").await.unwrap();
    assert!(is_done(&expire(&fixture, &rules, &candidate).await), "the listed head is beside");
    assert_eq!(fixture.versions().await, ["k*", "k"]);
}

/// The head of a suspended bucket has the same id after each write.
#[tokio::test]
async fn m1_another_null_head_is_not_the_listed_one() {
    for is_replaced in [false, true] {
        let fixture = Fixture::versioned().await;
        let rules = rules([noncurrent(1, None)]);
        put_plain(fixture.store(), "k").await.unwrap();
        fixture.store().buckets().set_versioning("b", false).await.unwrap();
        fixture.days(1);
        put_plain(fixture.store(), "k").await.unwrap();
        fixture.days(2);
        let candidate = candidate_at(&fixture, 1, LifecycleAction::Remove, noncurrent_since).await;
        if is_replaced {
            fixture.store().versions().delete("b", "k", VersionId::Null).await.unwrap();
            put_plain(fixture.store(), "k").await.unwrap();
        }
        let outcome = expire(&fixture, &rules, &candidate).await;
        assert_eq!(is_done(&outcome), !is_replaced, "{outcome:?}");
        assert_eq!(is_readable(&fixture, candidate.id).await, is_replaced);
    }
}

#[tokio::test]
async fn m1_the_newest_noncurrent_versions_stay_when_others_go() {
    for is_deleted in [false, true] {
        let fixture = Fixture::versioned().await;
        let rules = rules([noncurrent(1, Some(1))]);
        for _ in 0..3 {
            put_plain(fixture.store(), "k").await.unwrap();
            fixture.days(1);
        }
        let behind_one = |since_ms| VersionPosition::Noncurrent { since_ms, newer: 1 };
        let candidate = candidate_at(&fixture, 2, LifecycleAction::Remove, behind_one).await;
        let newer = candidate_at(&fixture, 1, LifecycleAction::Remove, behind_one).await;
        if is_deleted {
            fixture.store().versions().delete("b", "k", newer.id).await.unwrap();
        }
        let outcome = expire(&fixture, &rules, &candidate).await;
        assert_eq!(is_done(&outcome), !is_deleted, "{outcome:?}");
        assert_eq!(is_readable(&fixture, candidate.id).await, is_deleted);
    }
}

#[tokio::test]
async fn m1_a_marker_goes_only_while_it_is_alone() {
    let fixture = Fixture::versioned().await;
    let rules = rules([Rule { expiration: Some(Expiration::Marker(true)), ..rule("") }]);
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.harness.delete("k").await;
    let marker = candidate_at(&fixture, 0, LifecycleAction::Remove, alone).await;
    let behind = candidate_at(&fixture, 1, LifecycleAction::Remove, noncurrent_since).await;
    assert_eq!(
        expire(&fixture, &rules, &marker).await,
        ExpirationOutcome::NotDue,
        "a version is behind it"
    );
    assert_eq!(fixture.versions().await, ["k -*", "k"]);
    fixture.store().versions().delete("b", "k", behind.id).await.unwrap();
    put_plain(fixture.store(), "k").await.unwrap();
    assert_eq!(
        expire(&fixture, &rules, &marker).await,
        ExpirationOutcome::NotDue,
        "one is in front of it"
    );
    let front = candidate_at(&fixture, 0, LifecycleAction::Expire, current).await;
    fixture.store().versions().delete("b", "k", front.id).await.unwrap();
    assert!(is_done(&expire(&fixture, &rules, &marker).await));
    assert_eq!(fixture.versions().await, [""; 0]);
}

#[tokio::test]
async fn r7_any_number_may_be_at_it() {
    let fixture = Fixture::versioned().await;
    let rules = rules([expiring("", 1), noncurrent(1, None)]);
    put_plain(fixture.store(), "k").await.unwrap();
    fixture.days(2);
    let candidate = candidate_at(&fixture, 0, LifecycleAction::Expire, current).await;
    let all = (0..4).map(|_| expire(&fixture, &rules, &candidate));
    let outcomes = futures::future::join_all(all).await;
    let done = outcomes.iter().filter(|outcome| is_done(outcome)).count();
    assert_eq!(done, 1, "{outcomes:?}");
    assert_eq!(fixture.versions().await, ["k -*", "k"]);
    fixture.days(2);
    let behind = candidate_at(&fixture, 1, LifecycleAction::Remove, noncurrent_since).await;
    let all = (0..4).map(|_| expire(&fixture, &rules, &behind));
    let outcomes = futures::future::join_all(all).await;
    assert_eq!(outcomes.iter().filter(|outcome| is_done(outcome)).count(), 1);
    assert_eq!(fixture.versions().await, ["k -*"]);
}

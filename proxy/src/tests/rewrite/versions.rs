//! Older versions are rewritten to another policy as the current one is.

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{ErrorKind, PolicyId, RegisterKind};

use super::super::harness::{collect, pattern};
use super::SIZE;
use super::fixture::{RewriteFixture, policy_of};
use crate::{ListVersions, ObjectName, ReadConditions, Rewrite, RewriteOptions, Selection};

/// A key with a null version, an older and the current one, each with its own bytes.
async fn three_versions() -> RewriteFixture {
    let fixture = RewriteFixture::new().await;
    fixture.put("key", &pattern(SIZE, 1)).await;
    fixture.store.buckets().set_versioning("b", true).await.unwrap();
    for seed in 2..4 {
        fixture.put("key", &pattern(SIZE, seed)).await;
    }
    fixture
}

/// Number of versions under the second policy. Checks that all are readable and in order.
async fn moved(fixture: &RewriteFixture) -> usize {
    let list = ListVersions { limit: 10, ..ListVersions::default() };
    let versions = fixture.store.versions().list("b", list).await.unwrap().versions;
    assert_eq!(versions.len(), 3);
    let mut moved = 0;
    for (version, seed) in versions.into_iter().zip([3, 2, 1]) {
        let name = ObjectName { key: "key", version: Some(version.id) };
        let conditions = ReadConditions::default();
        let read = fixture.store.get("b", name, Selection::Whole, &conditions).await.unwrap();
        assert_eq!(collect(read).await.unwrap(), pattern(SIZE, seed));
        moved += usize::from(policy_of(&version.object.unwrap()) == Some(PolicyId(1)));
    }
    moved
}

#[tokio::test]
async fn every_version_is_moved() {
    let fixture = three_versions().await;
    fixture.turn_to_second().await;
    assert_eq!(moved(&fixture).await, 0);
    let progress = fixture.rewrite_all().await;
    assert_eq!((progress.objects_to_move, progress.moved, progress.failed), (3, 3, 0));
    assert_eq!(moved(&fixture).await, 3);
}

/// The stored version names its new extents already when the head's ballot fails, so they stay.
#[tokio::test(start_paused = true)]
async fn a_version_that_was_moved_by_half_is_whole() {
    let fixture = three_versions().await;
    fixture.turn_to_second().await;
    let store = fixture.store_that(|call| {
        let is_head = call.key.is_some_and(|key| key.kind == RegisterKind::Object);
        let object = call.write.and_then(|write| write.entry.value.version());
        match (call.op, is_head, object) {
            (CallKind::Write, true, Some(_)) => Fault::Refuse(ErrorKind::Unavailable),
            _ => Fault::None,
        }
    });
    let rewrite = Rewrite::new("b", RewriteOptions::default());
    store.rewrite(&rewrite).await.unwrap();
    super::super::harness::settle().await;
    assert_eq!(moved(&fixture).await, 2, "but for the current one");
    fixture.rewrite_all().await;
    assert_eq!(moved(&fixture).await, 3);
}

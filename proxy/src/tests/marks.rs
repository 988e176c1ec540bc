//! Marks of objects: they stay with the object, and guards check them before a reply.

use std::sync::Arc;

use martlet_protocol::entry::{Attributes, Mark, Marks, Object};
use martlet_protocol::{Level, VersionId};

use super::harness::{Harness, body, create, pattern, settle};
use super::multipart::{naming, send};
use super::objects::copy_of;
use crate::{
    ConsistencyOptions, ETagCondition, Error, Guard, NewUpload, ObjectName, PutObject,
    ReadConditions, Selection, Session, WriteConditions,
};

fn marks(document: &str) -> Marks {
    let mut marks = Marks::default();
    marks.set(Mark::Acl, document.into());
    marks
}

fn marked(document: &str) -> Attributes {
    Attributes { marks: marks(document), ..Attributes::default() }
}

async fn mark_of(harness: &Harness, key: &str) -> Option<String> {
    let read = harness.head(key, Selection::Whole).await.unwrap();
    let document = read.object.attributes.marks.get(Mark::Acl)?;
    Some(String::from_utf8(document.to_vec()).unwrap())
}

async fn put(harness: &Harness, key: &str, document: &str) {
    let body = body(pattern(100_000, 1));
    let put =
        PutObject { attributes: marked(document), body, conditions: WriteConditions::default() };
    harness.store.put("b", key, put).await.unwrap();
}

/// Admits objects with an ACL mark of `open`.
struct Open;

impl Guard for Open {
    fn admits(&self, object: &Object) -> bool {
        object.attributes.marks.get(Mark::Acl) == Some(b"open")
    }
}

fn guarded(harness: &Harness) -> Session {
    harness.store.session(ConsistencyOptions::default()).guarded(Arc::new(Open))
}

#[tokio::test]
async fn marks_change_and_nothing_else_does() {
    let harness = Harness::with_bucket(1).await;
    put(&harness, "key", "first").await;
    let before = harness.head("key", Selection::Whole).await.unwrap().object;
    let change = |object: &Object, marks: &mut Marks| {
        assert_eq!(object.etag, before.etag);
        marks.set(Mark::Acl, b"second".to_vec());
        Ok(())
    };
    harness.store.versions().change_marks("b", "key", change).await.unwrap();
    assert_eq!(mark_of(&harness, "key").await.as_deref(), Some("second"));
    let after = harness.head("key", Selection::Whole).await.unwrap().object;
    assert_eq!((after.modified_ms, after.etag), (before.modified_ms, before.etag));
    assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), pattern(100_000, 1));
    let refuse = |_: &Object, _: &mut Marks| Err(Error::AccessDenied);
    let refused = harness.store.versions().change_marks("b", "key", refuse).await.unwrap_err();
    assert!(matches!(refused, Error::AccessDenied));
    assert_eq!(mark_of(&harness, "key").await.as_deref(), Some("second"));
    let missing =
        harness.store.versions().change_marks("b", "none", |_, _| Ok(())).await.unwrap_err();
    assert!(matches!(missing, Error::NoSuchKey));
}

#[tokio::test]
async fn a_version_that_is_not_the_current_one_has_marks_of_its_own() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    put(&harness, "key", "first").await;
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    put(&harness, "key", "second").await;
    let name = ObjectName { key: "key", version: Some(VersionId::Null) };
    let change = |_: &Object, marks: &mut Marks| {
        marks.set(Mark::Acl, b"changed".to_vec());
        Ok(())
    };
    harness.store.versions().change_marks("b", name, change).await.unwrap();
    let read = harness.store.head("b", name, Selection::Whole, &ReadConditions::default()).await;
    assert_eq!(read.unwrap().object.attributes.marks, marks("changed"));
    assert_eq!(mark_of(&harness, "key").await.as_deref(), Some("second"));
}

#[tokio::test]
async fn uploads_hand_their_marks_on_and_copies_have_their_own() {
    let harness = Harness::with_bucket(1).await;
    let new = NewUpload { attributes: marked("uploaded"), checksum: None };
    let upload = harness.store.uploads().create("b", "key", new).await.unwrap();
    assert_eq!(upload.marks, marks("uploaded"));
    let part = send(&harness, upload.id, 1, &pattern(1000, 1)).await.unwrap();
    let complete = naming(&[(1, &part)]);
    harness.store.uploads().complete("b", "key", upload.id, complete).await.unwrap();
    assert_eq!(mark_of(&harness, "key").await.as_deref(), Some("uploaded"));
    harness.store.copy("b", "plain", copy_of("key")).await.unwrap();
    assert_eq!(mark_of(&harness, "plain").await, None);
    let mut copy = copy_of("key");
    copy.marks = marks("copied");
    harness.store.copy("b", "copy", copy).await.unwrap();
    assert_eq!(mark_of(&harness, "copy").await.as_deref(), Some("copied"));
}

#[tokio::test]
async fn a_guard_is_called_before_metadata_is_returned() {
    let harness = Harness::with_bucket(1).await;
    put(&harness, "open", "open").await;
    put(&harness, "shut", "shut").await;
    let session = guarded(&harness);
    let none = ReadConditions::default();
    session.get("b", "open", Selection::Whole, &none).await.unwrap();
    session.copy("b", "copy", copy_of("open")).await.unwrap();
    let any = ReadConditions { if_none_match: Some(ETagCondition::Any), ..none.clone() };
    let beyond = Selection::From { first: 1 << 40, last: None };
    let refusals = [
        session.get("b", "shut", Selection::Whole, &none).await.err(),
        session.head("b", "shut", Selection::Whole, &any).await.err(),
        session.get("b", "shut", beyond, &none).await.err(),
        session.parts("b", "shut", &none).await.err(),
        session.copy("b", "copy", copy_of("shut")).await.err(),
        session
            .versions()
            .change_marks("b", "shut", |_, _| panic!("nobody asked the guard"))
            .await
            .err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(Error::AccessDenied)), "{refusal:?}");
    }
    let missing = session.head("b", "none", Selection::Whole, &none).await.err();
    assert!(matches!(missing, Some(Error::NoSuchKey)));
    harness.store.head("b", "shut", Selection::Whole, &none).await.unwrap();
}

#[tokio::test]
async fn a_guarded_session_keeps_the_account_of_its_own() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    put(&harness, "open", "open").await;
    // All three replicas have it: one that lacks it needs the others.
    settle().await;
    let session =
        harness.store.session(ConsistencyOptions { level: Some(Level::Any), read_after: None });
    let guarded = session.guarded(Arc::new(Open));
    guarded.head("b", "open", Selection::Whole, &ReadConditions::default()).await.unwrap();
    assert_eq!(session.given(), guarded.given());
    assert_eq!(session.given(), martlet_protocol::AchievedLevel::Any);
}

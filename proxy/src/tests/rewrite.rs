//! Rewrites of objects to another policy: the clients' view, concurrent writes, and leftover
//! extents.

pub(super) mod fixture;
mod races;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::{Attributes, Body, ChecksumAlgorithm};
use martlet_protocol::testing::Fault;
use martlet_protocol::{AchievedLevel, Backend, Clock, ErrorKind, PolicyId, SystemClock};
use tokio::time::sleep;

use self::fixture::{RewriteFixture, SECOND, policy_of, until};
use super::counted_node::CountedNode;
use super::harness::{body, collect, get, pattern, put, settle};
use super::multipart::naming;
use crate::{
    ConsistencyOptions, ETagCondition, Error, PutObject, ReadAfter, ReadConditions, Rewrite,
    RewriteOptions, Selection, WriteConditions,
};

/// Larger than an inline object.
const SIZE: usize = 20_000;

fn refused(is_so: bool) -> Fault {
    if is_so { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
}

#[tokio::test]
async fn new_objects_and_uploads_go_under_the_policy_that_was_set() {
    let fixture = RewriteFixture::new().await;
    let upload = fixture.begin("upload").await;
    fixture.put("before", &pattern(SIZE, 1)).await;
    let unknown = fixture.store.buckets().set_policy("b", "third").await;
    let Err(Error::InvalidArgument(sentence)) = unknown else { panic!("{unknown:?}") };
    assert!(sentence.contains("first") && sentence.contains(SECOND), "{sentence}");
    let missing = fixture.store.buckets().set_policy("c", SECOND).await;
    assert!(matches!(missing, Err(Error::NoSuchBucket)), "{missing:?}");
    for _ in 0..2 {
        assert_eq!(
            fixture.store.buckets().set_policy("b", SECOND).await.unwrap().policy,
            PolicyId(1)
        );
    }
    fixture.put("after", &pattern(SIZE, 2)).await;
    assert_eq!(policy_of(&fixture.object("before").await), Some(PolicyId(0)));
    assert_eq!(policy_of(&fixture.object("after").await), Some(PolicyId(1)));
    // An upload keeps the policy of its beginning.
    fixture.send_and_complete("upload", upload, &[pattern(SIZE, 3)]).await;
    assert_eq!(policy_of(&fixture.object("upload").await), Some(PolicyId(0)));
}

#[tokio::test]
async fn everything_about_an_object_is_kept_but_where_it_lies() {
    let fixture = RewriteFixture::new().await;
    let attributes = Attributes {
        content_type: Some("text/x".into()),
        cache_control: Some("no-store".into()),
        user_metadata: vec![("a".into(), "b".into())],
        tags: vec![("t".into(), "u".into())],
        ..Attributes::default()
    };
    let bytes = pattern(3_000_000, 1);
    let mut new_body = body(bytes.clone());
    new_body.compute = vec![ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Sha256];
    let conditions = WriteConditions::default();
    let written = PutObject { attributes, body: new_body, conditions };
    let written = fixture.store.put("b", "key", written).await.unwrap();
    let session = fixture.store.session(ConsistencyOptions::default());
    let token = session.token("b", "key", written.stamp);
    assert_eq!(session.given(), AchievedLevel::Quorum);

    fixture.turn_to_second().await;
    let progress = fixture.rewrite_all().await;
    assert_eq!((progress.moved, progress.moved_bytes, progress.failed), (1, 3_000_000, 0));
    assert_eq!(progress.copied_bytes, 3_000_000);
    let after = fixture.object("key").await;
    let (mut expected, mut found) = (written.object, after.clone());
    assert_eq!(policy_of(&found), Some(PolicyId(1)));
    (expected.body, found.body) = (Body::Empty, Body::Empty);
    assert_eq!(found, expected);
    assert_eq!(get(&fixture.store, "key", Selection::Whole).await.unwrap(), bytes);

    // Rule A3: a reader with the old write's token receives an entry with a higher stamp.
    let session = fixture
        .store
        .session(ConsistencyOptions { read_after: Some(token), ..ConsistencyOptions::default() });
    let conditions = ReadConditions::default();
    let read = session.get("b", "key", Selection::Whole, &conditions).await.unwrap();
    assert!(read.stamp > written.stamp);
    assert_eq!(collect(read).await.unwrap(), bytes);
    // A client with the object's `ETag` may still replace the object.
    let tag = ETagCondition::OneOf(vec![after.etag.to_string()]);
    let same = WriteConditions { if_match: Some(tag), if_none_match: None };
    put(&fixture.store, "key", body("new".into()), same).await.unwrap();
    settle().await;
    assert!(fixture.memory.extents_in_use().is_empty(), "what nobody names is garbage");
}

#[tokio::test]
async fn objects_of_every_kind_move_and_only_those_that_have_to() {
    let fixture = RewriteFixture::new().await;
    let parts: Vec<_> = (0..3).map(|seed| pattern(150_000 + seed as usize, seed)).collect();
    let upload = fixture.begin("parts").await;
    fixture.send_and_complete("parts", upload, &parts).await;
    // The manifest is too long for an entry.
    let many: Vec<_> = (0..140).map(|seed| pattern(30, seed)).collect();
    let upload = fixture.begin("spilled").await;
    fixture.send_and_complete("spilled", upload, &many).await;
    fixture.put("inline", &pattern(100, 1)).await;
    fixture.put("empty", &Bytes::new()).await;
    let stays = Attributes { storage_class: Some("FIRST".into()), ..Attributes::default() };
    fixture.put_with("classed", &pattern(SIZE, 5), stays).await;
    fixture.put("plain", &pattern(SIZE, 6)).await;
    let before = fixture.objects().await;

    fixture.turn_to_second().await;
    let progress = fixture.rewrite_all().await;
    assert_eq!((progress.moved, progress.seen, progress.failed), (3, 6, 0), "{progress:?}");
    assert_eq!(progress.objects_to_move, 3);
    assert_eq!(progress.bytes_to_move, progress.moved_bytes);
    let after = fixture.objects().await;
    for (mut one, mut other) in before.into_iter().zip(after) {
        let is_moved = ["parts", "spilled", "plain"].contains(&one.0.as_str());
        let policy = policy_of(&other.1).map(|policy| policy.0);
        let nowhere = ["inline", "empty"].contains(&one.0.as_str());
        assert_eq!(policy, (!nowhere).then_some(u16::from(is_moved)), "{}", one.0);
        if is_moved {
            (one.1.body, other.1.body) = (Body::Empty, Body::Empty);
        }
        assert_eq!(one, other);
    }
    assert!(matches!(fixture.object("spilled").await.body, Body::Spilled { .. }));
    for (key, parts) in [("parts", &parts), ("spilled", &many)] {
        assert_eq!(
            get(&fixture.store, key, Selection::Whole).await.unwrap(),
            parts.concat(),
            "{key}"
        );
        let second = get(&fixture.store, key, Selection::Part { number: 2 }).await.unwrap();
        assert_eq!(second, parts[1], "{key}");
    }
    for (key, copies) in [("plain", 2), ("parts", 2), ("classed", 3)] {
        let Body::Extents(manifest) = fixture.object(key).await.body else { panic!("{key}") };
        assert!(manifest.extents.iter().all(|extent| fixture.copies(extent.id) == copies), "{key}");
    }

    let again = fixture.rewrite_all().await;
    assert_eq!((again.objects_to_move, again.moved, again.seen), (0, 0, 6));
}

#[tokio::test(start_paused = true)]
async fn a_write_during_the_read_of_an_object_stays_the_last() {
    for way in ["overwrite", "delete", "condition", "tags"] {
        let fixture = RewriteFixture::new().await;
        fixture.put("key", &pattern(4_000_000, 1)).await;
        fixture.turn_to_second().await;
        let options = RewriteOptions { bytes_per_s: Some(1_000_000), clients_wait: None };
        let rewrite = Rewrite::new("b", options);
        let client = async {
            until(|| rewrite.progress().copied_bytes > 0).await;
            let none = WriteConditions::default();
            match way {
                "overwrite" => fixture.put("key", &pattern(SIZE, 2)).await,
                "delete" => drop(fixture.store.delete("b", "key", &none).await.unwrap()),
                "tags" => {
                    let tags = vec![("a".into(), "b".into())];
                    drop(fixture.store.versions().set_tags("b", "key", tags).await.unwrap());
                }
                _ => {
                    let tag =
                        ETagCondition::OneOf(vec![fixture.object("key").await.etag.to_string()]);
                    let same = WriteConditions { if_match: Some(tag), if_none_match: None };
                    put(&fixture.store, "key", body(pattern(SIZE, 2)), same).await.unwrap();
                }
            }
        };
        let (outcome, ()) = tokio::join!(fixture.store.rewrite(&rewrite), client);
        outcome.unwrap();
        let (progress, held) = (rewrite.progress(), fixture.bytes("key").await);
        let expected = match way {
            "delete" => None,
            "tags" => Some(pattern(4_000_000, 1)),
            _ => Some(pattern(SIZE, 2)),
        };
        assert_eq!(held, expected, "{way}");
        // The client's own writes use the new policy; new tags leave the bytes in place.
        let (moved, copied) = if way == "tags" { (1, 4_000_000) } else { (0, 0) };
        assert_eq!((progress.moved, progress.copied_bytes), (moved, copied), "{way}");
        assert_eq!(progress.failed, 0, "{way}");
        if way == "tags" {
            assert_eq!(fixture.object("key").await.attributes.tags.len(), 1);
        }
        settle().await;
        assert_eq!(fixture.in_use(), fixture.named().await, "{way}: the loser left something");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rewrite_that_fails_half_way_leaves_the_object_as_it_was() {
    for op in [CallKind::WriteExtent, CallKind::ReadExtent, CallKind::Promise, CallKind::Write] {
        let fixture = RewriteFixture::new().await;
        let bytes = pattern(SIZE, 1);
        fixture.put("key", &bytes).await;
        fixture.put("small", &pattern(10, 1)).await;
        fixture.turn_to_second().await;
        let before = fixture.object("key").await;
        let store = fixture.store_that(move |call| refused(call.op == op));
        let rewrite = Rewrite::new("b", RewriteOptions::default());
        store.rewrite(&rewrite).await.unwrap();
        let progress = rewrite.progress();
        assert_eq!((progress.moved, progress.failed), (0, 1), "{op:?}: {progress:?}");
        assert_eq!(progress.copied_bytes, 0, "{op:?}");
        assert!(progress.failure.unwrap().starts_with("key: "), "{op:?}");
        assert_eq!(fixture.object("key").await, before, "{op:?}");
        assert_eq!(fixture.bytes("key").await.unwrap(), bytes, "{op:?}");
        settle().await;
        let (in_use, named) = (fixture.in_use(), fixture.named().await);
        // A failed write may be stored on some device, so its extents are left to the sweep.
        assert!(in_use.is_superset(&named), "{op:?}");
        assert_eq!(in_use == named, op != CallKind::Write, "{op:?}");
        assert_eq!(fixture.rewrite_all().await.moved, 1, "{op:?}");
        assert_eq!(fixture.bytes("key").await.unwrap(), bytes, "{op:?}");
    }
}

/// Rule R7: a rewrite that finds its own write has won, with any loss of replies.
#[tokio::test(start_paused = true)]
async fn r7_lost_replies_lose_no_bytes() {
    for lost in [1, 2, 3] {
        let fixture = RewriteFixture::new().await;
        fixture.put("key", &pattern(SIZE, 1)).await;
        fixture.turn_to_second().await;
        let deaf = fixture.primaries("key").await;
        let store = fixture.store_that(move |call| match call.op {
            CallKind::Write if deaf[..lost].contains(&call.device) => {
                Fault::LoseReply(ErrorKind::Unavailable)
            }
            _ => Fault::None,
        });
        let rewrite = Rewrite::new("b", RewriteOptions::default());
        store.rewrite(&rewrite).await.unwrap();
        assert_eq!(rewrite.progress().moved, 1, "{lost} replies are lost");
        settle().await;
        assert_eq!(fixture.bytes("key").await.unwrap(), pattern(SIZE, 1), "{lost}");
        assert_eq!(fixture.in_use(), fixture.named().await, "{lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_not_what_was_written_stay_where_they_are() {
    let fixture = RewriteFixture::new().await;
    fixture.put("key", &pattern(SIZE, 1)).await;
    fixture.turn_to_second().await;
    fixture.corrupt_all();
    let before = fixture.object("key").await;
    let progress = fixture.rewrite_all().await;
    assert_eq!((progress.moved, progress.failed), (0, 1));
    assert_eq!(fixture.object("key").await, before);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stopped_leaves_nothing_behind_and_is_begun_again() {
    let fixture = RewriteFixture::new().await;
    let keys: Vec<_> = (0..9).map(|at| format!("key {at}")).collect();
    for key in &keys {
        fixture.put(key, &pattern(1_500_000, 1)).await;
    }
    fixture.turn_to_second().await;
    let options = RewriteOptions { bytes_per_s: Some(1_000_000), clients_wait: None };
    let rewrite = Rewrite::new("b", options);
    let stop = async {
        until(|| rewrite.progress().moved > 1).await;
        rewrite.stop();
    };
    let (outcome, ()) = tokio::join!(fixture.store.rewrite(&rewrite), stop);
    assert!(outcome.unwrap_err().to_string().contains("stopped"));
    let progress = rewrite.progress();
    assert!((2..9).contains(&progress.moved) && progress.failed == 0, "{progress:?}");
    assert_eq!(progress.copied_bytes, progress.moved_bytes);
    settle().await;
    assert_eq!(fixture.in_use(), fixture.named().await);
    let again = fixture.rewrite_all().await;
    assert_eq!((again.objects_to_move, again.moved), (9 - progress.moved, 9 - progress.moved));
    for key in &keys {
        assert_eq!(fixture.bytes(key).await.unwrap(), pattern(1_500_000, 1), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rewrite_without_progress_gives_up_and_returns_its_last_error() {
    let fixture = RewriteFixture::new().await;
    for at in 0..30 {
        fixture.put(&format!("key {at}"), &pattern(SIZE, 1)).await;
    }
    fixture.turn_to_second().await;
    let store = fixture.store_that(|call| refused(call.op == CallKind::WriteExtent));
    let rewrite = Rewrite::new("b", RewriteOptions::default());
    let error = store.rewrite(&rewrite).await.unwrap_err().to_string();
    assert!(error.contains("in a row could not be moved, as key "), "{error}");
    assert!((16..30).contains(&rewrite.progress().failed), "{:?}", rewrite.progress());
}

#[tokio::test(start_paused = true)]
async fn a_rewrite_longer_than_a_day_does_not_begin() {
    let fixture = RewriteFixture::new().await;
    fixture.put("key", &pattern(100_000, 1)).await;
    let before = fixture.object("key").await;
    fixture.turn_to_second().await;
    let store = fixture.store_that(|call| {
        assert_ne!(call.op, CallKind::WriteExtent, "nothing is written anew");
        Fault::None
    });
    let rewrite = Rewrite::new("b", RewriteOptions { bytes_per_s: Some(1), clients_wait: None });
    let _ = store.rewrite(&rewrite).await;
    let progress = rewrite.progress();
    assert_eq!((progress.failed, progress.moved), (1, 0));
    assert!(progress.failure.unwrap().contains("longer than a day"));
    assert_eq!(fixture.object("key").await, before);
}

/// Rule A1: a write acknowledged without a quorum is kept as a hint, and a rewrite must not restore
/// the older object over it.
#[tokio::test(start_paused = true)]
async fn a1_a_write_that_is_kept_for_others_is_not_overtaken() {
    let fixture = RewriteFixture::new().await;
    fixture.put("key", &pattern(SIZE, 1)).await;
    fixture.turn_to_second().await;
    let out = fixture.primaries("key").await;
    let key = fixture.register("key").await;
    let cut_off = fixture
        .store_that(move |call| refused(out.contains(&call.device) && call.key == Some(&key)));
    let session = cut_off.session(ConsistencyOptions::default());
    let conditions = WriteConditions::default();
    // Only their clocks order writes of two proxies, one of which sees no quorum.
    let before_ms = SystemClock.now_ms();
    until(|| SystemClock.now_ms() > before_ms).await;
    put(&session, "key", body(pattern(SIZE, 2)), conditions.clone()).await.unwrap();
    assert_eq!(session.given(), AchievedLevel::Degraded);
    let progress = fixture.rewrite_all().await;
    assert_eq!((progress.moved, progress.failed), (0, 1), "{progress:?}");
    assert!(progress.failure.unwrap().contains("holds hints of these registers for other devices"));
    fixture.deliver().await;
    assert_eq!(fixture.bytes("key").await.unwrap(), pattern(SIZE, 2));
    assert_eq!(fixture.rewrite_all().await.failed, 0);
    assert_eq!(fixture.bytes("key").await.unwrap(), pattern(SIZE, 2));
}

/// A silent device may keep a hint, so no object is moved meanwhile.
#[tokio::test(start_paused = true)]
async fn a1_nothing_moves_past_a_silent_device() {
    let fixture = RewriteFixture::new().await;
    fixture.put("key", &pattern(SIZE, 1)).await;
    fixture.turn_to_second().await;
    let node = CountedNode::over(fixture.memory.clone());
    node.set_silent(true);
    let rewrite = Rewrite::new("b", RewriteOptions::default());
    fixture.store_on(&(node as Arc<dyn Backend>)).rewrite(&rewrite).await.unwrap();
    let progress = rewrite.progress();
    assert_eq!((progress.moved, progress.failed), (0, 1));
    assert!(progress.failure.unwrap().contains("does not answer"));
    settle().await;
    assert_eq!(fixture.in_use(), fixture.named().await, "what was written anew is freed");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.rewrite_all().await.moved, 1);
    let token = ReadAfter::new("b", "key", fixture.stamp("key").await, AchievedLevel::Quorum);
    let session = fixture
        .store
        .session(ConsistencyOptions { read_after: Some(token), ..ConsistencyOptions::default() });
    assert_eq!(get(&session, "key", Selection::Whole).await.unwrap(), pattern(SIZE, 1));
}

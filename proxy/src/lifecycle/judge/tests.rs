//! Tests of the selection of due versions.

use martlet_protocol::entry::{Attributes, Body, Bucket, BucketState, ETag, Object};
use martlet_protocol::lifecycle::{
    Day, Expiration, Filter, Lifecycle, LifecycleAction, Noncurrent, Rule, Scope,
};
use martlet_protocol::{BucketId, Level, PolicyId, Settings, VersionId, WriteId};

use super::*;

const DAY: Day = Day::of_seconds(1);

fn rules(expiration: Option<Expiration>, noncurrent: Option<Noncurrent>) -> Lifecycle {
    let rule = Rule {
        id: "r".into(),
        is_enabled: true,
        scope: Scope::Filter(Filter::default()),
        expiration,
        noncurrent,
        abort_upload_days: None,
    };
    Lifecycle { rules: vec![rule], transition_minimum: None }
}

fn bucket() -> Bucket {
    Bucket {
        id: BucketId([1; 16]),
        created_ms: 0,
        generation: 1,
        state: BucketState::Open,
        index_shards: 1,
        policy: PolicyId(0),
        owner: "me".into(),
        consistency: Level::default(),
        settings: Settings::default(),
    }
}

fn id(position: u64) -> VersionId {
    VersionId::Numbered { position, write_id: WriteId([1; 16]) }
}

fn head(at: u64) -> ListedHead {
    ListedHead { version: id(at), modified_ms: at }
}

/// A version written at `at`, which is also its position; a marker if `size` is none.
fn version(key: &str, at: u64, is_latest: bool, size: Option<u64>) -> ListedVersion {
    let object = |size| {
        Box::new(Object {
            size,
            etag: ETag::Md5([0; 16]),
            modified_ms: at,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        })
    };
    let object = size.map(object);
    ListedVersion { key: key.to_owned(), id: id(at), is_latest, object, modified_ms: at }
}

fn page(versions: Vec<ListedVersion>, next: Option<(&str, Option<u64>)>) -> VersionPage {
    let next = next.map(|(key, at)| (key.to_owned(), at.map(id)));
    VersionPage { versions, prefixes: Vec::new(), next }
}

/// The due versions of a page at a time, as key, position and action; and the start of the next
/// page.
fn judged(
    rules: &Lifecycle,
    page: VersionPage,
    after: Option<&ExpiryCursor>,
    now_ms: u64,
) -> (Vec<(String, u64, LifecycleAction)>, Option<ExpiryCursor>) {
    let bucket = &bucket();
    let judged = judge(page, after, &ExpirationRun { bucket, rules, day: DAY, now_ms });
    let due = judged.candidates.into_iter().map(|it| (it.key, it.modified_ms, it.action));
    (due.collect(), judged.next)
}

#[test]
fn current_versions_expire_and_those_behind_them_by_their_own_age() {
    let rules = rules(Some(Expiration::Days(5)), Some(Noncurrent { days: 2, newer: None }));
    let versions = || {
        vec![
            version("a", 9000, true, Some(1)),
            version("a", 4000, false, Some(1)),
            version("a", 1000, false, None),
            version("b", 5000, true, Some(1)),
            version("c", 9000, true, None),
            version("c", 8000, false, Some(1)),
        ]
    };
    let at = |now_ms| judged(&rules, page(versions(), None), None, now_ms).0;
    // The oldest is noncurrent since the middle one was written, the middle one since the current.
    assert_eq!(at(5999), []);
    assert_eq!(at(6000), [("a".into(), 1000, LifecycleAction::Remove)]);
    let later = at(11_000);
    assert_eq!(later.len(), 4, "{later:?}");
    assert!(later.contains(&("a".into(), 4000, LifecycleAction::Remove)));
    assert!(later.contains(&("b".into(), 5000, LifecycleAction::Expire)));
    assert!(later.contains(&("c".into(), 8000, LifecycleAction::Remove)));
    assert!(
        !at(100_000).contains(&("c".into(), 9000, LifecycleAction::Remove)),
        "the marker is not alone"
    );
}

#[test]
fn the_newest_that_stay_are_counted_for_each_key() {
    let rules = rules(None, Some(Noncurrent { days: 1, newer: Some(2) }));
    let versions = vec![
        version("a", 5, true, Some(1)),
        version("a", 4, false, Some(1)),
        version("a", 3, false, None),
        version("a", 2, false, Some(1)),
        version("a", 1, false, Some(1)),
        version("b", 2, true, Some(1)),
        version("b", 1, false, Some(1)),
    ];
    let (candidate, next) = judged(&rules, page(versions, None), None, 1 << 40);
    assert_eq!(
        candidate,
        [("a".into(), 2, LifecycleAction::Remove), ("a".into(), 1, LifecycleAction::Remove)]
    );
    assert_eq!(next, None);
}

#[test]
fn a_key_longer_than_a_page_is_gone_on_with_by_what_is_known() {
    let rules = rules(None, Some(Noncurrent { days: 1, newer: Some(2) }));
    let first = vec![version("a", 9, true, Some(1)), version("a", 8, false, Some(1))];
    let (candidate, next) = judged(&rules, page(first, Some(("a", Some(8)))), None, 5000);
    let within = VersionCursor { version: id(8), newer: 1, since_ms: 8, head: head(9) };
    assert_eq!(
        (candidate.len(), &next),
        (0, &Some(ExpiryCursor { key: "a".into(), within: Some(within) }))
    );
    let rest = vec![
        version("a", 7, false, Some(1)),
        version("a", 6, false, Some(1)),
        version("b", 5, true, Some(1)),
    ];
    let (candidate, next) = judged(&rules, page(rest, Some(("b", Some(5)))), next.as_ref(), 5000);
    assert_eq!(candidate, [("a".into(), 6, LifecycleAction::Remove)]);
    let within = VersionCursor { version: id(5), newer: 0, since_ms: 5, head: head(5) };
    assert_eq!(next, Some(ExpiryCursor { key: "b".into(), within: Some(within) }));
}

#[test]
fn candidates_of_later_pages_have_the_head_of_the_first() {
    let rules = rules(None, Some(Noncurrent { days: 1, newer: None }));
    let run = ExpirationRun { bucket: &bucket(), rules: &rules, day: DAY, now_ms: 5000 };
    let first = vec![version("a", 9, true, Some(1)), version("a", 8, false, Some(1))];
    let judged = judge(page(first, Some(("a", Some(8)))), None, &run);
    let heads = |judged: &JudgedPage| -> Vec<_> {
        judged.candidates.iter().map(|it| (it.modified_ms, it.head)).collect()
    };
    assert_eq!(heads(&judged), [(8, head(9))]);
    let rest = || {
        vec![
            version("a", 7, false, Some(1)),
            version("b", 5, true, Some(1)),
            version("b", 4, false, Some(1)),
        ]
    };
    let later = judge(page(rest(), None), judged.next.as_ref(), &run);
    assert_eq!(heads(&later), [(7, head(9)), (4, head(5))]);
    // Of versions that are cut off from their head, the first one stands for the head.
    let cut_off = vec![version("a", 7, false, Some(1)), version("a", 6, false, Some(1))];
    assert_eq!(heads(&judge(page(cut_off, None), None, &run)), [(6, head(7))]);
}

#[test]
fn of_what_is_cut_off_from_its_newer_ones_nothing_is_known() {
    let rules = rules(None, Some(Noncurrent { days: 1, newer: None }));
    let rest = || vec![version("a", 7, false, Some(1)), version("a", 6, false, Some(1))];
    let after = ExpiryCursor { key: "a".into(), within: None };
    let (candidate, _) = judged(&rules, page(rest(), None), Some(&after), 5000);
    assert_eq!(candidate, [("a".into(), 6, LifecycleAction::Remove)]);
}

#[test]
fn a_marker_is_alone_only_where_nothing_follows() {
    let rules = rules(Some(Expiration::Marker(true)), None);
    let two = || vec![version("a", 1, true, None), version("b", 1, true, None)];
    let gone = |key: &str| (key.to_owned(), 1, LifecycleAction::Remove);
    assert_eq!(judged(&rules, page(two(), None), None, 9).0, [gone("a"), gone("b")]);
    // More versions of the last key may follow: it is left to the next page.
    let (candidate, next) = judged(&rules, page(two(), Some(("b", Some(1)))), None, 9);
    assert_eq!(candidate, [gone("a")]);
    assert_eq!(next, Some(ExpiryCursor { key: "a".into(), within: None }));
    // A listing that pauses does so after a whole key.
    let (candidate, next) = judged(&rules, page(two(), Some(("c", None))), None, 9);
    assert_eq!(candidate, [gone("a"), gone("b")]);
    assert_eq!(next, Some(ExpiryCursor { key: "c".into(), within: None }));
    let behind = vec![version("a", 2, true, None), version("a", 1, false, Some(1))];
    assert_eq!(judged(&rules, page(behind, None), None, 9).0, []);
}

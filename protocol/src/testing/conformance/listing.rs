//! Checks of listings: order, shards, prefixes, starts, pages, delimiters.

use crate::term::Term;
use bytes::Bytes;

use super::{in_extents, object, plain, register, stamp, tombstone};
use crate::backend::{
    Backend, BackendExt, Detail, ListReply, ListRequest, ListStart, RowKinds, RowSelection,
};
use crate::entry::{DeleteMarker, Value};
use crate::extent::ExtentRef;
use crate::id::{BucketId, DeviceId, ExtentId, Shard, UploadId};
use crate::key::{RegisterKey, RegisterKind};

const NAMES: [&str; 10] =
    ["a", "a/", "a/1", "a/2", "a/b/3", "a0", "b//c", "b/x", "\u{e9}", "\u{1f980}"];

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    for (tick, name) in (1..).zip(NAMES) {
        backend.write(device, plain(&register(bucket, name), stamp(tick))).await.unwrap();
    }
    let upload = RegisterKey::upload(bucket, 4, "a/1", UploadId::random());
    backend.write(device, plain(&upload, stamp(1))).await.unwrap();
    let promised_only = register(bucket, "a/never written");
    backend.promise(device, &promised_only, stamp(1), Term::ANY).await.unwrap();

    names_come_in_the_order_of_their_bytes(backend, device, bucket).await;
    prefixes_and_beginnings_bound_a_listing(backend, device, bucket).await;
    pages_follow_one_another(backend, device, bucket).await;
    only_requested_shards_are_listed(backend, device, bucket).await;
    folding_keeps_the_first_live_name(backend, device, bucket).await;
    rows_are_selected(backend, device).await;
}

pub(super) fn request(bucket: BucketId, prefix: &'static str, start: ListStart) -> ListRequest {
    ListRequest {
        bucket,
        shards: (0..4).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::from(prefix),
        start,
        limit: 100,
        fold: None,
        term: Term::ANY,
    }
}

fn names(reply: &ListReply) -> Vec<&str> {
    let names = reply.entries.iter().map(|(name, _)| std::str::from_utf8(name).unwrap());
    names.collect()
}

async fn names_come_in_the_order_of_their_bytes(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
) {
    let reply = backend.list(device, &request(bucket, "", ListStart::First)).await.unwrap();
    assert_eq!(names(&reply), NAMES, "entries of other kinds and bare promises don't count");
    assert!(!reply.truncated);
    for (name, entry) in reply.entries {
        let key = register(bucket, std::str::from_utf8(&name).unwrap());
        let view =
            backend.read(device, &key, crate::backend::Want::Entry, Term::ANY).await.unwrap();
        assert_eq!(view.entry, Some(entry), "a listing shows what a read does");
    }
}

async fn prefixes_and_beginnings_bound_a_listing(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
) {
    let cases: [(&str, ListStart, &[&str]); 7] = [
        ("a/", ListStart::First, &["a/", "a/1", "a/2", "a/b/3"]),
        ("a/", ListStart::At("a/1".into()), &["a/1", "a/2", "a/b/3"]),
        ("a/", ListStart::After("a/1".into()), &["a/2", "a/b/3"]),
        ("a/", ListStart::After("A".into()), &["a/", "a/1", "a/2", "a/b/3"]),
        ("a/", ListStart::At("b".into()), &[]),
        ("", ListStart::After("b/x".into()), &["\u{e9}", "\u{1f980}"]),
        ("zz", ListStart::First, &[]),
    ];
    for (prefix, start, expected) in cases {
        let request = request(bucket, prefix, start);
        let reply = backend.list(device, &request).await.unwrap();
        assert_eq!(names(&reply), expected, "{request:?}");
    }
}

async fn pages_follow_one_another(backend: &dyn Backend, device: DeviceId, bucket: BucketId) {
    for limit in 1..=NAMES.len() + 1 {
        let mut seen = Vec::new();
        let mut request = ListRequest { limit, ..request(bucket, "", ListStart::First) };
        loop {
            let reply = backend.list(device, &request).await.unwrap();
            assert!(reply.entries.len() <= limit);
            seen.extend(names(&reply).into_iter().map(str::to_owned));
            if !reply.truncated {
                break;
            }
            let (last, _) = reply.entries.last().expect("a truncated page holds something");
            request.start = ListStart::After(last.clone());
        }
        assert_eq!(seen, NAMES, "in pages of {limit}");
    }
}

async fn only_requested_shards_are_listed(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
) {
    let mut seen = Vec::new();
    for shard in (0..4).map(Shard) {
        let request = ListRequest { shards: vec![shard], ..request(bucket, "", ListStart::First) };
        let reply = backend.list(device, &request).await.unwrap();
        for name in names(&reply) {
            assert_eq!(register(bucket, name).shard, shard);
            seen.push(name.to_owned());
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, NAMES);
}

async fn folding_keeps_the_first_live_name(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
) {
    backend.write(device, tombstone(&register(bucket, "a/"), stamp(100))).await.unwrap();
    let mut folded = request(bucket, "", ListStart::First);
    folded.fold = Some("/".into());
    let reply = backend.list(device, &folded).await.unwrap();
    let expected = ["a", "a/", "a/1", "a0", "b//c", "\u{e9}", "\u{1f980}"];
    assert_eq!(names(&reply), expected, "a tombstone folds nothing");
    folded.prefix = "a/".into();
    let reply = backend.list(device, &folded).await.unwrap();
    assert_eq!(names(&reply), ["a/", "a/1", "a/2", "a/b/3"], "the prefix itself doesn't fold");
    folded.prefix = Bytes::new();
    folded.fold = Some("//".into());
    let reply = backend.list(device, &folded).await.unwrap();
    assert_eq!(names(&reply), NAMES, "a delimiter may be longer than a character");
    folded.fold = Some("/".into());
    folded.limit = 3;
    let reply = backend.list(device, &folded).await.unwrap();
    assert_eq!(names(&reply), ["a", "a/", "a/1"]);
    assert!(reply.truncated, "what is folded away doesn't fill a page");
}

async fn rows_are_selected(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let extent = |at| ExtentRef { id: ExtentId([at; 16]), length: 9, blake3: [at; 32] };
    let mut long = plain(&register(bucket, "long"), stamp(1));
    long.entry.value = object(in_extents((0..100).map(extent).collect()));
    let gone = tombstone(&register(bucket, "gone/1"), stamp(1));
    let present = plain(&register(bucket, "gone/2"), stamp(1));
    let mut marked = plain(&register(bucket, "marked"), stamp(1));
    let marker = DeleteMarker { modified_ms: 7, version: None };
    marked.entry.value = Value::DeleteMarker(Box::new(marker));
    for write in [&long, &gone, &present, &marked] {
        backend.write(device, write.clone()).await.unwrap();
    }
    let mut list = request(bucket, "", ListStart::First);
    let everything = backend.list_rows(device, &list, RowSelection::EVERYTHING).await.unwrap();
    assert_eq!(everything, backend.list(device, &list).await.unwrap());
    let live = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
    let page = backend.list_rows(device, &list, live).await.unwrap();
    assert_eq!(names(&page), ["gone/2", "long", "marked"]);
    assert_eq!(page.entries[1].1, long.entry.into_summary());
    let objects = RowSelection { kinds: RowKinds::Objects, ..live };
    let page = backend.list_rows(device, &list, objects).await.unwrap();
    assert_eq!(names(&page), ["gone/2", "long"]);
    list.fold = Some("/".into());
    list.limit = 1;
    let page = backend.list_rows(device, &list, live).await.unwrap();
    assert_eq!((names(&page), page.truncated), (vec!["gone/2"], true));
    let whole = RowSelection { detail: Detail::Whole, kinds: RowKinds::All };
    let page = backend.list_rows(device, &list, whole).await.unwrap();
    assert_eq!((names(&page), page.truncated), (vec!["gone/1"], true), "a tombstone is a row");
}

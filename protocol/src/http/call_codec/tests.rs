//! Bytes of every call and reply, compared with postcard of their tuples.

mod golden;

use std::borrow::Cow;

use super::*;
use crate::backend::{
    AgedWalk, AuditResult, BucketFence, ClaimPart, ClaimSource, ClaimState, ClaimsReply,
    ClaimsRequest, DeleteCondition, Detail, DeviceClaims, DeviceCondition, EntryWrite, GarbageId,
    HeldBuckets, ListReply, ListStart, OldKind, OldList, OldPage, OldPlace, OldRegister,
    OwnerClaim, Presence, RegisterDrop, RegisterView, ReleaseCondition, RingEpoch, RowKinds,
    RowSelection, Sought, StrayCondition, Walk, Want, WriteReply,
};
use crate::entry::{Entry, Value};
use crate::extent::ExtentRef;
use crate::id::{BucketId, DeviceId, DeviceIdentity, ExtentId, PolicyId, Shard, UploadId, WriteId};
use crate::key::{RegisterKey, RegisterKind};
use crate::register::WriteMode;
use crate::run_usage::{Run, RunUsage};
use crate::stamp::{Stamp, WriterId};
use crate::term::Term;
use crate::tree::{BinKey, Span};

fn key() -> RegisterKey {
    let (bucket, name) = (BucketId([0x11; 16]), Bytes::from_static(b"cat"));
    RegisterKey { bucket, shard: Shard(5), kind: RegisterKind::Object, name }
}

fn stamp() -> Stamp {
    Stamp { time: 70_000, writer: WriterId(300) }
}

fn write() -> EntryWrite {
    EntryWrite {
        key: key(),
        entry: Entry { order: stamp(), write_id: WriteId([2; 16]), value: Value::Tombstone },
        inline: Some(Bytes::from_static(b"bytes")),
        mode: WriteMode::Accept,
        generation: 9,
        commit_by_ms: 1_000_000,
        keep_body: true,
        term: Term(14),
    }
}

fn request(limit: usize) -> ListRequest {
    ListRequest {
        bucket: BucketId([0x11; 16]),
        shards: vec![Shard(1), Shard(300)],
        kind: RegisterKind::Version,
        prefix: Bytes::from_static(b"c"),
        start: ListStart::After(Bytes::from_static(b"cat")),
        limit,
        fold: Some(Bytes::from_static(b"/")),
        term: Term(14),
    }
}

fn bytes(arguments: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(arguments).unwrap()
}

/// A call of every kind, and the bytes of its arguments.
fn calls() -> Vec<(Call<'static>, Vec<u8>)> {
    let quarantine = vec![call_of_the_quarantine()];
    let (conditions, fences) = (calls_with_conditions(), calls_of_fences());
    let registers = calls_of_registers_and_extents();
    let deletes = vec![call_of_a_delete(), call_of_arrivals()];
    [registers, calls_of_kept_rows(), conditions, quarantine, fences, deletes].concat()
}

fn calls_of_kept_rows() -> Vec<(Call<'static>, Vec<u8>)> {
    let (stamp, term, limit, bucket) = (stamp(), Term(14), 1000usize, BucketId([1; 16]));
    let runs = vec![run(), run()];
    let old = OldList { kind: OldKind::Promises, before: stamp };
    vec![
        (Call::Usage { runs: runs.clone().into(), term }, bytes(&(&runs, term))),
        (
            Call::OldRegisters { list: old, after: Some(place()), limit },
            bytes(&(old, Some(place()), limit)),
        ),
        (
            Call::HeldBuckets { before: stamp, after: Some(bucket), limit },
            bytes(&(stamp, Some(bucket), limit)),
        ),
    ]
}

fn calls_with_conditions() -> Vec<(Call<'static>, Vec<u8>)> {
    let condition = DeviceCondition { identity: DeviceIdentity([5; 16]), not_after_ms: 2_000_000 };
    let rings = vec![RingEpoch { policy: PolicyId(3), epoch: 300, hash: [5; 8] }];
    let release = ReleaseCondition { not_after_ms: 2_000_000, rings: rings.clone() };
    let (ids, copies) = (vec![ExtentId([3; 16])], vec![copy()]);
    let (floor, voting, change) = (stamp(), true, 12u64);
    let strays = StrayCondition { term: Term(300), not_after_ms: 2_000_000 };
    let drops = vec![RegisterDrop { key: key(), up_to: floor, collectable: false }];
    vec![
        (Call::RaiseFloorOf { condition, floor }, bytes(&(condition, floor))),
        (Call::SetVotingOf { condition, voting }, bytes(&(condition, voting))),
        (Call::SetJoinedOf { condition, change }, bytes(&(condition, change))),
        (Call::SetFencedOf(condition), bytes(&condition)),
        (
            Call::ReleaseCopies {
                extents: copies.clone().into(),
                condition: Cow::Owned(release.clone()),
            },
            bytes(&(&copies, &release)),
        ),
        (
            Call::DropStrays { drops: drops.clone().into(), condition: strays },
            bytes(&(&drops, strays)),
        ),
        (
            Call::PresenceBy { ids: ids.clone().into(), rings: rings.clone().into() },
            bytes(&(&ids, &rings)),
        ),
    ]
}

fn calls_of_fences() -> Vec<(Call<'static>, Vec<u8>)> {
    let (after, limit) = (Some(BucketId([1; 16])), 1000usize);
    let buckets = vec![BucketId([1; 16]), BucketId([2; 16])];
    vec![
        (Call::FencesAfter { after, limit }, bytes(&(after, limit))),
        (Call::FencesOf(buckets.clone().into()), bytes(&buckets)),
    ]
}

fn call_of_a_delete() -> (Call<'static>, Vec<u8>) {
    let ids = vec![ExtentId([3; 16]), ExtentId([4; 16])];
    let condition = DeleteCondition { not_after_ms: 2_000_000 };
    (Call::DeleteUnneeded { ids: ids.clone().into(), condition }, bytes(&(&ids, condition)))
}

fn call_of_arrivals() -> (Call<'static>, Vec<u8>) {
    let (after, limit) = (Some(300u64), 1000usize);
    (Call::HintArrivals { after, limit }, bytes(&(after, limit)))
}

fn call_of_the_quarantine() -> (Call<'static>, Vec<u8>) {
    let limit = 1000usize;
    let arguments = bytes(&(Some("index-7"), limit));
    (Call::Quarantine { after: Some("index-7".into()), limit }, arguments)
}

fn copy() -> ExtentRef {
    ExtentRef { id: ExtentId([3; 16]), length: 70_000, blake3: [4; 32] }
}

fn calls_of_registers_and_extents() -> Vec<(Call<'static>, Vec<u8>)> {
    let [register, other] = [key(), RegisterKey { kind: RegisterKind::Part, ..key() }];
    let owned = || Cow::Owned(key());
    let (stamp, term, change) = (stamp(), Term(14), 12u64);
    let (id, ids) = (ExtentId([3; 16]), vec![ExtentId([3; 16]), ExtentId([4; 16])]);
    let fence = BucketFence { bucket: BucketId([1; 16]), generation: 300, open: true };
    let garbage = vec![GarbageId(Bytes::from_static(b"g"))];
    let (span, bin) = (Span { first: 7, last: u64::MAX }, BinKey::of(&key()));
    let walk = Walk { span, bin: Some(bin), want: Want::EntryAndInline };
    let (spans, keys) = (vec![span; 3], vec![register.clone(), other]);
    let marks = vec![(key(), stamp)];
    let drops = vec![RegisterDrop { key: key(), up_to: stamp, collectable: true }];
    let (after, limit) = (Some(key()), 1000usize);
    let rows = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
    let aged = AgedWalk { tombstones_before: stamp, buckets_before: stamp, thorough: true };
    vec![
        (Call::Read { key: owned(), want: walk.want, term }, bytes(&(key(), walk.want, term))),
        (Call::Write(write()), bytes(&write())),
        (Call::Promise { key: owned(), ballot: stamp, term }, bytes(&(key(), stamp, term))),
        (Call::List(Cow::Owned(request(9))), bytes(&request(9))),
        (Call::ListRows { request: Cow::Owned(request(9)), rows }, bytes(&(request(9), rows))),
        (Call::Fence(fence), bytes(&fence)),
        (Call::PurgeBucket(fence.bucket), bytes(&fence.bucket)),
        (Call::StatExtent(id), bytes(&id)),
        (Call::DeleteExtents(ids.clone().into()), bytes(&ids)),
        (Call::ListExtents { after: Some(id), limit }, bytes(&(Some(id), limit))),
        (Call::Garbage { before_ms: 5000, limit }, bytes(&(5000u64, limit))),
        (Call::ForgetGarbage(garbage.clone().into()), bytes(&garbage)),
        (Call::KeepHint(write()), bytes(&write())),
        (Call::ReadHint { key: owned(), want: Want::Entry }, bytes(&(key(), Want::Entry))),
        (Call::ListHints(Cow::Owned(request(0))), bytes(&request(0))),
        (Call::Hints { after: Some(owned()), limit }, bytes(&(&after, limit))),
        (Call::ForgetHint { key: owned(), order: stamp }, bytes(&(key(), stamp))),
        (Call::Registers { after: None, limit }, bytes(&(None::<RegisterKey>, limit))),
        (Call::Fences, Vec::new()),
        (Call::RaiseFloor(stamp), bytes(&stamp)),
        (Call::SetVoting(true), vec![1]),
        (Call::ReleaseExtents(ids.clone().into()), bytes(&ids)),
        (Call::Presence(ids.clone().into()), bytes(&ids)),
        (
            Call::AuditExtents { after: None, bytes_max: 1 << 40 },
            bytes(&(None::<ExtentId>, 1u64 << 40)),
        ),
        (Call::Sums(spans.clone().into()), bytes(&spans)),
        (Call::Bins { span, after: Some(bin), limit }, bytes(&(span, Some(bin), limit))),
        (Call::Walk { walk, after: Some(owned()), limit }, bytes(&(walk, &after, limit))),
        (Call::Holdings(keys.clone().into()), bytes(&keys)),
        (Call::MarkCollectable(marks.clone().into()), bytes(&marks)),
        (Call::DropRegisters(drops.clone().into()), bytes(&drops)),
        (Call::AuditRegisters(Some(bin)), bytes(&Some(bin))),
        (Call::RaiseTerm(term), bytes(&term)),
        (Call::SetJoined(change), bytes(&change)),
        (Call::Claims(Cow::Owned(claims(1))), bytes(&claims(1))),
        (Call::SeekExtents(ids.clone().into()), bytes(&ids)),
        (
            Call::GarbageAfter { after: Some(garbage[0].clone()), before_ms: 5000, limit },
            bytes(&(Some(&garbage[0]), 5000u64, limit)),
        ),
        (Call::Aged { walk: aged, after: Some(owned()), limit }, bytes(&(aged, &after, limit))),
        (
            Call::ExtentSums { policy: Some(PolicyId(3)), spans: spans.clone().into() },
            bytes(&(Some(PolicyId(3)), &spans)),
        ),
    ]
}

fn run() -> Run {
    Run { bucket: BucketId([0x11; 16]), shard: Shard(300) }
}

fn place() -> OldPlace {
    OldPlace { at: stamp(), key: key() }
}

/// A question with this number of claims for each of two devices.
fn claims(count: usize) -> ClaimsRequest {
    let claim = OwnerClaim {
        bucket: BucketId([0x11; 16]),
        shard: Shard(5),
        key: "cat".into(),
        upload: Some(UploadId([8; 16])),
    };
    let claims = vec![claim; count];
    let of = |device| DeviceClaims { device: DeviceId(device), claims: claims.clone() };
    let (source, part) = (ClaimSource::Hints, ClaimPart::Object);
    ClaimsRequest { source, part, term: Term(14), devices: vec![of(1), of(2)] }
}

#[test]
fn calls_travel_as_the_tuples_of_their_arguments() {
    let kinds: Vec<_> = calls().iter().map(|(call, _)| call.kind()).collect();
    assert_eq!(kinds, CallKind::CALLS, "each kind once");
    for (call, arguments) in calls() {
        assert_eq!(encode_call(&call).unwrap(), arguments, "{:?}", call.kind());
        assert_eq!(decode_call(call.kind(), &arguments).unwrap(), call);
        assert_eq!(call.clone().into_owned(), call);
    }
}

#[test]
fn a_read_has_the_bytes_of_the_document() {
    let call = Call::Read { key: Cow::Owned(key()), want: Want::EntryAndInline, term: Term(14) };
    let expected = format!("{}050003636174010e", "11".repeat(16));
    assert_eq!(hex::encode(encode_call(&call).unwrap()), expected);
}

#[test]
fn arguments_of_later_releases_pass_and_missing_ones_are_errors() {
    for (call, arguments) in calls() {
        let longer = [&arguments[..], &[0]].concat();
        assert_eq!(decode_call(call.kind(), &longer).unwrap(), call);
        if let Some((_, shorter)) = arguments.split_last() {
            let error = decode_call(call.kind(), shorter).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
        }
    }
    assert!(decode_call(CallKind::ReadExtent, &[]).is_err(), "a stream is no call");
}

#[test]
fn pages_and_lists_of_shards_are_bounded() {
    let hints = Call::Hints { after: None, limit: usize::MAX };
    let bounded = decode_call(CallKind::Hints, &encode_call(&hints).unwrap()).unwrap();
    assert_eq!(bounded, Call::Hints { after: None, limit: PAGE_ITEMS_MAX });
    let list = Call::List(Cow::Owned(request(usize::MAX)));
    let bounded = decode_call(CallKind::List, &encode_call(&list).unwrap()).unwrap();
    assert_eq!(bounded, Call::List(Cow::Owned(request(PAGE_ITEMS_MAX))));
    let rows = RowSelection::EVERYTHING;
    let list = Call::ListRows { request: Cow::Owned(request(usize::MAX)), rows };
    let bounded = decode_call(CallKind::ListRows, &encode_call(&list).unwrap()).unwrap();
    let request_of = |limit| Cow::Owned(request(limit));
    assert_eq!(bounded, Call::ListRows { request: request_of(PAGE_ITEMS_MAX), rows });
    let shards = vec![Shard(0); usize::from(INDEX_SHARDS_MAX) + 1];
    let wide = Call::ListHints(Cow::Owned(ListRequest { shards, ..request(1) }));
    let refused = decode_call(CallKind::ListHints, &encode_call(&wide).unwrap()).unwrap_err();
    assert_eq!(refused.to_string(), "the bucket has fewer shards");
    let asked = |count| Call::Claims(Cow::Owned(claims(count)));
    let decoded = |count| decode_call(CallKind::Claims, &encode_call(&asked(count)).unwrap());
    assert_eq!(decoded(CLAIMS_MAX / 2).unwrap(), asked(CLAIMS_MAX / 2));
    let refused = decoded(CLAIMS_MAX / 2 + 1).unwrap_err();
    assert_eq!(refused.to_string(), "the request has too many claims");
    let usage = |count| Call::Usage { runs: vec![run(); count].into(), term: Term(14) };
    let decoded = |count| decode_call(CallKind::Usage, &encode_call(&usage(count)).unwrap());
    assert_eq!(decoded(IDS_MAX).unwrap(), usage(IDS_MAX));
    let refused = decoded(IDS_MAX + 1).unwrap_err();
    assert_eq!(refused.to_string(), "the request has too many runs");
}

#[test]
fn pages_of_fences_and_lists_of_their_buckets_are_bounded() {
    let page = |limit| Call::FencesAfter { after: None, limit };
    let decoded = |call: Call<'_>| decode_call(call.kind(), &encode_call(&call).unwrap());
    assert_eq!(decoded(page(usize::MAX)).unwrap(), page(FENCES_MAX));
    let named = |count| Call::FencesOf(vec![BucketId([1; 16]); count].into());
    assert_eq!(decoded(named(IDS_MAX)).unwrap(), named(IDS_MAX));
    let refused = decoded(named(IDS_MAX + 1)).unwrap_err();
    assert_eq!(refused.to_string(), "the request has too many buckets");
    // The longest page fits into a reply.
    let fences = vec![BucketFence::of_deleted(BucketId([0xff; 16])); FENCES_MAX];
    let reply = encode_reply(&Reply::Fences(fences)).unwrap();
    assert!(reply.len() < 2 * 1024 * 1024, "{} bytes", reply.len());
}

#[test]
fn replies_travel_without_their_variant() {
    let view = RegisterView { promise: stamp(), entry: Some(write().entry), inline: None };
    let audit = AuditResult { items: 1, bytes: 2, corrupt: vec![ExtentId([3; 16])], next: None };
    let page = vec![(key(), view.clone())];
    let mut list = ListReply::default();
    list.end_at(Bytes::from_static(b"cat"));
    let states = vec![ClaimsReply::Answered(vec![ClaimState::too_long()]), ClaimsReply::Silent];
    let usage = vec![RunUsage { objects: 1, bytes: 300, index: -2, ..RunUsage::default() }];
    let old = OldPage {
        registers: vec![OldRegister { place: place(), collectable: true }],
        next: Some(place()),
    };
    let held = HeldBuckets { buckets: Vec::new(), next: Some(BucketId([1; 16])) };
    let replies = [
        (CallKind::Usage, usage.clone().into(), bytes(&usage)),
        (CallKind::OldRegisters, old.clone().into(), bytes(&old)),
        (CallKind::HeldBuckets, held.clone().into(), bytes(&held)),
        (CallKind::Read, Reply::View(view.clone()), bytes(&view)),
        (CallKind::Write, WriteReply::Behind(stamp()).into(), bytes(&WriteReply::Behind(stamp()))),
        (CallKind::Walk, page.clone().into(), bytes(&page)),
        (CallKind::ListRows, list.clone().into(), bytes(&list)),
        (CallKind::Presence, vec![Presence::Deleted].into(), vec![1, 2]),
        (CallKind::AuditExtents, audit.clone().into(), bytes(&audit)),
        (CallKind::Fence, Reply::Done(()), Vec::new()),
        (CallKind::SeekExtents, vec![Sought::Deleted, Sought::Missing].into(), vec![2, 1, 0]),
        (CallKind::Claims, states.clone().into(), bytes(&states)),
    ];
    for (kind, reply, body) in replies {
        assert_eq!(encode_reply(&reply).unwrap(), body);
        assert_eq!(decode_reply(kind, &body.into()).unwrap(), reply);
    }
}

#[test]
fn the_inline_bytes_of_a_view_lie_in_its_reply() {
    for inline in [None, Some(Bytes::new()), Some(Bytes::from(vec![7; 4096]))] {
        let view = RegisterView { promise: stamp(), entry: Some(write().entry), inline };
        let body = encode_reply(&Reply::View(view.clone())).unwrap();
        for kind in [CallKind::Read, CallKind::ReadHint] {
            assert_eq!(decode_reply(kind, &body).unwrap(), Reply::View(view.clone()));
        }
        assert_eq!(decode::<RegisterView>(&body).unwrap(), view, "as other replies decode it");
        if let Some(bytes) = decode_view(&body).unwrap().inline.filter(|bytes| !bytes.is_empty()) {
            assert!(body.as_ptr_range().contains(&bytes.as_ptr()), "they were copied");
        }
        for length in 0..body.len() {
            assert!(decode_view(&body.slice(..length)).is_err(), "{length} bytes");
        }
    }
}

#[test]
fn paths_name_calls_and_no_streams() {
    for kind in CallKind::CALLS {
        let name: PathSegment<'_> = kind.name().into_deserializer();
        assert_eq!(CallKind::deserialize(name).unwrap(), *kind);
    }
    let stream: PathSegment<'_> = CallKind::ReadExtent.name().into_deserializer();
    assert!(CallKind::deserialize(stream).is_err());
}

type PathSegment<'a> = serde::de::value::StrDeserializer<'a, serde::de::value::Error>;

//! Tests of the index through its own calls.

use martlet_protocol::Term;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{
    BucketFence, EntryWrite, ListReply, ListRequest, ListStart, PromiseReply, Want, WriteReply,
};
use martlet_protocol::entry::{Attributes, Body, ETag, Entry, Manifest, Object, Value};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::register::WriteMode;
use martlet_protocol::stamp::WriterId;
use martlet_protocol::{
    BucketId, ErrorKind, ExtentId, ManualClock, PolicyId, RegisterKey, RegisterKind, Shard, Stamp,
    UploadId, WriteId,
};
use proptest::prelude::*;

use super::*;
use crate::device::Reserve;
use crate::device::pulse::STALL_AFTER;

mod audit;
mod background;
mod damage;
mod hints;
mod kept_rows;
mod log;
mod lookups;
mod measure;
mod promises;
mod purge;
mod room;
mod seeks;
mod selection;
mod states;
mod sums;
mod terms;
mod voting;

const NOW_MS: u64 = 1_700_000_000_000;
const BUCKET: BucketId = BucketId([5; 16]);

struct IndexFixture {
    index: Index,
    clock: Arc<ManualClock>,
    counters: Arc<IndexCounters>,
}

/// Returns the surroundings of a standalone index.
fn surroundings(folder: &Path) -> IndexContext {
    IndexContext {
        name: "test".into(),
        device: Uuid([7; 16]),
        votes: true,
        confirmed: true,
        peers: false,
        secret: TreeKey::default(),
        caches: Caches::default(),
        ballast: Arc::new(Ballast::open(folder, Reserve::Bytes(0)).unwrap()),
        clock: Arc::new(ManualClock::at(NOW_MS)),
        counters: Arc::default(),
        threads: Arc::new(Pool::new("test".into(), STALL_AFTER)),
    }
}

fn bed(folder: &Path) -> IndexFixture {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    bed_with(folder, IndexContext { clock: clock.clone(), ..surroundings(folder) }, clock)
}

fn bed_with(folder: &Path, with: IndexContext, clock: Arc<ManualClock>) -> IndexFixture {
    let counters = with.counters.clone();
    IndexFixture { index: Index::open(&folder.join("index"), with).unwrap(), clock, counters }
}

fn stamp(ticks: u64) -> Stamp {
    Stamp { time: (NOW_MS << 16) + ticks, writer: WriterId(1) }
}

fn object(size: u64, body: Body) -> Value {
    Value::Object(Box::new(Object {
        size,
        etag: ETag::Md5([7; 16]),
        modified_ms: NOW_MS,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body,
        version: None,
    }))
}

fn extents(byte: u8) -> Body {
    let extent = ExtentRef { id: ExtentId([byte; 16]), length: 9, blake3: [byte; 32] };
    Body::Extents(Manifest {
        policy: PolicyId(0),
        extents: vec![extent],
        parts: vec![],
        part_checksums: vec![],
    })
}

fn write(key: &RegisterKey, order: Stamp, value: Value) -> EntryWrite {
    EntryWrite {
        key: key.clone(),
        entry: Entry { order, write_id: WriteId::random(), value },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

fn inline(key: &RegisterKey, order: Stamp, bytes: &[u8]) -> EntryWrite {
    let body = Body::Inline { crc32c: rows::crc32c(bytes) };
    let mut write = write(key, order, object(bytes.len() as u64, body));
    write.inline = Some(Bytes::copy_from_slice(bytes));
    write
}

fn key(name: &str) -> RegisterKey {
    RegisterKey::object(BUCKET, 4, name)
}

#[tokio::test]
async fn a_reopened_index_has_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let big = vec![3; 5000];
    {
        let bed = bed(folder.path());
        bed.index.write(inline(&key("a"), stamp(1), &big)).await.unwrap();
        bed.index.promise(&key("b"), stamp(9), Term::ANY).await.unwrap();
        let fence = BucketFence { bucket: BUCKET, generation: 4, open: true };
        bed.index.fence(fence).await.unwrap();
    }
    let bed = bed(folder.path());
    let view = bed.index.read(&key("a"), Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!(view.inline.unwrap(), big);
    assert_eq!(bed.index.read(&key("b"), Want::Entry, Term::ANY).await.unwrap().promise, stamp(9));
    let late = write(&key("c"), stamp(1), Value::Tombstone);
    assert_eq!(bed.index.write(late).await.unwrap(), WriteReply::Fenced);
}

#[tokio::test]
async fn inline_bytes_are_found_in_blob_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = vec![3; 5000];
    {
        let bed = bed(folder.path());
        bed.index.write(inline(&key("a"), stamp(1), &bytes)).await.unwrap();
        bed.index.close().unwrap();
    }
    let bed = bed(folder.path());
    for _ in 0..2 {
        let view = bed.index.read(&key("a"), Want::EntryAndInline, Term::ANY).await.unwrap();
        assert_eq!(view.inline.unwrap(), bytes);
    }
    let figures = bed.counters.snapshot();
    assert_eq!(
        (figures.reads, figures.blocking_reads),
        (2, 1),
        "the second is answered from memory"
    );
}

#[tokio::test]
async fn inline_bytes_that_differ_from_their_checksum_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let mut torn = inline(&key("a"), stamp(1), b"hello");
    torn.inline = Some(Bytes::from_static(b"hellO"));
    assert_eq!(bed.index.write(torn).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let whole = inline(&key("a"), stamp(1), b"hello");
    let id = whole.entry.write_id;
    bed.index.write(whole).await.unwrap();
    // Simulates silent corruption.
    let database = &bed.index.reader.database;
    let mut batch = rocksdb::WriteBatch::default();
    let row = rows::inline_row(id, b"hellO");
    batch.put_cf(database.family(Family::Inline), key("a").encode(), row);
    database.write_synced(batch).unwrap();
    let error = bed.index.read(&key("a"), Want::EntryAndInline, Term::ANY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(bed.counters.snapshot().corrupt_reads, 1);
}

#[tokio::test]
async fn an_inline_entry_needs_its_bytes_unless_they_are_held() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let first = inline(&key("a"), stamp(1), b"hello");
    let mut bare = first.clone();
    bare.inline = None;
    assert_eq!(bed.index.write(bare.clone()).await.unwrap_err().kind(), ErrorKind::Invalid);
    bed.index.write(first).await.unwrap();
    bare.entry.order = stamp(2);
    bare.mode = WriteMode::Accept;
    assert_eq!(bed.index.write(bare).await.unwrap(), WriteReply::Stored);
    let view = bed.index.read(&key("a"), Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!((view.entry.unwrap().order, &view.inline.unwrap()[..]), (stamp(2), &b"hello"[..]));
}

#[tokio::test]
async fn stamps_are_judged_by_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let at = |ms: u64| Stamp { time: ms << 16, writer: WriterId(1) };
    let tombstone = |order| write(&key("a"), order, Value::Tombstone);
    let ahead = NOW_MS + CLOCK_SKEW_MS_MAX;
    assert_eq!(bed.index.write(tombstone(at(ahead + 1))).await.unwrap(), WriteReply::OutOfTime);
    assert!(bed.index.promise(&key("a"), at(ahead + 1), Term::ANY).await.is_err());
    assert_eq!(bed.index.write(tombstone(at(ahead))).await.unwrap(), WriteReply::Stored);
    // The clock falls back: a writer that follows the held stamp is not judged for it.
    bed.clock.set_ms(NOW_MS - 1000);
    let next = Stamp { time: (ahead << 16) + 1, writer: WriterId(1) };
    assert_eq!(bed.index.write(tombstone(next)).await.unwrap(), WriteReply::Stored);
    bed.clock.set_ms(NOW_MS + FIRST_HAND_AGE_MS_MAX + 1);
    let old = |mode| EntryWrite { mode, ..write(&key("b"), at(NOW_MS), Value::Tombstone) };
    assert_eq!(bed.index.write(old(WriteMode::Fresh)).await.unwrap(), WriteReply::OutOfTime);
    assert_eq!(bed.index.write(old(WriteMode::Accept)).await.unwrap(), WriteReply::OutOfTime);
    match bed.index.promise(&key("b"), at(NOW_MS), Term::ANY).await.unwrap() {
        PromiseReply::Behind(floor) => assert!(floor > at(NOW_MS)),
        PromiseReply::Promised(_) => panic!("an old ballot was promised"),
    }
    assert_eq!(bed.index.write(old(WriteMode::Settled)).await.unwrap(), WriteReply::Stored);
    let mut late = tombstone(at(NOW_MS + FIRST_HAND_AGE_MS_MAX));
    late.commit_by_ms = NOW_MS;
    assert_eq!(bed.index.write(late).await.unwrap(), WriteReply::OutOfTime);
}

#[tokio::test]
async fn a_superseded_entry_yields_its_extents_once() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let garbage = async |before_ms| bed.index.garbage(before_ms, 10).await.unwrap();
    bed.index.write(write(&key("a"), stamp(2), object(9, extents(1)))).await.unwrap();
    assert!(garbage(NOW_MS).await.is_empty());
    // A settled write below the held entry was overwritten at once: no entry owns its extents.
    let mut settled = write(&key("a"), stamp(1), object(9, extents(2)));
    settled.mode = WriteMode::Settled;
    assert_eq!(bed.index.write(settled).await.unwrap(), WriteReply::Superseded);
    bed.clock.advance_ms(1);
    bed.index.write(write(&key("a"), stamp(3), Value::Tombstone)).await.unwrap();
    let found = garbage(NOW_MS + 1).await;
    let bodies: Vec<&Body> = found.iter().map(|garbage| &garbage.body).collect();
    assert_eq!(bodies, [&extents(2), &extents(1)]);
    assert_eq!(garbage(NOW_MS).await.len(), 1, "the other came later");
    bed.index.forget_garbage(&[found[0].id.clone()]).await.unwrap();
    assert_eq!(garbage(u64::MAX).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_racers_exactly_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let index = Arc::new(bed(folder.path()).index);
    let racers = (0..50u64).map(|racer| {
        let index = index.clone();
        tokio::spawn(async move {
            let mut ballot = stamp(racer + 1);
            loop {
                let mut create = inline(&key("race"), ballot, &racer.to_be_bytes());
                create.mode = WriteMode::Accept;
                match index.promise(&key("race"), ballot, Term::ANY).await.unwrap() {
                    PromiseReply::Promised(view) if view.entry.is_some() => return None,
                    PromiseReply::Promised(_) => {
                        if index.write(create).await.unwrap() == WriteReply::Stored {
                            return Some(racer);
                        }
                    }
                    PromiseReply::Behind(_) => {}
                }
                ballot.time += 50;
            }
        })
    });
    let outcomes = futures::future::join_all(racers).await;
    let winners: Vec<u64> = outcomes.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let view = index.read(&key("race"), Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!(view.inline.unwrap(), winners[0].to_be_bytes()[..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_share_syncs_and_readers_see_whole_entries() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let index = Arc::new(bed.index);
    let writers = (0..16u8).map(|writer| {
        let index = index.clone();
        tokio::spawn(async move {
            for round in 0..50u64 {
                let bytes = vec![writer; 100 + usize::try_from(round).unwrap()];
                let order = stamp(round * 16 + u64::from(writer) + 1);
                let mut write = inline(&key("shared"), order, &bytes);
                write.mode = WriteMode::Settled;
                index.write(write).await.unwrap();
                let view =
                    index.read(&key("shared"), Want::EntryAndInline, Term::ANY).await.unwrap();
                let entry = view.entry.unwrap();
                assert!(entry.order >= order, "an acknowledged write was not read");
                let Value::Object(object) = entry.value else { panic!("no object") };
                assert_eq!(view.inline.unwrap().len() as u64, object.size);
            }
        })
    });
    for outcome in futures::future::join_all(writers).await {
        outcome.unwrap();
    }
    // A group is counted after its replies are sent.
    Arc::into_inner(index).unwrap().close().unwrap();
    let figures = bed.counters.snapshot();
    assert_eq!(figures.writes, 800);
    assert!(figures.syncs * 2 < figures.writes, "{figures:?}");
    assert!(figures.group_ops_max > 2, "{figures:?}");
}

fn everything() -> ListRequest {
    ListRequest {
        bucket: BUCKET,
        shards: (0..4).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: 1000,
        fold: None,
        term: Term::ANY,
    }
}

/// Computes the expected listing by brute force.
fn model(names: &BTreeMap<String, bool>, request: &ListRequest) -> ListReply {
    let mut reply = ListReply::default();
    let mut folded: Option<Vec<u8>> = None;
    for (name, &live) in names {
        let name = name.as_bytes();
        let begun = match &request.start {
            ListStart::First => true,
            ListStart::At(start) => name >= start,
            ListStart::After(start) => name > start,
        };
        let skipped = folded.as_ref().is_some_and(|folded| name.starts_with(folded));
        if !begun || skipped || !name.starts_with(&request.prefix) {
            continue;
        }
        if reply.entries.len() == request.limit {
            reply.truncated = true;
            break;
        }
        if let (true, Some(fold)) = (live, &request.fold) {
            let at = (request.prefix.len()..name.len()).find(|&at| name[at..].starts_with(fold));
            folded = at.map(|at| name[..at + fold.len()].to_vec()).or(folded);
        }
        let value = if live { object(0, Body::Empty) } else { Value::Tombstone };
        let entry = Entry { order: stamp(1), write_id: WriteId([0; 16]), value };
        reply.entries.push((Bytes::copy_from_slice(name), entry));
    }
    reply
}

fn any_request() -> impl Strategy<Value = ListRequest> {
    let name = "[ab/]{0,3}";
    let start = prop_oneof![
        Just(ListStart::First),
        name.prop_map(|name| ListStart::At(name.into())),
        name.prop_map(|name| ListStart::After(name.into())),
    ];
    let fold = proptest::option::of(prop_oneof![Just("/"), Just("ab")]);
    ("[ab/]{0,2}", start, 0usize..20, fold).prop_map(|(prefix, start, limit, fold)| ListRequest {
        prefix: prefix.into(),
        start,
        limit,
        fold: fold.map(Bytes::from),
        ..everything()
    })
}

#[test]
fn listings_are_those_of_a_sorted_map() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let index = runtime.block_on(async { bed(folder.path()).index });
    let bucket = std::cell::Cell::new(0u8);
    let names = proptest::collection::btree_map("[ab/]{1,5}", any::<bool>(), 0..40);
    let promised = proptest::collection::vec("[ab/]{1,5}", 0..3);
    proptest!(ProptestConfig::with_cases(100), |(
        names in names,
        promised in promised,
        requests in proptest::collection::vec(any_request(), 1..10),
    )| {
        bucket.set(bucket.get().wrapping_add(1));
        let bucket = BucketId([bucket.get(); 16]);
        runtime.block_on(async {
            let mut calls = Vec::new();
            for (name, &live) in &names {
                let value = if live { object(0, Body::Empty) } else { Value::Tombstone };
                let mut write = write(&RegisterKey::object(bucket, 4, name), stamp(1), value);
                write.entry.write_id = WriteId([0; 16]);
                calls.push(index.write(write));
            }
            for reply in futures::future::join_all(calls).await {
                reply.unwrap();
            }
            for name in &promised {
                let key = RegisterKey::object(bucket, 4, name);
                index.promise(&key, stamp(2), Term::ANY).await.unwrap();
            }
        });
        for request in requests {
            let request = ListRequest { bucket, ..request };
            let listed = runtime.block_on(index.list(&request)).unwrap();
            let wanted = model(&names, &request);
            prop_assert_eq!(&listed.entries, &wanted.entries);
            prop_assert_eq!(listed.truncated, wanted.truncated);
        }
    });
}

//! Usage and lists of old registers against the reference backend, after random operations; their
//! count on an index of an earlier version; corrections of wrong rows.

use std::time::Duration;

use martlet_protocol::backend::{BackendExt, OldKind, OldList, RegisterDrop};
use martlet_protocol::entry::DeleteMarker;
use martlet_protocol::id::DeviceId;
use martlet_protocol::run_usage::{Run, RunUsage};
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Version, VersionId};

use super::*;
use crate::index::database::Database;
use crate::index::usage::UsageMends;

const DEVICE: DeviceId = DeviceId(1);
const OTHER: BucketId = BucketId([0xf5; 16]);
const SHARDS: u16 = 2;
const PLACES: u8 = 12;

#[derive(Clone, Debug)]
enum KeptStep {
    Write {
        at: u8,
        ticks: u64,
        mode: WriteMode,
        what: u8,
    },
    Promise {
        at: u8,
        ticks: u64,
    },
    Mark {
        at: u8,
        ticks: u64,
    },
    Drop {
        at: u8,
        up_to: u64,
        collectable: bool,
    },
    Purge {
        other: bool,
    },
    Crash,
    /// Opens the index as one of an earlier version.
    Upgrade,
    Audit,
}

fn steps() -> impl Strategy<Value = Vec<KeptStep>> {
    let mode = prop_oneof![Just(WriteMode::Accept), Just(WriteMode::Repair)];
    let at = || 0..PLACES;
    let ticks = || 1..14_u64;
    let step = prop_oneof![
        20 => (at(), ticks(), mode, 0..9_u8)
            .prop_map(|(at, ticks, mode, what)| KeptStep::Write { at, ticks, mode, what }),
        3 => (at(), ticks()).prop_map(|(at, ticks)| KeptStep::Promise { at, ticks }),
        3 => (at(), ticks()).prop_map(|(at, ticks)| KeptStep::Mark { at, ticks }),
        3 => (at(), ticks(), any::<bool>())
            .prop_map(|(at, up_to, collectable)| KeptStep::Drop { at, up_to, collectable }),
        1 => any::<bool>().prop_map(|other| KeptStep::Purge { other }),
        1 => Just(KeptStep::Crash),
        2 => Just(KeptStep::Upgrade),
        1 => Just(KeptStep::Audit),
    ];
    proptest::collection::vec(step, 1..70)
}

fn version(number: u8) -> Version {
    Version { position: u64::from(number), id: Some(WriteId([number; 16])) }
}

fn head(bucket: BucketId) -> RegisterKey {
    RegisterKey::object(bucket, SHARDS, "k")
}

/// Returns a register: a head, four beside it, a part and another object, in one of two buckets.
fn placed(at: u8) -> RegisterKey {
    let bucket = if at.is_multiple_of(2) { OTHER } else { BUCKET };
    let head = head(bucket);
    match at / 2 {
        0 => head,
        1 => RegisterKey::version(&head, VersionId::Null),
        2 => RegisterKey::part(&head, UploadId([1; 16]), 3, WriteId([1; 16])),
        3 => RegisterKey::object(bucket, SHARDS, "other"),
        number => RegisterKey::version(&head, version(number - 3).name()),
    }
}

/// Returns a write. Orders are those of one value, as in production.
fn written(at: u8, ticks: u64, mode: WriteMode, what: u8) -> EntryWrite {
    let of = |version: Option<Version>| match object(u64::from(what) + 100 * ticks, Body::Empty) {
        Value::Object(mut object) => {
            object.version = version;
            Value::Object(object)
        }
        other => other,
    };
    let marker = |version| Value::DeleteMarker(DeleteMarker { modified_ms: 1, version }.into());
    let value = match what {
        0 => Value::Tombstone,
        1 => of(None),
        2 => marker(Some(version(1))),
        number => of(Some(version(number % 3))),
    };
    let mut write = write(&placed(at), stamp(ticks), value);
    write.entry.write_id = WriteId([u8::try_from(ticks).unwrap(); 16]);
    EntryWrite { mode, ..write }
}

fn runs() -> Vec<Run> {
    let of = |bucket| (0..SHARDS).map(move |shard| Run { bucket, shard: Shard(shard) });
    of(BUCKET).chain(of(OTHER)).collect()
}

/// Removes everything that an earlier version lacks.
fn forget_rows(database: &Database) {
    let mut batch = rocksdb::WriteBatch::default();
    for family in [Family::Usage, Family::Old] {
        batch.delete_range_cf(database.family(family), &[][..], &[0xff; 60][..]);
    }
    batch.delete_cf(database.family(Family::Meta), b"u");
    database.write_synced(batch).unwrap();
}

async fn until_counted(index: &Index) {
    for _ in 0..20_000 {
        if index.counting.is_complete() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the count does not end: {:?}", index.fault());
}

/// The index and the reference backend.
struct ComparedRows {
    folder: tempfile::TempDir,
    bed: Option<IndexFixture>,
    memory: MemoryBackend,
}

impl ComparedRows {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bed = Some(bed(folder.path()));
        let memory = MemoryBackend::new(Arc::new(ManualClock::at(NOW_MS)), [DEVICE]);
        Self { folder, bed, memory }
    }

    fn index(&self) -> &Index {
        &self.bed.as_ref().unwrap().index
    }

    fn reopen(&mut self, prepare: impl FnOnce(&Database)) {
        drop(self.bed.take());
        let caches = Caches::default();
        prepare(&Database::open(&self.folder.path().join("index"), &caches).unwrap());
        self.bed = Some(bed(self.folder.path()));
    }

    async fn step(&mut self, step: KeptStep) {
        let (index, memory) = (self.index(), &self.memory);
        match step {
            KeptStep::Write { at, ticks, mode, what } => {
                let write = written(at, ticks, mode, what);
                let expected = memory.write(DEVICE, write.clone()).await.unwrap();
                assert_eq!(index.write(write).await.unwrap(), expected);
            }
            KeptStep::Promise { at, ticks } => {
                let (key, ballot) = (placed(at), stamp(ticks));
                memory.promise(DEVICE, &key, ballot, Term::ANY).await.unwrap();
                index.promise(&key, ballot, Term::ANY).await.unwrap();
            }
            KeptStep::Mark { at, ticks } => {
                let marks = [(placed(at), stamp(ticks))];
                memory.mark_collectable(DEVICE, &marks).await.unwrap();
                index.mark_collectable(&marks).await.unwrap();
            }
            KeptStep::Drop { at, up_to, collectable } => {
                let drop = RegisterDrop { key: placed(at), up_to: stamp(up_to), collectable };
                memory.drop_registers(DEVICE, std::slice::from_ref(&drop)).await.unwrap();
                index.drop_registers(&[drop], None).await.unwrap();
            }
            KeptStep::Purge { other } => {
                let bucket = if other { OTHER } else { BUCKET };
                let fence = BucketFence { bucket, generation: 1, open: false };
                memory.fence(DEVICE, fence).await.unwrap();
                memory.purge_bucket(DEVICE, bucket).await.unwrap();
                index.fence(fence).await.unwrap();
                index.purge(bucket).await.unwrap();
            }
            KeptStep::Crash => self.reopen(|_| ()),
            KeptStep::Upgrade => self.reopen(forget_rows),
            KeptStep::Audit => audit(index).await,
        }
    }

    async fn compare(&self) {
        until_counted(self.index()).await;
        let expected = self.memory.usage(DEVICE, &runs(), Term::ANY).await.unwrap();
        assert_eq!(self.index().usage(&runs(), Term::ANY).await.unwrap(), expected);
        for kind in [OldKind::Tombstones, OldKind::Promises] {
            let list = OldList { kind, before: stamp(10) };
            let expected = self.memory.old_registers(DEVICE, list, None, 100).await.unwrap();
            assert_eq!(self.index().old_registers(list, None, 100).await.unwrap(), expected);
        }
        audit(self.index()).await;
        let bed = self.bed.as_ref().unwrap();
        assert_eq!(bed.counters.snapshot().usage_corrections, 0, "nothing is wrong");
    }
}

async fn audit(index: &Index) {
    let mut after = None;
    loop {
        after = index.audit_registers(after).await.unwrap().next;
        if after.is_none() {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn rows_follow_the_registers(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut compared = ComparedRows::new();
            for step in steps {
                compared.step(step).await;
            }
            compared.compare().await;
        });
    }
}

#[tokio::test]
async fn writes_in_one_group_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let memory = MemoryBackend::new(Arc::new(ManualClock::at(NOW_MS)), [DEVICE]);
    let writes: Vec<EntryWrite> = (0..200_u64)
        .map(|number| {
            let at = u8::try_from(number % u64::from(PLACES)).unwrap();
            let what = u8::try_from(number % 7).unwrap();
            let mut write = written(at, 1, WriteMode::Repair, what);
            write.entry.order = stamp(1 + number);
            write.entry.write_id = WriteId::random();
            write
        })
        .collect();
    let replies = futures::future::join_all(writes.iter().map(|it| bed.index.write(it.clone())));
    for reply in replies.await {
        reply.unwrap();
    }
    for write in writes {
        memory.write(DEVICE, write).await.unwrap();
    }
    let expected = memory.usage(DEVICE, &runs(), Term::ANY).await.unwrap();
    assert_eq!(bed.index.usage(&runs(), Term::ANY).await.unwrap(), expected);
}

fn reopened(before: IndexFixture, folder: &Path) -> IndexFixture {
    drop(before);
    bed(folder)
}

fn run_of(key: &RegisterKey) -> Run {
    Run { bucket: key.bucket, shard: key.shard }
}

/// Writes on while an index of an earlier version is counted, with runs that are longer than a
/// slice, and some that lose all their registers meanwhile.
#[tokio::test]
async fn an_index_of_an_earlier_version_is_counted_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<RegisterKey> = (0..6000_u32)
        .map(|number| {
            let bucket = BucketId([u8::try_from(number % 300 / 2).unwrap(); 16]);
            RegisterKey::object(if number < 5000 { BUCKET } else { bucket }, 1, &number.to_string())
        })
        .collect();
    {
        let bed = bed(folder.path());
        let writes = names.iter().enumerate().map(|(number, key)| {
            let value = if number % 10 == 0 { Value::Tombstone } else { object(10, Body::Empty) };
            bed.index.write(write(key, stamp(1), value))
        });
        for reply in futures::future::join_all(writes).await {
            reply.unwrap();
        }
        forget_rows(&bed.index.reader.database);
    }
    // An opening that ends at once.
    drop(bed(folder.path()));
    let bed = bed(folder.path());
    let list = OldList { kind: OldKind::Tombstones, before: stamp(2) };
    for (number, key) in names.iter().enumerate().rev().step_by(7) {
        let value = if number % 2 == 0 { Value::Tombstone } else { object(30, Body::Empty) };
        bed.index.write(write(key, stamp(2), value)).await.unwrap();
    }
    let gone = RegisterDrop { key: names[5999].clone(), up_to: stamp(9), collectable: false };
    bed.index.drop_registers(&[gone], None).await.unwrap();
    until_counted(&bed.index).await;
    let (mut expected, mut old) = (BTreeMap::<Run, (i64, i64)>::new(), 0);
    for (number, key) in names.iter().enumerate().filter(|(number, _)| *number != 5999) {
        let is_rewritten = (5999 - number) % 7 == 0;
        let (is_object, bytes) = match (is_rewritten, number) {
            (true, number) => (number % 2 != 0, 30),
            (false, number) => (number % 10 != 0, 10),
        };
        old += usize::from(!is_rewritten && !is_object);
        let (objects, sum) = expected.entry(run_of(key)).or_default();
        *objects += i64::from(is_object);
        *sum += if is_object { bytes } else { 0 };
    }
    let runs: Vec<Run> = expected.keys().copied().collect();
    let usages = bed.index.usage(&runs, Term::ANY).await.unwrap();
    for (run, usage) in runs.iter().zip(usages) {
        assert_eq!((usage.objects, usage.bytes), expected[run], "{run:?}");
    }
    let page = bed.index.old_registers(list, None, 10_000).await.unwrap();
    assert_eq!(page.registers.len(), old);
    audit(&bed.index).await;
    assert_eq!(bed.counters.snapshot().usage_corrections, 0);
    assert!(reopened(bed, folder.path()).index.counting.is_complete(), "it is counted once");
}

#[tokio::test]
async fn nothing_is_answered_before_everything_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    assert!(bed.index.counting.is_complete(), "a new index has nothing to count");
    assert_eq!(bed.index.usage(&runs(), Term::ANY).await.unwrap(), [RunUsage::default(); 4]);
    bed.index.set_voting(false).await.unwrap();
    let error = bed.index.usage(&runs(), Term::ANY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "without votes");
    let counting = Counting::default();
    assert_eq!(counting.check_complete("d").unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn wrong_usage_is_found_counted_and_mended_and_costs_no_votes() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let with = IndexContext { peers: true, clock: clock.clone(), ..surroundings(folder.path()) };
    let bed = bed_with(folder.path(), with, clock);
    for name in ["a", "b", "c", "d"] {
        bed.index.write(write(&key(name), stamp(1), object(10, Body::Empty))).await.unwrap();
    }
    let run = run_of(&key("a"));
    let sound = bed.index.usage(&[run], Term::ANY).await.unwrap();
    let wrong = RunUsage { objects: 70, bytes: -5, ..RunUsage::default() };
    let database = &bed.index.reader.database;
    let mut batch = rocksdb::WriteBatch::default();
    batch.put_cf(database.family(Family::Usage), usage::usage_key(run), wrong.encode());
    database.write_synced(batch).unwrap();
    assert_eq!(bed.index.usage(&[run], Term::ANY).await.unwrap(), [wrong]);
    audit(&bed.index).await;
    assert_eq!(bed.index.usage(&[run], Term::ANY).await.unwrap(), sound);
    assert_eq!(bed.counters.snapshot().usage_corrections, 1);
    assert!(bed.index.voting_snapshot().voting);
    audit(&bed.index).await;
    assert_eq!(bed.counters.snapshot().usage_corrections, 1);
}

#[tokio::test]
async fn a_difference_is_corrected_once() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let run = run_of(&key("a"));
    let change = RunUsage { objects: 1, ..RunUsage::default() };
    let mend = async |after: u64| {
        let mends = vec![(usage::usage_key(run), change)];
        let mends = UsageMends { after, mends, position: None };
        bed.index.submit(|reply| IndexOp::MendUsage(mends, reply)).await
    };
    let before = bed.index.counting.corrections();
    mend(before).await.unwrap();
    assert_eq!(mend(before).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bed.index.usage(&[run], Term::ANY).await.unwrap(), [change]);
    // A purge removes rows: what was counted before it is worth nothing.
    let before = bed.index.counting.corrections();
    let fence = BucketFence { bucket: BUCKET, generation: 1, open: false };
    bed.index.fence(fence).await.unwrap();
    bed.index.purge(BUCKET).await.unwrap();
    assert_eq!(mend(before).await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn rows_of_a_purged_bucket_leave_the_lists_when_they_are_met() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    for number in 0..10 {
        let at = key(&number.to_string());
        bed.index.write(write(&at, stamp(1), Value::Tombstone)).await.unwrap();
    }
    let other = RegisterKey::object(OTHER, SHARDS, "k");
    bed.index.write(write(&other, stamp(1), Value::Tombstone)).await.unwrap();
    let fence = BucketFence { bucket: BUCKET, generation: 1, open: false };
    bed.index.fence(fence).await.unwrap();
    bed.index.purge(BUCKET).await.unwrap();
    let rows = || {
        let mut count = 0;
        let visit = |_: &[u8], _: &[u8]| {
            count += 1;
            Ok(())
        };
        let database = &bed.index.reader.database;
        database.scan(Family::Old, &[], &[0xff; 60], usize::MAX, visit).unwrap();
        count
    };
    assert_eq!(rows(), 11);
    let list = OldList { kind: OldKind::Tombstones, before: stamp(2) };
    let page = bed.index.old_registers(list, None, 100).await.unwrap();
    assert_eq!(page.registers.iter().map(|it| &it.place.key).collect::<Vec<_>>(), [&other]);
    assert_eq!(rows(), 1);
}

/// Costs of a plain write beside what it cost before: one merge operand for each run of a group.
#[tokio::test]
async fn a_write_stages_one_more_row_and_a_group_one_for_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let database = &bed.index.reader.database;
    for number in 0..10_u64 {
        let at = key(&number.to_string());
        bed.index.write(write(&at, stamp(1), object(10, Body::Empty))).await.unwrap();
    }
    assert_eq!(database.memtable_entries(Family::Usage), 10);
    assert_eq!(database.memtable_entries(Family::Old), 0);
    for number in 0..10_u64 {
        let at = key(&number.to_string());
        bed.index.write(write(&at, stamp(2), object(10, Body::Empty))).await.unwrap();
    }
    assert_eq!(database.memtable_entries(Family::Usage), 10, "their usage is the same");
}

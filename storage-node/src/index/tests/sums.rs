//! Sums, bins, walks and holdings against the reference backend, after random operations (rules H1,
//! T1); and rebuilt sums.

use martlet_protocol::backend::{BackendExt, Holding, RegisterDrop, RegisterView, Walk};
use martlet_protocol::id::DeviceId;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::tree::{BinKey, Span, Sum};

use super::*;

const DEVICE: DeviceId = DeviceId(1);
const OTHER: BucketId = BucketId([0xf5; 16]);
const NAMES: u8 = 12;

#[derive(Clone, Debug)]
enum SumsStep {
    Write { name: u8, ticks: u64, mode: WriteMode, what: u8 },
    Promise { name: u8, ticks: u64 },
    Mark { name: u8, ticks: u64 },
    Drop { name: u8, up_to: u64, collectable: bool },
    Purge { other: bool },
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<SumsStep>> {
    let mode = prop_oneof![
        Just(WriteMode::Fresh),
        Just(WriteMode::Settled),
        Just(WriteMode::Accept),
        Just(WriteMode::Repair)
    ];
    let name = || 0..NAMES;
    let ticks = || 1..12_u64;
    let step = prop_oneof![
        12 => (name(), ticks(), mode, 0..4_u8)
            .prop_map(|(name, ticks, mode, what)| SumsStep::Write { name, ticks, mode, what }),
        3 => (name(), ticks()).prop_map(|(name, ticks)| SumsStep::Promise { name, ticks }),
        6 => (name(), ticks()).prop_map(|(name, ticks)| SumsStep::Mark { name, ticks }),
        4 => (name(), ticks(), any::<bool>())
            .prop_map(|(name, up_to, collectable)| SumsStep::Drop { name, up_to, collectable }),
        1 => any::<bool>().prop_map(|other| SumsStep::Purge { other }),
        1 => Just(SumsStep::Crash),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Returns a key: names fall into two buckets, few shards, and all kinds.
fn named(name: u8) -> RegisterKey {
    let bucket = if name.is_multiple_of(3) { OTHER } else { BUCKET };
    let object = RegisterKey::object(bucket, 4, &name.to_string());
    match name % 4 {
        0 => RegisterKey::upload(bucket, 4, &name.to_string(), UploadId([name; 16])),
        1 => RegisterKey::part(&object, UploadId([name; 16]), 3, WriteId([name; 16])),
        _ => object,
    }
}

fn written(name: u8, ticks: u64, mode: WriteMode, what: u8) -> EntryWrite {
    let at = named(name);
    let made = match what {
        0 => write(&at, stamp(ticks), object(1, extents(name))),
        1 => inline(&at, stamp(ticks), &[name; 20]),
        _ => write(&at, stamp(ticks), Value::Tombstone),
    };
    // One write id for each order, as orders are unique in production.
    let id = WriteId([u8::try_from(ticks).unwrap(); 16]);
    EntryWrite { mode, entry: Entry { write_id: id, ..made.entry }, ..made }
}

/// The index and the reference backend.
struct ComparedIndexes {
    folder: tempfile::TempDir,
    bed: Option<IndexFixture>,
    memory: MemoryBackend,
}

impl ComparedIndexes {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bed = Some(bed(folder.path()));
        let memory = MemoryBackend::new(Arc::new(ManualClock::at(NOW_MS)), [DEVICE]);
        Self { folder, bed, memory }
    }

    fn index(&self) -> &Index {
        &self.bed.as_ref().unwrap().index
    }

    async fn step(&mut self, step: SumsStep) {
        let (index, memory) = (self.index(), &self.memory);
        match step {
            SumsStep::Write { name, ticks, mode, what } => {
                let write = written(name, ticks, mode, what);
                let expected = memory.write(DEVICE, write.clone()).await.unwrap();
                assert_eq!(index.write(write).await.unwrap(), expected);
            }
            SumsStep::Promise { name, ticks } => {
                let (key, ballot) = (named(name), stamp(ticks));
                let expected = memory.promise(DEVICE, &key, ballot, Term::ANY).await.unwrap();
                assert_eq!(index.promise(&key, ballot, Term::ANY).await.unwrap(), expected);
            }
            SumsStep::Mark { name, ticks } => {
                let marks = [(named(name), stamp(ticks))];
                memory.mark_collectable(DEVICE, &marks).await.unwrap();
                index.mark_collectable(&marks).await.unwrap();
            }
            SumsStep::Drop { name, up_to, collectable } => {
                let drop = RegisterDrop { key: named(name), up_to: stamp(up_to), collectable };
                memory.drop_registers(DEVICE, std::slice::from_ref(&drop)).await.unwrap();
                index.drop_registers(&[drop], None).await.unwrap();
            }
            SumsStep::Purge { other } => {
                let bucket = if other { OTHER } else { BUCKET };
                let fence = BucketFence { bucket, generation: 1, open: false };
                memory.fence(DEVICE, fence).await.unwrap();
                memory.purge_bucket(DEVICE, bucket).await.unwrap();
                index.fence(fence).await.unwrap();
                index.purge(bucket).await.unwrap();
            }
            SumsStep::Crash => {
                self.bed = None;
                self.bed = Some(bed(self.folder.path()));
            }
        }
    }

    async fn compare(&self) {
        let (index, memory) = (self.index(), &self.memory);
        let at: Vec<_> = (0..NAMES).map(|name| named(name).placement()).collect();
        let mut spans: Vec<_> = at.iter().map(|at| Span { first: *at, last: *at }).collect();
        spans.extend(at.windows(2).map(|w| Span { first: w[0].min(w[1]), last: w[0].max(w[1]) }));
        spans.push(Span::ALL);
        let sums = index.sums(&spans).await.unwrap();
        assert_eq!(sums, memory.sums(DEVICE, &spans).await.unwrap());
        for span in spans {
            let bins = index.bins(span, None, 100).await.unwrap();
            assert_eq!(bins, memory.bins(DEVICE, span, None, 100).await.unwrap());
            let middle = bins.get(bins.len() / 2).map(|(bin, _)| *bin);
            let expected = memory.bins(DEVICE, span, middle, 2).await.unwrap();
            assert_eq!(index.bins(span, middle, 2).await.unwrap(), expected);
            for (bin, want) in [(None, Want::EntryAndInline), (middle, Want::Entry)] {
                let walk = Walk { span, bin, want };
                let after = named(5);
                for (after, limit) in [(None, 100), (None, 2), (Some(&after), 100)] {
                    let expected = memory.walk(DEVICE, &walk, after, limit).await.unwrap();
                    assert_eq!(index.walk(&walk, after, limit).await.unwrap(), expected);
                }
            }
        }
        let keys: Vec<_> = (0..NAMES).map(named).collect();
        let expected: Vec<Holding> = memory.holdings(DEVICE, &keys).await.unwrap();
        assert_eq!(index.holdings(&keys).await.unwrap(), expected);
        assert_eq!(index.audit_registers(None).await.unwrap().corrupt, []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sums_and_walks_are_those_of_the_reference(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut both = ComparedIndexes::new();
            for (at, step) in steps.into_iter().enumerate() {
                both.step(step).await;
                if at % 16 == 15 {
                    both.compare().await;
                }
            }
            both.compare().await;
        });
    }
}

async fn fill(index: &Index) {
    for number in 0..500_u64 {
        let at = key(&number.to_string());
        index.write(inline(&at, stamp(1), &number.to_be_bytes())).await.unwrap();
        if number % 5 == 0 {
            index.write(write(&at, stamp(2), Value::Tombstone)).await.unwrap();
        }
        if number % 10 == 0 {
            index.mark_collectable(&[(at, stamp(2))]).await.unwrap();
        }
    }
}

async fn bins(index: &Index) -> Vec<(BinKey, Sum)> {
    index.bins(Span::ALL, None, usize::MAX).await.unwrap()
}

#[tokio::test]
async fn an_index_from_before_sums_gets_them_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let expected = {
        let bed = bed(folder.path());
        fill(&bed.index).await;
        let expected = bins(&bed.index).await;
        let database = &bed.index.reader.database;
        let mut batch = rocksdb::WriteBatch::default();
        batch.delete_cf(database.family(Family::Meta), b"h");
        let last = [0xff; 29];
        batch.delete_range_cf(database.family(Family::Tree), &[][..], &last[..]);
        database.write_synced(batch).unwrap();
        assert!(bins(&bed.index).await.is_empty());
        expected
    };
    let count: u64 = expected.iter().map(|(_, sum)| sum.count).sum();
    assert_eq!(count, 450);
    let bed = bed(folder.path());
    assert_eq!(bins(&bed.index).await, expected);
    assert_eq!(bed.index.audit_registers(None).await.unwrap().corrupt, []);
}

#[tokio::test]
async fn another_secret_makes_other_sums_of_the_same_registers() {
    let folder = tempfile::tempdir().unwrap();
    let first = {
        let bed = bed(folder.path());
        fill(&bed.index).await;
        bins(&bed.index).await
    };
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let with = |byte| IndexContext {
        secret: TreeKey([byte; 32]),
        clock: clock.clone(),
        ..surroundings(folder.path())
    };
    let second = {
        let bed = bed_with(folder.path(), with(9), clock.clone());
        bins(&bed.index).await
    };
    let counts = |bins: &[(BinKey, Sum)]| {
        bins.iter().map(|(bin, sum)| (*bin, sum.count)).collect::<Vec<_>>()
    };
    assert_eq!(counts(&first), counts(&second));
    assert!(first.iter().zip(&second).all(|(a, b)| a.1.hash != b.1.hash));
    let bed = bed_with(folder.path(), with(0), clock.clone());
    assert_eq!(bins(&bed.index).await, first);
}

#[tokio::test]
async fn bins_that_everything_left_take_no_space_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    fill(&bed.index).await;
    let drops: Vec<_> = (0..500)
        .map(|number: u64| RegisterDrop {
            key: key(&number.to_string()),
            up_to: stamp(9),
            collectable: false,
        })
        .collect();
    bed.index.drop_registers(&drops, None).await.unwrap();
    assert!(bins(&bed.index).await.is_empty());
    let database = &bed.index.reader.database;
    let rows = || {
        let mut rows = 0;
        database
            .scan(Family::Tree, &[], &[0xff; 29], usize::MAX, |_, _| {
                rows += 1;
                Ok(())
            })
            .unwrap();
        rows
    };
    assert!(rows() > 0);
    for _ in 0..2 {
        // Once to merge the operands, once to remove empty rows.
        database.flush().unwrap();
        database.compact(Family::Tree);
    }
    assert_eq!(rows(), 0);
    let all =
        bed.index.walk(&Walk { span: Span::ALL, bin: None, want: Want::Entry }, None, 9).await;
    assert_eq!(all.unwrap(), Vec::<(RegisterKey, RegisterView)>::new());
}

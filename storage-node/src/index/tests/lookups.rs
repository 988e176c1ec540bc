//! Blocks that a look-up reads from disk, in an index of many tables.

use rocksdb::perf::{PerfContext, PerfStatsLevel, set_perf_stats};

use super::*;
use crate::index::bulk::BulkIndex;

const KEYS: u64 = 120_000;
const LOOKUPS: u64 = 400;

/// Blocks that look-ups read.
#[derive(Clone, Copy, Debug)]
struct BlocksRead {
    data: u64,
    index: u64,
    filter: u64,
    /// Largest number of data blocks of one look-up.
    data_max: u64,
}

fn numbered(number: u64) -> RegisterKey {
    RegisterKey {
        bucket: BUCKET,
        shard: Shard(u16::try_from(number % 16).unwrap()),
        kind: RegisterKind::Object,
        name: format!("folder {}/{number:09}", number / 500).into(),
    }
}

/// Loads an index in several parts, so that it has tables in several levels.
fn load(folder: &Path) {
    for part in 0..4 {
        let mut bulk = BulkIndex::open(folder, TreeKey::default(), &Caches::default()).unwrap();
        for number in (part..KEYS).step_by(4) {
            let value = object(9, extents(1));
            let entry = Entry { order: stamp(5), write_id: WriteId::random(), value };
            bulk.add(&numbered(number), &entry).unwrap();
        }
        bulk.finish().unwrap();
    }
}

/// Returns a count of RocksDB's report `name = count, …`; 0 without it.
fn counted(report: &str, name: &str) -> u64 {
    let counts = report.split(',').filter_map(|part| part.trim().split_once(" = "));
    let found = counts.into_iter().find(|(found, _)| *found == name);
    found.map_or(0, |(_, count)| count.parse().unwrap())
}

/// Looks up keys that exist, or keys that don't, one after another on this thread.
fn look_up(database: &Database, is_there: bool) -> BlocksRead {
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut read = BlocksRead { data: 0, index: 0, filter: 0, data_max: 0 };
    for at in 0..LOOKUPS {
        let number = at * 7919 % KEYS;
        let mut key = numbered(number).encode();
        if !is_there {
            key.push(b'~');
        }
        let mut context = PerfContext::default();
        context.reset();
        let found = database.get(Family::Entries, &key).unwrap();
        assert_eq!(found.is_some(), is_there, "{number}");
        let report = context.report(true);
        let [all, index, filter] =
            ["block_read_count", "index_block_read_count", "filter_block_read_count"]
                .map(|name| counted(&report, name));
        let data = all - index - filter;
        read.data += data;
        read.index += index;
        read.filter += filter;
        read.data_max = read.data_max.max(data);
    }
    set_perf_stats(PerfStatsLevel::Disable);
    read
}

#[test]
fn a_look_up_reads_one_cold_block_where_parts_of_indexes_are_cached() {
    let folder = tempfile::tempdir().unwrap();
    load(folder.path());
    let caches = || Caches::new(64 << 20, 8 << 20, 64);
    let database = Database::open(folder.path(), &caches()).unwrap();
    database.compact(Family::Entries);
    drop(database);

    let database = Database::open(folder.path(), &caches()).unwrap();
    let cold = look_up(&database, true);
    eprintln!("cold: {cold:?}");
    // One data block each; parts of index and filter are read once, not for each look-up.
    assert!(cold.data <= LOOKUPS + LOOKUPS / 20 && cold.data_max <= 2, "{cold:?}");
    assert!(cold.index <= LOOKUPS && cold.filter <= LOOKUPS, "{cold:?}");
    drop(database);

    let database = Database::open(folder.path(), &caches()).unwrap();
    let absent = look_up(&database, false);
    eprintln!("absent: {absent:?}");
    // Filters answer: ten bits a key let one in a hundred through.
    assert!(absent.data <= LOOKUPS / 10 && absent.data_max <= 2, "{absent:?}");
    // Parts are cached now: the same look-ups read nothing but data blocks that they let through.
    let again = look_up(&database, false);
    assert_eq!((again.index, again.filter), (0, 0), "{again:?}");
}

#[tokio::test]
async fn a_row_on_disk_is_read_by_its_writer_and_not_by_the_committer() {
    let folder = tempfile::tempdir().unwrap();
    let first = bed(folder.path());
    for number in 0..3 {
        let put = write(&numbered(number), stamp(1), object(9, extents(1)));
        first.index.write(put).await.unwrap();
    }
    first.index.close().unwrap();
    let bed = bed(folder.path());
    let blocking = || bed.counters.snapshot().blocking_reads;
    let before = blocking();
    let put = write(&numbered(1), stamp(2), object(9, extents(1)));
    assert_eq!(bed.index.write(put).await.unwrap(), WriteReply::Stored);
    assert_eq!(blocking() - before, 1, "the row is on disk");
    for ticks in [3, 4] {
        let put = write(&numbered(1), stamp(ticks), object(9, extents(1)));
        assert_eq!(bed.index.write(put).await.unwrap(), WriteReply::Stored);
    }
    bed.index.promise(&numbered(1), stamp(5), Term::ANY).await.unwrap();
    assert_eq!(blocking() - before, 1, "the row is in memory");
}

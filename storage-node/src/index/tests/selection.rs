//! Listings of selected rows: summaries, and rows that are passed over.

use futures::future::try_join_all;
use martlet_protocol::backend::{Detail, RowKinds};
use martlet_protocol::entry::DeleteMarker;
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use rocksdb::WriteBatch;
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};

use super::*;

/// A page passes over a bounded number of tombstones and delete markers that aren't selected.
#[tokio::test]
async fn a_listing_passes_over_so_many_tombstones_and_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let one_shard = |name: &str| RegisterKey { shard: Shard(0), ..key(name) };
    let names: Vec<_> = (0..LIST_EMPTY_ROWS_MAX + 9).map(|n| format!("gone {n:06}")).collect();
    for some in names.chunks(500) {
        let writes = some
            .iter()
            .map(|name| bed.index.write(write(&one_shard(name), stamp(1), Value::Tombstone)));
        try_join_all(writes).await.unwrap();
    }
    let marker = DeleteMarker { modified_ms: 1, version: None };
    let marker = Value::DeleteMarker(Box::new(marker));
    bed.index.write(write(&one_shard("marked"), stamp(1), marker)).await.unwrap();
    bed.index.write(write(&one_shard("present"), stamp(1), object(0, Body::Empty))).await.unwrap();
    let request = ListRequest { shards: vec![Shard(0)], ..everything() };
    let live = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
    let looked_at = || bed.counters.snapshot().listed_rows;
    let before = looked_at();
    let mut page = bed.index.list_rows(&request, live).await.unwrap();
    assert!(looked_at() - before <= LIST_EMPTY_ROWS_MAX as u64 + 1);
    let position = page.take_position().unwrap();
    assert_eq!(position, names[LIST_EMPTY_ROWS_MAX - 1]);
    assert!(page.truncated && page.entries.is_empty());
    for (kinds, expected) in
        [(RowKinds::Live, vec!["marked", "present"]), (RowKinds::Objects, vec!["present"])]
    {
        let start = ListStart::After(position.clone());
        let request = ListRequest { start, ..request.clone() };
        let page = bed.index.list_rows(&request, RowSelection { kinds, ..live }).await.unwrap();
        let listed: Vec<_> = page.entries.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(
            (listed, page.truncated),
            (expected.into_iter().map(Bytes::from).collect(), false)
        );
    }
}

/// A page of objects with long manifests ships some hundred bytes for each.
#[tokio::test]
async fn a_page_of_objects_of_128_extents_ships_no_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let extent = |at| ExtentRef { id: ExtentId([at; 16]), length: 64 << 20, blake3: [at; 32] };
    let extents: Vec<_> = (0..128).map(extent).collect();
    let (policy, parts) = (PolicyId(0), vec![64 << 20; 128]);
    let manifest = Manifest { policy, extents, parts, part_checksums: Vec::new() };
    let names: Vec<_> = (0..1000).map(|at| format!("dataset/shard-{at:06}.tar")).collect();
    for some in names.chunks(250) {
        let writes = some.iter().map(|name| {
            let value = object(8 << 30, Body::Extents(manifest.clone()));
            bed.index.write(write(&key(name), stamp(1), value))
        });
        try_join_all(writes).await.unwrap();
    }
    let bytes = |page: &ListReply| postcard::to_stdvec(page).unwrap().len();
    let whole = bed.index.list(&everything()).await.unwrap();
    assert!(bytes(&whole) > 7_000_000, "{} bytes", bytes(&whole));
    let summaries = RowSelection { detail: Detail::Summary, kinds: RowKinds::Objects };
    let before = bed.counters.snapshot().listed_rows;
    let page = bed.index.list_rows(&everything(), summaries).await.unwrap();
    assert_eq!(page.entries.len(), 1000);
    assert!(bytes(&page) < 200_000, "{} bytes", bytes(&page));
    let looked_at = bed.counters.snapshot().listed_rows - before;
    assert!(looked_at <= 1000 + 4, "one row for each name, and one more for each shard");
    for ((name, summary), (other, entry)) in page.entries.into_iter().zip(whole.entries) {
        assert_eq!((name, summary), (other, entry.into_summary()));
    }
}

/// Puts objects with these names into an index of compacted tables.
fn fill(database: &Database, names: impl Iterator<Item = String>) {
    let mut batch = WriteBatch::default();
    for name in names {
        let entry =
            Entry { order: stamp(1), write_id: WriteId([1; 16]), value: object(1, Body::Empty) };
        let row = rows::RegisterRow::of(&entry);
        batch.put_cf(database.family(Family::Entries), key(&name).encode(), row.bytes());
        if batch.size_in_bytes() > 1 << 20 {
            database.write_unlogged(std::mem::take(&mut batch)).unwrap();
        }
    }
    database.write_unlogged(batch).unwrap();
    database.flush().unwrap();
    database.compact(Family::Entries);
}

fn numbered(at: usize) -> String {
    format!("dataset/{at:08}")
}

/// Lists a page of a thousand summaries from a name on.
fn page_from(database: &Database, at: usize) {
    let start = ListStart::At(numbered(at).into());
    let request = ListRequest { start, ..everything() };
    let rows = RowSelection { detail: Detail::Summary, kinds: RowKinds::Objects };
    let (page, _) = list::list(database, ListSource::Registers, &request, rows).unwrap();
    assert_eq!((page.entries.len(), page.truncated), (1000, true));
}

/// Blocks that a page of a thousand summaries reads from its disk or cache.
fn blocks_of_a_page(database: &Database, names: usize) -> u64 {
    fill(database, (0..names).map(numbered));
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut counts = PerfContext::default();
    counts.reset();
    page_from(database, names / 2);
    let blocks =
        counts.metric(PerfMetric::BlockReadCount) + counts.metric(PerfMetric::BlockCacheHitCount);
    set_perf_stats(PerfStatsLevel::Disable);
    blocks
}

#[tokio::test]
async fn a_page_reads_as_many_blocks_of_a_large_bucket_as_of_a_small_one() {
    let [few, many] = [4_000, 200_000].map(|names| {
        let folder = tempfile::tempdir().unwrap();
        blocks_of_a_page(&bed(folder.path()).index.reader.database, names)
    });
    assert!(many * 2 <= few * 3, "{few} blocks among 4,000 names, {many} among 200,000");
}

/// Read calls of this thread so far.
fn reads() -> u64 {
    let figures = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = figures.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_cold_page_takes_few_reads_for_each_shard() {
    const NAMES: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let open = || Database::open(folder.path(), &Caches::new(32 << 20, 8 << 20, 64)).unwrap();
    fill(&open(), (0..NAMES).map(numbered));
    let database = open();
    // Parts of indexes and filters are read by the first pages.
    (0..20).for_each(|at| page_from(&database, at * NAMES / 25));
    let mut counts: Vec<u64> = Vec::new();
    for at in 0..10 {
        let before = reads();
        page_from(&database, at * NAMES / 25 + 2000);
        counts.push(reads() - before);
    }
    // The count itself is one of them.
    let shards = everything().shards.len() as u64;
    let is_cold = counts.iter().all(|count| *count > shards / 2);
    assert!(is_cold, "pages were cached: {counts:?}");
    assert!(shards >= 4 && counts.iter().all(|count| *count <= 2 * shards + 1), "{counts:?}");
}

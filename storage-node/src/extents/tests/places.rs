//! Openings after a crash that read the places of extents, and not their rows.

use martlet_protocol::backend::Presence;

use super::state::{Counters, ExtentCount};
use super::*;
use crate::index::{DiskPlace, RecordPlace};

/// Bytes of a packed extent, and of a file extent.
const PACKED: usize = 70_000;
const FILE: usize = 1_200_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

fn used_place(store: &ExtentStore, id: ExtentId) -> UsedPlace {
    store.0.row(id).unwrap().used_place().unwrap()
}

fn file_place(byte: u8) -> UsedPlace {
    UsedPlace { at: DiskPlace::File(id(byte)), bytes: FILE as u64 }
}

/// Returns disk, table and store after a crash of a store with six packed extents and two files.
/// Rows since the last flush are lost if `keep_rows` is false.
async fn crashed(seed: u64, keep_rows: bool) -> (FaultyDisk, MemoryTable) {
    let (disk, table) = fresh(seed);
    let (store, _) = open(&disk, &table).unwrap();
    for byte in 1..=6 {
        put(&store, id(byte), PACKED).await.unwrap();
    }
    for byte in 7..=8 {
        put(&store, id(byte), FILE).await.unwrap();
    }
    drop(store);
    let disk = disk.reboot();
    let table = table.powered_by(&disk, keep_rows);
    (disk, table)
}

async fn all_are_there(store: &ExtentStore, missing: &[u8]) {
    for byte in (1..=8).filter(|byte| !missing.contains(byte)) {
        let length = if byte > 6 { FILE } else { PACKED };
        assert!(is_there(store, id(byte), length).await, "extent {byte}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_after_a_crash_counts_extents_afterwards() {
    for keep_rows in [true, false] {
        let (disk, table) = crashed(1, keep_rows).await;
        let (store, report) = open(&disk, &table).unwrap();
        assert_eq!(report.extents, None, "{report:?}");
        assert_eq!(report.rediscovered, if keep_rows { 0 } else { 8 });
        // Changes during the count.
        store.delete(&[id(1), id(7)]).await.unwrap();
        put(&store, id(9), PACKED).await.unwrap();
        all_are_there(&store, &[1, 7]).await;
        no_leaks(&store, &disk).await;
        assert_eq!((store.usage().extents, store.usage().is_counting), (7, false));
        assert!(store.close());
        store.save_space().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_places_gets_them_by_its_rows() {
    let (disk, table) = crashed(2, true).await;
    let (store, report) = open(&disk, &table.without_places()).unwrap();
    assert_eq!(report.extents, Some(8), "{report:?}");
    no_leaks(&store, &disk).await;
    drop(store);
    let disk = disk.reboot();
    let table = table.without_places().powered_by(&disk, false);
    assert_eq!(open(&disk, &table).unwrap().1.extents, Some(8), "places of another table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_while_places_are_written_leaves_all_of_them_or_none() {
    let mut cuts = 0;
    for calls in 0.. {
        let (disk, table) = crashed(100 + calls, true).await;
        let table = table.without_places();
        disk.fail_after(calls, DiskFault::PowerCut);
        drop(open(&disk, &table));
        let was_cut = disk.is_dead();
        let disk = disk.reboot();
        let table = table.powered_by(&disk, false);
        let (store, report) = open(&disk, &table).unwrap();
        assert!(report.missing.is_empty(), "{report:?}");
        all_are_there(&store, &[]).await;
        no_leaks(&store, &disk).await;
        if !was_cut {
            assert_eq!(report.extents, None, "the places were complete");
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 5, "only {cuts} cuts");
}

/// An extent without its place must not be taken for a second copy of itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_place_of_an_extent_in_an_unsettled_volume_or_a_file_costs_nothing() {
    for byte in [3, 8] {
        let (disk, table) = crashed(3, true).await;
        let (store, _) = open(&disk, &table).unwrap();
        let lost = used_place(&store, id(byte));
        // The volume is in use.
        put(&store, id(20), PACKED).await.unwrap();
        drop(store);
        let disk = disk.reboot();
        let table = table.powered_by(&disk, true);
        table.toggle_place(lost);
        let (store, report) = open(&disk, &table.without_unsettled_places()).unwrap();
        assert_eq!((report.extents, report.duplicates), (None, 0), "{report:?}");
        all_are_there(&store, &[]).await;
        no_leaks(&store, &disk).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_that_overlap_or_lie_in_no_volume_have_the_rows_read() {
    let (disk, table) = crashed(4, true).await;
    let (store, _) = open(&disk, &table).unwrap();
    let UsedPlace { at: DiskPlace::Record(at), bytes } = used_place(&store, id(2)) else {
        panic!("a file")
    };
    drop(store);
    let beyond = [(at.volume, at.offset + 4096), (at.volume, 1 << 30), (at.volume + 99, 4096)];
    for (volume, offset) in beyond {
        let disk = disk.reboot();
        let table = table.powered_by(&disk, true);
        let at = DiskPlace::Record(RecordPlace { volume, offset });
        let place = UsedPlace { at, bytes };
        table.toggle_place(place);
        let (store, report) = open(&disk, &table).unwrap();
        assert_eq!(report.extents, Some(8), "{place:?}");
        all_are_there(&store, &[]).await;
        no_leaks(&store, &disk).await;
        drop(store);
        let disk = disk.reboot();
        let table = table.powered_by(&disk, true);
        assert_eq!(open(&disk, &table).unwrap().1.extents, None, "the places were written anew");
    }
    // A file's place without a row is forgotten.
    let disk = disk.reboot();
    let table = table.powered_by(&disk, true);
    table.toggle_place(file_place(77));
    let (store, report) = open(&disk, &table).unwrap();
    assert!(report.extents.is_none() && report.missing.is_empty(), "{report:?}");
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extents_of_a_lost_file_and_of_a_lost_volume_are_missing() {
    let (disk, table) = crashed(5, true).await;
    disk.unlink(&footer::path(Path::new(ROOT), id(8))).unwrap();
    let (store, report) = open(&disk, &table).unwrap();
    assert_eq!((report.extents, &report.missing[..]), (None, &[id(8)][..]));
    assert_eq!(store.presence(&[id(8)]).await.unwrap(), [Presence::Missing]);
    all_are_there(&store, &[8]).await;
    no_leaks(&store, &disk).await;
    let location = store.stat(id(1)).await.unwrap().location;
    drop(store);
    let disk = disk.reboot();
    let table = table.powered_by(&disk, true);
    disk.unlink(&location.path).unwrap();
    let (store, report) = open(&disk, &table).unwrap();
    assert!(report.extents.is_some() && report.missing.contains(&id(1)), "{report:?}");
    let lost: Vec<u8> = report.missing.iter().map(|id| id.0[0]).chain([8]).collect();
    all_are_there(&store, &lost).await;
    no_leaks(&store, &disk).await;
}

/// The count looks at each row, so it finds a row whose blocks are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_blocks_are_free_ends_writes_and_has_the_rows_read() {
    let (disk, table) = crashed(6, true).await;
    let (store, _) = open(&disk, &table).unwrap();
    let lost = used_place(&store, id(2));
    // No volume is in use, so no header is looked at.
    store.close_idle_volumes(Duration::ZERO).unwrap();
    drop(store);
    let disk = disk.reboot();
    let table = table.powered_by(&disk, true);
    table.toggle_place(lost);
    let (store, report) = open(&disk, &table).unwrap();
    assert_eq!(report.extents, None);
    for _ in 0..1000 {
        if store.suspect().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = put(&store, id(30), PACKED).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(store.sums(None, &[Span::ALL]).unwrap_err().kind(), ErrorKind::Conflict);
    all_are_there(&store, &[]).await;
    store.close();
    drop(store);
    let disk = disk.reboot();
    let table = table.powered_by(&disk, true);
    let (store, report) = open(&disk, &table).unwrap();
    assert_eq!(report.extents, Some(8), "{report:?}");
    all_are_there(&store, &[]).await;
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extent_in_quarantine_leaves_its_place() {
    for byte in [2, 7] {
        let (disk, table) = crashed(7, true).await;
        let (store, _) = open(&disk, &table).unwrap();
        let location = store.stat(id(byte)).await.unwrap().location;
        disk.flip(&location.path, location.offset + 5000);
        assert_eq!(get(&store, id(byte)).await.unwrap_err().kind(), ErrorKind::Corrupt);
        counted(&store).await;
        places_are_right(&store);
        drop(store);
        let disk = disk.reboot();
        // Even without the rows since the last flush.
        let (store, report) = open(&disk, &table.powered_by(&disk, false)).unwrap();
        assert_eq!((report.extents, report.quarantined), (None, 0), "{report:?}");
        assert_eq!(store.presence(&[id(byte)]).await.unwrap(), [Presence::Missing]);
        all_are_there(&store, &[byte]).await;
        sums_are_right(&store).await;
        places_are_right(&store);
    }
}

/// Rows of files that the disk doesn't have: an opening that believes the table doesn't look for them.
fn rows(count: u32) -> Vec<Row> {
    let record = |number: u32| {
        let mut bytes = [7; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let NewExtent { owner, layout, .. } = new(ExtentId(bytes), None);
        let extent = ExtentRef { id: ExtentId(bytes), length: 2 << 20, blake3: [0; 32] };
        ExtentRecord { extent, owner, birth_ms: 1, layout }
    };
    (0..count).map(|number| Row { place: RowLocation::File, record: record(number) }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_during_its_count_counts_again() {
    const ROWS: u32 = 40_000;
    let (disk, table) = fresh(8);
    drop(open(&disk, &table).unwrap());
    Table::from(table.clone()).put(&rows(ROWS)).unwrap();
    let (store, report) = open_with(&disk, &table, &clean(None)).unwrap();
    let usage = store.usage();
    assert_eq!((report.extents, usage.is_counting), (None, true));
    assert_eq!(usage.extents, u64::from(ROWS), "the number of places");
    assert!(store.close());
    let error = store.save_space().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    drop(store);
    let (store, _) = open_with(&disk, &table, &clean(None)).unwrap();
    counted(&store).await;
    assert_eq!(store.usage().extents, u64::from(ROWS));
    sums_are_right(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_places_than_of_rows_has_the_rows_read_at_the_next_opening() {
    let (disk, table) = fresh(9);
    drop(open(&disk, &table).unwrap());
    Table::from(table.clone()).put(&rows(20)).unwrap();
    table.toggle_place(file_place(77));
    let (store, report) = open_with(&disk, &table, &clean(None)).unwrap();
    assert_eq!(report.extents, None);
    counted(&store).await;
    assert_eq!(store.usage().extents, 20, "after the count");
    store.close();
    drop(store);
    let table = table.powered_by(&disk, true);
    let (store, report) = open_with(&disk, &table, &clean(None)).unwrap();
    assert_eq!(report.extents, Some(20));
    places_are_right(&store);
}

/// On a full disk no place can be written, and the device opens all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_opens_without_places() {
    // One to begin, one for each folder, and one to end.
    for calls in [0, 1, 5, 9, 10] {
        let (disk, table) = crashed(10, true).await;
        let table = table.without_places();
        table.fill_up_after(calls);
        let (store, report) = open(&disk, &table).unwrap();
        assert_eq!(report.extents, Some(8), "after {calls} writes");
        all_are_there(&store, &[]).await;
        table.fill_up_after(u64::MAX);
        store.delete(&[id(1), id(8)]).await.unwrap();
        no_leaks(&store, &disk).await;
        drop(store);
        let disk = disk.reboot();
        let table = table.powered_by(&disk, true);
        let (store, report) = open(&disk, &table).unwrap();
        let by_rows = (calls < 10).then_some(6);
        assert_eq!(report.extents, by_rows, "after {calls} writes");
        all_are_there(&store, &[1, 8]).await;
        no_leaks(&store, &disk).await;
    }
}

#[test]
fn changes_during_a_count_are_counted_in_any_order() {
    let counters = Counters::default();
    let extent = |byte, length| ExtentRef { id: id(byte), length, blake3: [0; 32] };
    let layout = Layout::default();
    // Two places, of a block each.
    counters.restore(2, 8192, ExtentSums::default());
    counters.begin_count();
    let expected = counters.count();
    assert_eq!(counters.check_counted().unwrap_err().kind(), ErrorKind::Conflict);
    counters.removed(extent(2, 50), layout);
    counters.added(extent(3, 7), layout);
    let usage = counters.snapshot();
    assert_eq!((usage.extents, usage.bytes, usage.is_counting), (2, 8192 - 43, true));
    for row in [extent(1, 100), extent(2, 50)] {
        counters.sums.lock().add(row.id, layout);
    }
    counters.end_count(expected, ExtentCount { extents: 2, bytes: 150 });
    let usage = counters.snapshot();
    assert_eq!((usage.extents, usage.bytes, usage.is_counting), (2, 107, false));
    let mut sums = ExtentSums::default();
    sums.add(id(1), layout);
    sums.add(id(3), layout);
    assert_eq!(*counters.sums.lock(), sums);
}

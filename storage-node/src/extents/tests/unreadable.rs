//! Sectors that the disk can't read, at an opening and in an audit.

use martlet_protocol::ManualClock;
use martlet_protocol::backend::Presence;

use super::*;

const PACKED: usize = 70_000;
const FILE: usize = 1_200_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

/// Breaks a byte of an extent: in its bytes, or in its description.
fn break_extent(disk: &FaultyDisk, location: &ExtentLocation, in_bytes: bool) {
    let file_bytes = disk.names().iter().find(|(path, _)| *path == location.path).unwrap().1;
    let described = if location.offset == 0 { file_bytes - 100 } else { location.offset - 4000 };
    let at = if in_bytes { location.offset + location.length / 2 } else { described };
    disk.break_byte(&location.path, at);
}

/// After an unclean stop rows may be gone, and the opening reads what has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_sector_keeps_no_device_from_opening() {
    for (length, in_bytes) in [(PACKED, true), (PACKED, false), (FILE, true), (FILE, false)] {
        let (disk, table) = fresh(length as u64);
        let (store, _) = open(&disk, &table).unwrap();
        for byte in 1..=3 {
            put(&store, id(byte), length).await.unwrap();
        }
        let location = store.stat(id(2)).await.unwrap().location;
        store.close();
        drop(store);
        let disk = disk.reboot();
        let table = table.powered_by(&disk, false);
        break_extent(&disk, &location, in_bytes);
        let (store, report) = open(&disk, &table).unwrap();
        assert_eq!((report.unreadable, report.quarantined), (1, 1), "{length}, {in_bytes}");
        assert_eq!(report.rediscovered, 2);
        assert!(get(&store, id(2)).await.is_err());
        assert_eq!(store.presence(&[id(2)]).await.unwrap(), [Presence::Missing]);
        for byte in [1, 3] {
            assert!(is_there(&store, id(byte), length).await, "{length}, {in_bytes}");
        }
        // Its space is not used again, and it may be written elsewhere.
        for byte in [2, 4, 5, 6] {
            put(&store, id(byte), length).await.unwrap();
            assert!(is_there(&store, id(byte), length).await);
        }
        sums_are_right(&store).await;
        store.close();
        drop(store);
        let disk = disk.reboot();
        let table = table.powered_by(&disk, true);
        let (store, again) = open(&disk, &table).unwrap();
        assert_eq!((again.unreadable, store.usage().quarantined), (0, 1));
        assert!(is_there(&store, id(1), length).await && is_there(&store, id(2), length).await);
    }
}

/// The space of no record: a free run of a volume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_block_of_free_space_is_not_used_again() {
    let (disk, table) = fresh(9);
    let (store, _) = open(&disk, &table).unwrap();
    for byte in 1..=4 {
        put(&store, id(byte), PACKED).await.unwrap();
    }
    let location = store.stat(id(2)).await.unwrap().location;
    store.delete(&[id(2)]).await.unwrap();
    store.close();
    drop(store);
    let disk = disk.reboot();
    let table = table.powered_by(&disk, false);
    let broken = location.offset + 20_000;
    disk.break_byte(&location.path, broken);
    let (store, report) = open(&disk, &table).unwrap();
    assert_eq!((report.unreadable, report.rediscovered), (1, 3), "{report:?}");
    for byte in 5..=12 {
        let extent = put(&store, id(byte), 9000).await.unwrap();
        let taken = store.stat(extent.id).await.unwrap().location;
        let run = taken.offset - 4096..taken.offset + 12_288;
        assert!(taken.path != location.path || !run.contains(&broken), "{taken:?}");
        assert!(is_there(&store, extent.id, 9000).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_can_read_almost_nothing_is_not_judged() {
    let (disk, table) = fresh(3);
    let (store, _) = open(&disk, &table).unwrap();
    let mut locations = Vec::new();
    for byte in 1..=70 {
        put(&store, id(byte), 5000).await.unwrap();
        locations.push(store.stat(id(byte)).await.unwrap().location);
    }
    store.close();
    drop(store);
    let disk = disk.reboot();
    let table = table.powered_by(&disk, false);
    for location in &locations {
        break_extent(&disk, location, false);
    }
    let error = open(&disk, &table).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

fn open_at(disk: &FaultyDisk, table: &MemoryTable, clock: &Arc<ManualClock>) -> ExtentStore {
    let disk = Arc::new(disk.clone());
    ExtentStore::open(Path::new(ROOT), disk, table.clone(), clock.clone(), &options()).unwrap().0
}

/// A store with two extents of this length, of which the disk can't read the first one.
async fn with_a_broken_extent(
    seed: u64,
    length: usize,
) -> (FaultyDisk, Arc<ManualClock>, ExtentStore, ExtentLocation) {
    let (disk, table) = fresh(seed);
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let store = open_at(&disk, &table, &clock);
    put(&store, id(1), length).await.unwrap();
    put(&store, id(2), length).await.unwrap();
    let location = store.stat(id(1)).await.unwrap().location;
    break_extent(&disk, &location, true);
    (disk, clock, store, location)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passing_error_of_the_disk_sets_nothing_aside() {
    for length in [PACKED, FILE] {
        let (disk, clock, store, location) = with_a_broken_extent(4, length).await;
        // Any number of failures within a minute counts once, and twice over a minute.
        for _ in 0..5 {
            let audited = store.audit(None, u64::MAX).await.unwrap();
            assert_eq!((audited.items, audited.corrupt), (2, vec![]), "{length} bytes");
            clock.advance_ms(15_000);
        }
        assert_eq!(store.usage().quarantined, 0);
        disk.mend_bytes();
        clock.advance_ms(600_000);
        assert_eq!(store.audit(None, u64::MAX).await.unwrap().corrupt, []);
        assert!(is_there(&store, id(1), length).await);
        // Failures of long ago don't count.
        break_extent(&disk, &location, true);
        clock.advance_ms(60_000);
        assert_eq!(store.audit(None, u64::MAX).await.unwrap().corrupt, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extent_that_stays_unreadable_for_minutes_is_set_aside_wherever_the_audit_is() {
    for length in [PACKED, FILE] {
        let (_, clock, store, _) = with_a_broken_extent(5, length).await;
        assert_eq!(store.audit(None, u64::MAX).await.unwrap().corrupt, []);
        let mut found = Vec::new();
        for _ in 0..2 {
            clock.advance_ms(60_000);
            // The walk has passed the extent.
            let audited = store.audit(Some(id(1)), u64::MAX).await.unwrap();
            assert_eq!(audited.items, 1);
            found.push(audited.corrupt);
        }
        assert_eq!(found, [vec![], vec![id(1)]], "{length} bytes");
        assert_eq!(store.usage().quarantined, 1);
        assert_eq!(store.presence(&[id(1)]).await.unwrap(), [Presence::Missing]);
        assert!(is_there(&store, id(2), length).await);
        clock.advance_ms(60_000);
        assert_eq!(store.audit(None, u64::MAX).await.unwrap().corrupt, []);
    }
}

/// An error that checksums prove is believed at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failed_call_of_the_disk_is_read_again_and_a_flipped_bit_is_not() {
    let (disk, table) = fresh(6);
    let (store, _) = open(&disk, &table).unwrap();
    put(&store, id(1), FILE).await.unwrap();
    for calls in 0..4 {
        disk.fail_after(calls, DiskFault::Io);
        assert_eq!(store.audit(None, u64::MAX).await.unwrap().corrupt, []);
        disk.heal();
    }
    let location = store.stat(id(1)).await.unwrap().location;
    disk.flip(&location.path, 77);
    assert_eq!(store.audit(None, u64::MAX).await.unwrap().corrupt, [id(1)]);
}

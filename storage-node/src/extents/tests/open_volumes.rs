//! Openings after a crash that inspect only the places that the table names.

use std::collections::BTreeMap;

use super::*;

const LENGTH: usize = 70_000;
const CHANGES: u64 = 24;

/// State of an extent, as its writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Stored,
    Deleted,
    /// A write or a delete failed.
    Unknown,
}

fn id(number: u64) -> ExtentId {
    ExtentId(((u128::from(number) << 64) | 1).to_be_bytes())
}

fn quarantine() -> std::path::PathBuf {
    quarantine::folder(Path::new(ROOT))
}

/// Fills some volumes and deletes every second extent.
async fn filled(store: &ExtentStore) {
    for number in 0..28 {
        put(store, id(number), LENGTH).await.unwrap();
    }
    let every_second: Vec<_> = (0..28).step_by(2).map(id).collect();
    store.delete(&every_second).await.unwrap();
}

/// Opens a store as after a crash, and returns the number of calls of the disk.
fn calls_of_opening(disk: &FaultyDisk, table: &MemoryTable) -> (ExtentStore, u64) {
    let before = disk.calls();
    let (store, _) = open(disk, table).unwrap();
    (store, disk.calls() - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_only_volumes_in_use_to_inspect() {
    let (disk, table) = fresh(1);
    let (store, _) = open(&disk, &table).unwrap();
    filled(&store).await;
    let volumes = |table: &MemoryTable| {
        Table::from(table.clone()).unsettled().unwrap().unwrap().volumes.len()
    };
    let all = volumes(&table);
    assert!(all >= 4, "{all} volumes");
    assert_eq!(store.close_idle_volumes(Duration::from_mins(1)).unwrap(), 0, "all are in use");
    assert_eq!(store.close_idle_volumes(Duration::ZERO).unwrap(), all);
    put(&store, id(100), LENGTH).await.unwrap();
    assert_eq!(volumes(&table), 1);
    drop(store);

    let disk = disk.reboot();
    // Rows since the last flush are lost: that of the last extent is found in its volume.
    let table = table.powered_by(&disk, false);
    let (store, report) = open(&disk, &table).unwrap();
    assert_eq!(report.rediscovered, 1, "{report:?}");
    assert!(is_there(&store, id(100), LENGTH).await);
    assert!(is_there(&store, id(1), LENGTH).await && !is_there(&store, id(2), LENGTH).await);
    no_leaks(&store, &disk).await;
    drop(store);
    let (store, few) = calls_of_opening(&disk, &table);
    drop(store);
    // An index that knows of no places has the free space of all volumes inspected.
    let (store, many) = calls_of_opening(&disk, &table.without_unsettled_places());
    assert!(is_there(&store, id(100), LENGTH).await);
    assert!(many >= few + 2 * all as u64, "{few} calls of {many}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_header_of_a_deleted_record_is_found_in_a_closed_volume() {
    let (disk, table) = fresh(2);
    let (store, _) = open(&disk, &table).unwrap();
    filled(&store).await;
    store.close_idle_volumes(Duration::ZERO).unwrap();
    // The mark is set, and the power is cut before the header is zero.
    disk.fail_after(1, DiskFault::PowerCut);
    drop(store.delete(&[id(1)]).await);
    drop(store);
    let disk = disk.reboot();
    let (store, report) = open(&disk, &table.powered_by(&disk, false)).unwrap();
    assert_eq!(report.deleted, 1, "{report:?}");
    assert!(!is_there(&store, id(1), LENGTH).await);
    no_leaks(&store, &disk).await;
}

/// Makes random changes until the disk is dead or all are done; returns what their caller knows.
async fn change(store: &ExtentStore, seed: u64) -> BTreeMap<u64, Known> {
    let mut known = BTreeMap::new();
    for number in 0..CHANGES {
        let choice = (seed + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let length = if choice.is_multiple_of(13) { 1_200_000 } else { LENGTH };
        let before = choice / 5 % (number + 1);
        match choice % 5 {
            0 => {
                let _ = store.close_idle_volumes(Duration::ZERO);
            }
            1 if known.get(&before) == Some(&Known::Stored) => {
                let deleted = store.delete(&[id(before)]).await;
                let state = if deleted.is_ok() { Known::Deleted } else { Known::Unknown };
                known.insert(before, state);
            }
            _ => {
                let stored = put(store, id(number), length).await;
                let state = if stored.is_ok() { Known::Stored } else { Known::Unknown };
                known.insert(number, state);
            }
        }
    }
    known
}

async fn exists(store: &ExtentStore, number: u64) -> bool {
    match get(store, id(number)).await {
        Ok(bytes) => {
            assert!(bytes == pattern(id(number), bytes.len()), "extent {number} is another");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inspection_of_named_places_leaves_nothing_to_a_full_one() {
    let given = std::env::var("MARTLET_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = given.unwrap_or_else(|| SystemClock.now_ms() % 1_000_000);
    let mut found = 0;
    for seed in first..first + 150 {
        eprintln!("MARTLET_SEED={seed}");
        let (disk, table) = fresh(seed);
        let (store, _) = open(&disk, &table).unwrap();
        let fault = [DiskFault::PowerCut, DiskFault::PowerCut, DiskFault::Io, DiskFault::NoSpace];
        disk.fail_after(seed * 7 % 120, fault[usize::try_from(seed % 4).unwrap()]);
        let known = change(&store, seed).await;
        drop(store);
        let (mut disk, mut table) = (disk, table);
        for again in [seed % 23, seed % 57, u64::MAX] {
            disk = disk.reboot();
            table = table.powered_by(&disk, false);
            if again < u64::MAX {
                disk.fail_after(again, DiskFault::PowerCut);
                drop(open(&disk, &table));
            }
        }
        let (store, report) = open(&disk, &table).unwrap();
        found += report.rediscovered + report.unfinished + report.deleted;
        let aside = disk.names().into_iter().filter(|(path, _)| path.starts_with(quarantine()));
        let aside: Vec<_> = aside.collect();
        assert!(report.missing.is_empty() && aside.is_empty(), "seed {seed}: {report:?} {aside:?}");
        for (number, state) in &known {
            let exists = exists(&store, *number).await;
            let fits = *state == Known::Unknown || exists == (*state == Known::Stored);
            assert!(fits, "seed {seed}: extent {number} is {state:?}, and exists: {exists}");
        }
        no_leaks(&store, &disk).await;
        let free = store.usage().volume_free_bytes;
        drop(store);
        let full = table.without_unsettled_places();
        for table in [full.clone(), full.without_places()] {
            let (store, report) = open(&disk, &table).unwrap();
            let nothing = RecoveryReport { extents: report.extents, ..RecoveryReport::default() };
            assert_eq!(report, nothing, "seed {seed}: a full inspection finds more");
            assert_eq!(store.usage().volume_free_bytes, free, "seed {seed}");
            no_leaks(&store, &disk).await;
            store.close();
        }
    }
    assert!(found > 50, "only {found} things were found without a row");
}

//! Openings that believe the free space that was saved at the last closing, and those that must not.

use super::*;

const LENGTH: usize = 70_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

fn saved() -> std::path::PathBuf {
    Path::new(ROOT).join("free-space")
}

/// Fills volumes and deletes some extents; returns the store, closed in good order.
async fn closed(disk: &FaultyDisk, table: &MemoryTable) -> ExtentStore {
    let (store, _) = open(disk, table).unwrap();
    for byte in 1..=20 {
        put(&store, id(byte), LENGTH * usize::from(byte % 3 + 1) / 2).await.unwrap();
    }
    put(&store, id(21), 1_200_000).await.unwrap();
    store.delete(&[id(3), id(4), id(8), id(20)]).await.unwrap();
    assert!(store.close());
    store
}

/// Returns true if an opening believes the map with this hash. Without rows, only the map knows of
/// extents.
fn believes(disk: &FaultyDisk, hash: [u8; 32]) -> bool {
    let (store, report) = open_with(disk, &without_rows(disk), &clean(Some(hash))).unwrap();
    assert!(report.rediscovered == 0 && [None, Some(17)].contains(&report.extents), "{report:?}");
    store.close();
    report.extents == Some(17)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_space_and_counts_are_those_of_the_closing() {
    let (disk, table) = fresh(1);
    let store = closed(&disk, &table).await;
    let (before, hash) = (store.usage(), store.save_space().unwrap());
    drop(store);
    let (store, report) = open_with(&disk, &table, &clean(Some(hash))).unwrap();
    assert_eq!(report, RecoveryReport { extents: Some(17), ..RecoveryReport::default() });
    let usage = store.usage();
    assert_eq!((usage.extents, usage.bytes), (before.extents, before.bytes));
    assert_eq!(usage.volume_free_bytes, before.volume_free_bytes);
    no_leaks(&store, &disk).await;
    for byte in 30..50 {
        put(&store, id(byte), LENGTH).await.unwrap();
    }
    store.delete(&[id(1)]).await.unwrap();
    for byte in (2..=21).chain(30..50).filter(|byte| ![3, 4, 8, 20].contains(byte)) {
        assert!(get(&store, id(byte)).await.is_ok(), "extent {byte} was overwritten");
    }
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_that_a_reader_still_uses_at_the_closing_is_free_at_the_next_opening() {
    let (disk, table) = fresh(2);
    let (store, _) = open(&disk, &table).unwrap();
    put(&store, id(1), LENGTH).await.unwrap();
    put(&store, id(2), LENGTH).await.unwrap();
    let mut reader = store.read(id(1), 0..LENGTH as u64).await.unwrap();
    store.delete(&[id(1)]).await.unwrap();
    assert!(store.close());
    let hash = store.save_space().unwrap();
    assert!(reader.next().await.unwrap().is_ok());
    drop((reader, store));
    let (store, _) = open_with(&disk, &table, &clean(Some(hash))).unwrap();
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_changed_in_any_byte_is_not_believed() {
    let (disk, table) = fresh(3);
    let hash = closed(&disk, &table).await.save_space().unwrap();
    let bytes = disk.names().iter().find(|(path, _)| *path == saved()).unwrap().1;
    assert!(believes(&disk, hash));
    for at in 0..bytes {
        disk.flip(&saved(), at);
        assert!(!believes(&disk, hash), "byte {at} of {bytes}");
        disk.flip(&saved(), at);
    }
    assert!(believes(&disk, hash));
    let file = disk.open(&saved(), crate::disk::Caching::Cached).unwrap();
    for shorter in [bytes - 1, bytes - 8, 40, 39, 0] {
        file.truncate(shorter).unwrap();
        assert!(!believes(&disk, hash), "{shorter} of {bytes} bytes");
    }
    disk.unlink(&saved()).unwrap();
    assert!(!believes(&disk, hash), "no map at all");
    let (store, report) = open_with(&disk, &table, &clean(Some(hash))).unwrap();
    assert_eq!(report.extents, None, "places are believed");
    counted(&store).await;
    assert_eq!(store.usage().extents, 17);
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_of_another_closing_is_not_believed() {
    let (disk, table) = fresh(4);
    let old = closed(&disk, &table).await.save_space().unwrap();
    let (store, _) = open_with(&disk, &table, &clean(Some(old))).unwrap();
    put(&store, id(40), LENGTH).await.unwrap();
    assert!(store.close());
    // The map of the first closing is still there, and its hash is not that of this closing.
    let other = store.usage();
    drop(store);
    let (store, report) = open_with(&disk, &table, &clean(Some([7; 32]))).unwrap();
    assert_eq!(report.extents, None, "places are believed");
    counted(&store).await;
    assert_eq!(store.usage().extents, other.extents);
    for byte in 50..60 {
        put(&store, id(byte), LENGTH).await.unwrap();
    }
    assert!(is_there(&store, id(40), LENGTH).await);
    no_leaks(&store, &disk).await;
    // After this closing, volumes have grown beyond those of the first map.
    assert!(store.close());
    drop(store);
    let (store, _) = open_with(&disk, &table, &clean(Some(old))).unwrap();
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_changed_since_the_shutdown_makes_rows_authoritative() {
    let (disk, table) = fresh(5);
    let hash = closed(&disk, &table).await.save_space().unwrap();
    let name = Path::new(ROOT).join("quarantine/volume-0-4096-4096");
    disk.create(&name, crate::disk::Caching::Cached).unwrap();
    assert!(!believes(&disk, hash));
    disk.unlink(&name).unwrap();
    assert!(believes(&disk, hash));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_while_the_map_is_saved_leaves_the_old_map_or_the_new_one() {
    let mut cuts = 0;
    for seed in 0..8 {
        for calls in 0.. {
            let (disk, table) = fresh(seed * 100 + calls);
            let old = closed(&disk, &table).await.save_space().unwrap();
            let (store, _) = open_with(&disk, &table, &clean(Some(old))).unwrap();
            store.delete(&[id(1)]).await.unwrap();
            put(&store, id(1 + 40), LENGTH).await.unwrap();
            assert!(store.close());
            disk.fail_after(calls, DiskFault::PowerCut);
            let saved = store.save_space();
            disk.heal();
            let cut = disk.is_dead();
            drop(store);
            let disk = disk.reboot();
            // The marker is written after the map. So only the hash of a map that was saved can be
            // in a marker, and every other opening inspects the disk.
            if let Ok(hash) = saved {
                assert!(believes(&disk, hash), "call {calls}");
            } else {
                let (store, _) = open(&disk, &table.powered_by(&disk, true)).unwrap();
                assert!(is_there(&store, id(41), LENGTH).await);
                no_leaks(&store, &disk).await;
            }
            if !cut {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 30, "only {cuts} cuts");
}

//! Volumes whose head, or whose head's copy, the disk lost.

use super::*;

const LENGTH: usize = 70_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

fn volume() -> std::path::PathBuf {
    Path::new(ROOT).join("volumes/0.vol")
}

/// Returns disk and table of a closed store with two records.
async fn closed(seed: u64) -> (FaultyDisk, MemoryTable) {
    let (disk, table) = fresh(seed);
    let (store, _) = open(&disk, &table).unwrap();
    put(&store, id(1), LENGTH).await.unwrap();
    put(&store, id(2), LENGTH).await.unwrap();
    store.close();
    (disk.reboot(), table)
}

/// Opens the store twice, without its rows and with them; both extents must exist.
async fn opens(disk: &FaultyDisk, table: &MemoryTable, keep_rows: bool) {
    for keep_rows in [keep_rows, true] {
        let table = table.powered_by(disk, keep_rows);
        let (store, report) = open(disk, &table).unwrap();
        assert_eq!(report.quarantined, 0, "{report:?}");
        assert!(is_there(&store, id(1), LENGTH).await && is_there(&store, id(2), LENGTH).await);
        no_leaks(&store, disk).await;
        store.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_in_the_head_of_a_volume_costs_nothing() {
    for at in [0, 9, 13, 20, 47, 70, 95] {
        for keep_rows in [true, false] {
            let (disk, table) = closed(at).await;
            disk.flip(&volume(), at);
            opens(&disk, &table, keep_rows).await;
            // The head was repaired: the copy may now be lost.
            let copy = heads().join("0.head");
            disk.unlink(&copy).unwrap();
            opens(&disk, &table, keep_rows).await;
            disk.flip(&copy, at);
            opens(&disk, &table, keep_rows).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_cannot_be_read_costs_nothing() {
    for keep_rows in [true, false] {
        for broken in [volume(), heads().join("0.head")] {
            let (disk, table) = closed(5).await;
            disk.break_byte(&broken, 40);
            opens(&disk, &table, keep_rows).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_of_before_there_were_copies_get_theirs() {
    let (disk, table) = closed(6).await;
    disk.unlink(&heads().join("0.head")).unwrap();
    opens(&disk, &table, false).await;
    assert!(disk.names().iter().any(|(path, _)| *path == heads().join("0.head")));
    let disk = disk.reboot();
    disk.flip(&volume(), 20);
    opens(&disk, &table, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_without_head_and_copy_is_set_aside() {
    let (disk, table) = closed(7).await;
    disk.flip(&volume(), 20);
    disk.flip(&heads().join("0.head"), 30);
    let table = table.powered_by(&disk, true);
    let (store, report) = open(&disk, &table).unwrap();
    assert_eq!((report.quarantined, report.missing.len()), (1, 2), "{report:?}");
    put(&store, id(3), LENGTH).await.unwrap();
    assert!(is_there(&store, id(3), LENGTH).await);
}

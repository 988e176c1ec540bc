//! Packed extents on a file system without free space, after deletes.

use super::*;

const RESERVE_BYTES: u64 = 1_000_000;

/// Opens a store that keeps [`RESERVE_BYTES`] free.
fn open_reserved(disk: &FaultyDisk, table: &MemoryTable) -> ExtentStore {
    let options = ExtentOptions { reserve_bytes: RESERVE_BYTES, ..options() };
    open_with(disk, table, &options).unwrap().0
}

/// Fills the disk, as far as new extents may.
async fn fill(disk: &FaultyDisk) {
    disk.set_free_bytes(RESERVE_BYTES);
    // The store remembers the free space for 200 ms.
    tokio::time::sleep(Duration::from_millis(250)).await;
}

fn id(number: u64) -> ExtentId {
    ExtentId((u128::from(number) << 64 | 7).to_be_bytes())
}

/// Lengths of packed extents, from 8 KiB to 200 KiB, in no order.
fn length(number: u64) -> usize {
    let step = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    8192 + usize::try_from(step % (192 * 1024)).unwrap()
}

fn is_deleted(number: u64) -> bool {
    number.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 63 == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_of_random_deletes_is_reused_without_free_space() {
    let (disk, table) = fresh(1);
    let store = open_reserved(&disk, &table);
    for number in 0..300 {
        put(&store, id(number), length(number)).await.unwrap();
    }
    fill(&disk).await;
    // What was preallocated is used up first.
    let mut next = 300;
    let mut refused = 0;
    while refused < 50 {
        match put(&store, id(next), length(next)).await {
            Ok(_) => refused = 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                refused += 1;
            }
        }
        next += 1;
    }
    let gone: Vec<u64> = (0..300).filter(|number| is_deleted(*number)).collect();
    let deleted: usize = gone.iter().map(|number| length(*number)).sum();
    let ids: Vec<_> = gone.iter().map(|number| id(*number)).collect();
    store.delete(&ids).await.unwrap();
    let mut written = 0;
    for number in 1000..1800 {
        match put(&store, id(number), length(number)).await {
            Ok(extent) => written += extent.length as usize,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
        }
    }
    assert!(written * 10 >= deleted * 8, "{written} of {deleted} bytes");
    for number in (0..300).filter(|number| !is_deleted(*number)) {
        assert!(is_there(&store, id(number), length(number)).await, "{number}");
    }
    no_leaks(&store, &disk).await;
    assert_eq!(store.suspect(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_device_returns_short_runs_with_one_sync_for_many() {
    let (disk, table) = fresh(2);
    let options = ExtentOptions {
        volume_bytes: 8 << 20,
        punch_bytes_min: 4 << 20,
        reserve_bytes: RESERVE_BYTES,
        ..options()
    };
    let (store, _) = open_with(&disk, &table, &options).unwrap();
    for number in 0..60 {
        put(&store, id(number), 100_000).await.unwrap();
    }
    let ids: Vec<_> = (0..60).step_by(2).map(id).collect();
    store.delete(&ids).await.unwrap();
    assert_eq!(store.reclaim(100, false).unwrap(), 0, "no run is long");
    let free = store.usage().volume_free_bytes;
    let calls = disk.calls();
    let returned = store.reclaim(100, true).unwrap();
    assert!(returned >= 30 * 100_000, "{returned} bytes");
    // A hole for each run, and one sync.
    let calls = disk.calls() - calls;
    assert!(calls <= 31, "{calls} calls for 30 runs");
    assert_eq!(store.reclaim(100, true).unwrap(), 0);
    assert_eq!(store.usage().volume_free_bytes, free);

    // A hole needs blocks of the file system again.
    fill(&disk).await;
    assert!(!store.has_blocks_for(100_000));
    let error = put(&store, id(100), 100_000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    disk.set_free_bytes(RESERVE_BYTES * 4);
    tokio::time::sleep(Duration::from_millis(250)).await;
    put(&store, id(101), 100_000).await.unwrap();
    for number in (1..60).step_by(2).chain([101]) {
        assert!(is_there(&store, id(number), 100_000).await, "{number}");
    }
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_of_an_unknown_past_take_no_extent_on_a_full_disk() {
    let (disk, table) = fresh(3);
    let store = open_reserved(&disk, &table);
    for number in 0..20 {
        put(&store, id(number), 60_000).await.unwrap();
    }
    store.delete(&[id(3), id(9)]).await.unwrap();
    assert!(store.has_blocks_for(60_000) && !store.has_blocks_for(2_000_000));
    store.close();
    drop(store);
    let disk = disk.reboot();
    let store = open_reserved(&disk, &table.powered_by(&disk, true));
    let gaps = store.usage().volume_free_bytes;
    assert!(gaps >= 120_000);
    // The gaps may be holes; they are returned, and are holes from then on.
    let returned = store.reclaim(100, true).unwrap();
    assert!(returned >= 120_000, "{returned} bytes");
    assert!(!store.has_blocks_for(8192));
    assert_eq!(store.usage().volume_free_bytes, gaps);
}

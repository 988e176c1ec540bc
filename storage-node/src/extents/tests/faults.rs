//! Disk errors, bit rot, and the errors that the store returns.

use futures::FutureExt;

use super::*;

const PACKED: usize = 70_000;
const FILE: usize = 1_200_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_at_any_call_of_a_put_loses_nothing_that_was_acknowledged() {
    for length in [PACKED, FILE] {
        for fault in [DiskFault::Io, DiskFault::NoSpace] {
            for calls in 0.. {
                let (disk, table) = fresh(calls);
                let (store, _) = open(&disk, &table).unwrap();
                put(&store, id(1), length).await.unwrap();
                disk.fail_after(calls, fault);
                let outcome = put(&store, id(2), length).await;
                if disk.heal() {
                    assert!(calls >= 2, "only {calls} calls");
                    break;
                }
                let suspect = store.suspect().is_some();
                if let Err(error) = &outcome {
                    let right = error.kind() == ErrorKind::Full || fault == DiskFault::Io;
                    assert!(right, "{error}");
                }
                assert!(is_there(&store, id(1), length).await);
                assert_eq!(outcome.is_ok(), is_there(&store, id(2), length).await);
                if suspect {
                    let error = put(&store, id(3), length).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                } else {
                    put(&store, id(3), length).await.unwrap();
                }
                let clean = store.close();
                assert!(!suspect || !clean);
                let disk = disk.reboot();
                let table = table.powered_by(&disk, calls % 2 == 0);
                let (store, _) = open(&disk, &table).unwrap();
                assert!(is_there(&store, id(1), length).await);
                assert!(is_there(&store, id(2), length).await || outcome.is_err());
                assert_eq!(is_there(&store, id(3), length).await, !suspect);
                no_leaks(&store, &disk).await;
            }
        }
    }
}

/// A failed sync leaves pages that count as clean and may not be on disk. An opening in the same boot
/// must not take these pages for the extent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_after_a_failed_sync_keeps_only_what_a_power_cut_leaves() {
    let (mut kept, mut gone) = (0, 0);
    for (length, seed) in [PACKED, FILE].into_iter().flat_map(|it| (0..6).map(move |s| (it, s))) {
        for calls in 0.. {
            let (disk, table) = fresh(seed * 1000 + calls);
            let (store, _) = open(&disk, &table).unwrap();
            put(&store, id(1), length).await.unwrap();
            disk.fail_after(calls, DiskFault::Io);
            let outcome = put(&store, id(2), length).await;
            if disk.heal() {
                break;
            }
            store.close();
            drop(store);
            let (store, _) = open(&disk, &table).unwrap();
            let is_here = is_there(&store, id(2), length).await;
            assert!(is_here || outcome.is_err());
            store.close();
            drop(store);
            let disk = disk.reboot();
            let table = table.powered_by(&disk, calls % 2 == 0);
            let (store, report) = open(&disk, &table).unwrap();
            assert!(report.missing.is_empty() && report.quarantined == 0, "{report:?}");
            assert!(is_there(&store, id(1), length).await);
            // An extent that is gone may return: its removal may not have reached the disk.
            let is_left = is_there(&store, id(2), length).await;
            assert!(is_left || !is_here, "call {calls}, seed {seed}");
            kept += usize::from(is_here);
            gone += usize::from(!is_here);
        }
    }
    println!("{kept} extents stayed, {gone} were removed");
    assert!(kept > 0 && gone > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_never_served_and_the_extent_is_set_aside() {
    for length in [PACKED, FILE] {
        for at in [0, 65_535, 65_536, length as u64 - 1] {
            let (disk, table) = fresh(at);
            let (store, _) = open(&disk, &table).unwrap();
            put(&store, id(1), length).await.unwrap();
            put(&store, id(2), length).await.unwrap();
            let location = store.stat(id(1)).await.unwrap().location;
            disk.flip(&location.path, location.offset + at);
            let error = get(&store, id(1)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let usage = store.usage();
            assert_eq!((usage.corrupt_reads, usage.quarantined, usage.extents), (1, 1, 1));
            sums_are_right(&store).await;
            let again = store.read(id(1), 0..1).await.err().unwrap();
            assert_eq!(again.kind(), ErrorKind::Corrupt, "no part of it is served any more");
            assert_eq!(store.list(None, 9).await.unwrap().len(), 1);
            assert!(is_there(&store, id(2), length).await);
            store.close();
            let (disk, table) = (disk.reboot(), table.clone());
            let table = table.powered_by(&disk, at % 2 == 0);
            let (store, report) = open(&disk, &table).unwrap();
            assert!(report.missing.is_empty(), "{report:?}");
            assert!(get(&store, id(1)).await.is_err(), "it is back");
            assert_eq!(store.usage().quarantined, 1);
            put(&store, id(3), length).await.unwrap();
            assert!(is_there(&store, id(2), length).await);
            assert!(is_there(&store, id(3), length).await, "the space set aside is left alone");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rotten_file_of_one_extent_is_kept_and_counted() {
    let (disk, table) = fresh(3);
    let (store, _) = open(&disk, &table).unwrap();
    for at in [5000, 9000] {
        put(&store, id(1), FILE).await.unwrap();
        let location = store.stat(id(1)).await.unwrap().location;
        disk.flip(&location.path, at);
        assert!(get(&store, id(1)).await.is_err());
    }
    put(&store, id(2), FILE).await.unwrap();
    // Nothing is left to keep of a file that an operator removed.
    put(&store, id(3), FILE).await.unwrap();
    disk.unlink(&footer::path(Path::new(ROOT), id(3))).unwrap();
    store.0.set_aside(id(3)).unwrap();
    let items = store.quarantine(None, 10).await.unwrap().items;
    let names: Vec<_> = items.into_iter().map(|item| item.name).collect();
    assert_eq!(names, [id(1).to_string(), format!("{}.2", id(1))]);
    assert_eq!(store.usage().quarantined, 2);
    assert!(store.close());
    let hash = store.save_space().unwrap();
    drop(store);
    // Without rows, only the map that was saved knows of the extent.
    let (store, _) = open_with(&disk, &without_rows(&disk), &clean(Some(hash))).unwrap();
    assert_eq!((store.usage().quarantined, store.usage().extents), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_are_not_touched_are_not_judged() {
    let (disk, table) = fresh(7);
    let (store, _) = open(&disk, &table).unwrap();
    put(&store, id(1), FILE).await.unwrap();
    let location = store.stat(id(1)).await.unwrap().location;
    disk.flip(&location.path, 70_000);
    let stream = store.read(id(1), 0..65_536).await.unwrap();
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(pieces.concat(), pattern(id(1), FILE)[..65_536]);
    assert!(store.read(id(1), 65_536..65_537).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotten_description_is_set_aside_when_it_is_found() {
    for (length, back) in [(PACKED, false), (FILE, true)] {
        let (disk, table) = fresh(1);
        let (store, _) = open(&disk, &table).unwrap();
        put(&store, id(1), length).await.unwrap();
        let location = store.stat(id(1)).await.unwrap().location;
        store.close();
        // A record's head lies before its bytes, a file's head at its end.
        let file_bytes = disk.names().iter().find(|(path, _)| *path == location.path).unwrap().1;
        let at = if back { file_bytes - 512 + 100 } else { location.offset - 4096 + 100 };
        disk.flip(&location.path, at);
        for keep_rows in [true, false] {
            let disk = disk.reboot();
            let table = table.powered_by(&disk, keep_rows);
            let (store, report) = open(&disk, &table).unwrap();
            assert!(get(&store, id(1)).await.is_err());
            assert_eq!(store.usage().quarantined, 1, "{report:?}");
            sums_are_right(&store).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_above_its_mark_takes_no_more_and_gives_back_what_is_deleted() {
    let (disk, table) = fresh(3);
    let (store, _) = {
        let (disk, clock) = (Arc::new(disk.clone()), Arc::new(SystemClock));
        let options = ExtentOptions { reserve_bytes: 1_000_000, ..options() };
        ExtentStore::open(Path::new(ROOT), disk, table, clock, &options).unwrap()
    };
    for byte in 1..=6 {
        put(&store, id(byte), PACKED).await.unwrap();
    }
    disk.set_free_bytes(1_000_000);
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(put(&store, id(10), FILE).await.unwrap_err().kind(), ErrorKind::Full);
    assert!(is_there(&store, id(1), PACKED).await);
    let ids: Vec<_> = (1..=5).map(id).collect();
    store.delete(&ids).await.unwrap();
    put(&store, id(11), PACKED).await.unwrap();
    let free = store.usage().volume_free_bytes;
    let given = store.reclaim(10, false).unwrap();
    assert!(given >= 3 * PACKED as u64, "{given} bytes");
    assert_eq!(store.usage().volume_free_bytes, free, "it can be written again");
    assert_eq!(store.reclaim(10, false).unwrap(), 0);
    assert!(is_there(&store, id(6), PACKED).await && is_there(&store, id(11), PACKED).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_used_once() {
    let (disk, table) = fresh(5);
    let (store, _) = open(&disk, &table).unwrap();
    for length in [PACKED, FILE] {
        put(&store, id(1), length).await.ok();
        for other in [PACKED, FILE] {
            assert_eq!(put(&store, id(1), other).await.unwrap_err().kind(), ErrorKind::Conflict);
        }
        store.delete(&[id(1)]).await.unwrap();
        let error = put(&store, id(1), length).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "a delete that came first has won: {error}");
    }
    store.forget_marks(SystemClock.now_ms() + 1).unwrap();
    put(&store, id(1), PACKED).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_a_sync() {
    let (disk, table) = fresh(6);
    let (store, _) = open(&disk, &table).unwrap();
    put(&store, id(100), 4096).await.unwrap();
    let before = store.usage().syncs;
    let writes: Vec<_> = {
        let _busy = disk.hold();
        let spawn = |byte| {
            let store = store.clone();
            tokio::spawn(async move { put(&store, id(byte + 1), 4096).await.map(|_| ()) })
        };
        let writes = (0..64u8).map(spawn).collect();
        std::thread::park_timeout(Duration::from_millis(300));
        writes
    };
    for write in writes {
        write.await.unwrap().unwrap();
    }
    let usage = store.usage();
    assert_eq!((usage.writes, usage.extents), (65, 65));
    let syncs = usage.syncs - before;
    assert!(syncs < 16, "{syncs} syncs for what waited while the disk was busy");
    assert!(store.close());
    let error = put(&store, id(99), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_that_flipped_in_memory_sets_nothing_aside() {
    for length in [PACKED, FILE] {
        // In the bytes, and in the extent's description.
        for in_bytes in [true, false] {
            let (disk, table) = fresh(length as u64);
            let (store, _) = open(&disk, &table).unwrap();
            put(&store, id(1), length).await.unwrap();
            let location = store.stat(id(1)).await.unwrap().location;
            let names = disk.names();
            let file_bytes = names.iter().find(|(path, _)| *path == location.path).unwrap().1;
            let described =
                if length == PACKED { location.offset - 4000 } else { file_bytes - 400 };
            let at = if in_bytes { location.offset + length as u64 / 2 } else { described };
            disk.flip_cached(&location.path, at);
            assert!(is_there(&store, id(1), length).await);
            let usage = store.usage();
            assert_eq!((usage.corrupt_reads, usage.quarantined, usage.extents), (1, 0, 1));
            assert!(is_there(&store, id(1), length).await, "the cache has let go of it");
            assert_eq!(store.usage().corrupt_reads, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_without_a_waiting_caller_frees_its_space() {
    let (disk, table) = fresh(21);
    let (store, _) = open(&disk, &table).unwrap();
    for byte in 1..=3 {
        put(&store, id(byte), PACKED).await.unwrap();
    }
    let before = store.usage().volume_free_bytes;
    // The caller goes away at the first wait.
    drop(store.delete(&[id(1)]).now_or_never());
    drop(store.release(&[id(2)]).now_or_never());
    let freed = before + 2 * record::record_bytes(PACKED as u64);
    let began = std::time::Instant::now();
    while store.usage().volume_free_bytes < freed {
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(20), "{:?}", store.usage());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(is_there(&store, id(3), PACKED).await);
    no_leaks(&store, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_amid_a_delete_is_not_in_order() {
    for seed in 0..20 {
        let (disk, table) = fresh(seed);
        let (store, _) = open(&disk, &table).unwrap();
        put(&store, id(1), PACKED).await.unwrap();
        drop(store.release(&[id(1)]).now_or_never());
        if !store.close() {
            continue;
        }
        // Then no header of it may be found, regardless of the table's rows.
        assert_eq!(store.presence(&[id(1)]).await.unwrap().len(), 1);
        let disk = disk.reboot();
        let (store, report) = open(&disk, &table.powered_by(&disk, false)).unwrap();
        assert!(!is_there(&store, id(1), PACKED).await, "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_panics_makes_the_device_suspect() {
    for length in [PACKED, FILE] {
        let mut suspects = 0;
        // Several times, because the order of threads' calls varies.
        for calls in (0..).flat_map(|calls| [calls; 8]) {
            let (disk, table) = fresh(calls);
            let (store, _) = open(&disk, &table).unwrap();
            disk.fail_after(calls, DiskFault::Panic);
            let writer = store.clone();
            let outcome = tokio::spawn(async move { put(&writer, id(1), length).await }).await;
            if disk.heal() {
                outcome.unwrap().unwrap();
                break;
            }
            // The threads have ended after this.
            store.close();
            // A panic during work for one caller fails only that caller.
            if let Ok(Err(error)) = outcome {
                let alone = error.kind() == ErrorKind::Internal;
                assert!(store.suspect().is_some() || alone, "call {calls}: {error}");
                suspects += u64::from(store.suspect().is_some());
            }
        }
        assert!(suspects > 0, "{length} bytes");
    }
}

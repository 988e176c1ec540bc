//! Audits, presence and released copies (rule X4).

use std::os::unix::fs::FileExt;

use martlet_protocol::backend::{AuditResult, Presence};

use super::posix::open_real;
use super::*;

const PACKED: usize = 70_000;
const FILE: usize = 1_200_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

/// Audits all extents, in pages of at most `bytes_max`.
async fn audited(store: &ExtentStore, bytes_max: u64) -> AuditResult<ExtentId> {
    let mut all = AuditResult::default();
    loop {
        let page = store.audit(all.next, bytes_max).await.unwrap();
        all.items += page.items;
        all.bytes += page.bytes;
        all.corrupt.extend(page.corrupt);
        all.next = page.next;
        if all.next.is_none() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_quarantines_rotten_extents() {
    for bytes_max in [1, 100_000, u64::MAX] {
        let (disk, table) = fresh(bytes_max);
        let (store, _) = open(&disk, &table).unwrap();
        for byte in 1..=8 {
            put(&store, id(byte), if byte % 2 == 0 { PACKED } else { FILE }).await.unwrap();
        }
        assert_eq!(audited(&store, bytes_max).await.corrupt, []);
        for (byte, at) in [(2, 69_999), (3, 500_000), (6, 0)] {
            let location = store.stat(id(byte)).await.unwrap().location;
            disk.flip(&location.path, location.offset + at);
        }
        // Its name is removed; the row still proves that it existed once.
        let location = store.stat(id(7)).await.unwrap().location;
        disk.unlink(&location.path).unwrap();
        let found = audited(&store, bytes_max).await;
        assert_eq!((found.items, found.corrupt), (8, vec![id(2), id(3), id(6), id(7)]));
        assert_eq!(found.bytes, 4 * (PACKED + FILE) as u64);
        let again = audited(&store, bytes_max).await;
        assert_eq!((again.items, again.corrupt.len()), (4, 0));
        for byte in [2, 3, 6, 7] {
            assert!(get(&store, id(byte)).await.is_err());
            assert_eq!(store.presence(&[id(byte)]).await.unwrap(), [Presence::Missing]);
            put(&store, id(byte), PACKED).await.unwrap();
        }
        for byte in 1..=8 {
            let length = u64::from(store.stat(id(byte)).await.unwrap().record.extent.length);
            assert!(is_there(&store, id(byte), usize::try_from(length).unwrap()).await);
            sums_are_right(&store).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_beside_deletes_finds_nothing_corrupt() {
    let (disk, table) = fresh(11);
    let (store, _) = open(&disk, &table).unwrap();
    let ids: Vec<_> = (1..=200).map(id).collect();
    for id in &ids {
        put(&store, *id, 9_000).await.unwrap();
    }
    let deleting = {
        let (store, ids) = (store.clone(), ids.clone());
        tokio::spawn(async move {
            for pair in ids.chunks(2) {
                store.delete(&pair[..1]).await.unwrap();
                put(&store, ExtentId::random(), 9_000).await.unwrap();
            }
        })
    };
    while !deleting.is_finished() {
        assert_eq!(audited(&store, u64::MAX).await.corrupt, []);
    }
    deleting.await.unwrap();
    assert_eq!(audited(&store, u64::MAX).await.items, 200);
    assert_eq!(store.usage().quarantined, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_reads_the_disk_and_not_the_page_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let lengths = [1, 4097, 70_000, 1 << 20, (1 << 20) + 1, 5_000_000];
    for (byte, length) in (1..).zip(lengths) {
        put(&store, id(byte), length).await.unwrap();
    }
    assert_eq!(audited(&store, u64::MAX).await.corrupt, []);
    let mut expected = Vec::new();
    for (byte, length) in (1..).zip(lengths).filter(|(byte, _)| byte % 2 == 0) {
        let location = store.stat(id(byte)).await.unwrap().location;
        let file = std::fs::OpenOptions::new().write(true).open(&location.path).unwrap();
        let right = pattern(id(byte), length)[length - 1];
        file.write_all_at(&[right ^ 1], location.offset + length as u64 - 1).unwrap();
        expected.push(id(byte));
    }
    assert_eq!(audited(&store, u64::MAX).await.corrupt, expected);
    let (file, record) = (id(6), id(2));
    let aside = folder.path().join("quarantine");
    assert!(aside.join(file.to_string()).exists(), "a file is moved aside");
    let names = std::fs::read_dir(aside).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(names.count(), 3);
    let found = store.presence(&[file, record, id(1)]).await.unwrap();
    assert_eq!(found, [Presence::Missing, Presence::Missing, Presence::Here]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_extents_may_reappear_whole_and_never_in_part() {
    for length in [PACKED, FILE] {
        for keep_rows in [true, false] {
            let (disk, table) = fresh(3);
            let (store, _) = open(&disk, &table).unwrap();
            put(&store, id(1), length).await.unwrap();
            put(&store, id(2), length).await.unwrap();
            store.release(&[id(1)]).await.unwrap();
            assert_eq!(store.presence(&[id(1)]).await.unwrap(), [Presence::Missing]);
            store.delete(&[id(2)]).await.unwrap();
            assert_eq!(store.presence(&[id(2)]).await.unwrap(), [Presence::Deleted]);
            put(&store, id(1), length).await.unwrap();
            store.release(&[id(1)]).await.unwrap();
            put(&store, id(3), length).await.unwrap();
            store.close();
            let disk = disk.reboot();
            let table = table.powered_by(&disk, keep_rows);
            let (store, _) = open(&disk, &table).unwrap();
            // A file whose name came back is whole, and is released once more.
            if is_there(&store, id(1), length).await {
                store.release(&[id(1)]).await.unwrap();
            }
            assert!(!is_there(&store, id(2), length).await);
            assert!(is_there(&store, id(3), length).await);
            put(&store, id(1), length).await.unwrap();
            assert!(is_there(&store, id(1), length).await);
            no_leaks(&store, &disk).await;
        }
    }
}

//! Bodies that stall, and the space of the device that they hold.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use martlet_protocol::limits::EXTENT_BYTES_MAX;

use super::posix::open_real;
use super::*;

const WRITES: usize = 500;
const MIB: u64 = 1024 * 1024;

/// Number of bytes that the `nth` client sends before it stalls.
fn sent_bytes(nth: usize) -> usize {
    let chunk = 1 << 20;
    match nth % 100 {
        0 => 9 * chunk + 5,
        1..=4 => 3 * chunk + 70_000,
        5..=20 => chunk + 100_000,
        _ => 64 * 1024,
    }
}

/// Returns the disk bytes of extent files, and the number of files.
fn held(folder: &Path) -> (u64, usize) {
    let (mut bytes, mut files) = (0, 0);
    for folder in std::fs::read_dir(folder.join("extents")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            bytes += file.unwrap().metadata().unwrap().blocks() * 512;
            files += 1;
        }
    }
    (bytes, files)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_writes_hold_little_more_than_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let bytes = Bytes::from(vec![7; 10 << 20]);
    let (mut writes, mut sent) = (tokio::task::JoinSet::new(), 0);
    for nth in 0..WRITES {
        let declared = (nth % 3 > 0).then_some(EXTENT_BYTES_MAX);
        let first = bytes.slice(..sent_bytes(nth));
        // Without a length nothing is written before more than one chunk has arrived.
        sent += first.len() as u64;
        let stalled = futures::stream::iter([Ok(first)]).chain(futures::stream::pending()).boxed();
        let store = store.clone();
        writes.spawn(async move {
            store.write(new(ExtentId::random(), declared), 1, stalled).await.map(drop)
        });
    }
    let (began, mut before) = (Instant::now(), (0, 0));
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = held(folder.path());
        if now == before && now.1 > WRITES / 2 {
            break;
        }
        before = now;
        assert!(began.elapsed() < Duration::from_mins(2), "{now:?}");
    }
    let (bytes, files) = before;
    let limit = sent + sent / 2 + WRITES as u64 * MIB;
    assert!(bytes <= limit, "{files} files hold {bytes} bytes, {sent} were sent");
    assert!(bytes >= (WRITES / 100) as u64 * 9 * MIB, "what was sent is written: {bytes} bytes");
    writes.shutdown().await;
    let id = ExtentId::random();
    put(&store, id, 10_000_001).await.unwrap();
    let path = store.stat(id).await.unwrap().location.path;
    let blocks = std::fs::metadata(path).unwrap().blocks() * 512;
    assert!(blocks < 10_100_000, "what was ahead is given back: {blocks} bytes");
    assert!(store.close(), "and nothing is left behind");
    assert_eq!(held(folder.path()).1, 1);
}

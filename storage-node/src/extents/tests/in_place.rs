//! Extents that are open for readers in place: windows of the page cache, and sends to sockets that
//! are full, slow or closed.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use futures::FutureExt;
use martlet_protocol::limits::{BLOCK_BYTES, CHUNK_BYTES};

use super::super::buffer::WINDOW_BYTES;
use super::super::footer;
use super::posix::open_real;
use super::*;
use crate::device::pool::Pool;
use crate::disk::{FolderGate, GatedDisk};
use crate::index::ExtentTable;

const LENGTH: usize = 5 * CHUNK_BYTES + 70_001;

/// A socket that doesn't block, and its peer.
fn sockets() -> (Arc<OwnedFd>, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Arc::new(ours.into()), peer)
}

/// Receives all bytes until the sockets are closed.
fn received(mut peer: UnixStream) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Sends a range as the data port does.
async fn send_all(extent: &ExtentInPlace, socket: &Arc<OwnedFd>, range: Range<u64>) {
    let mut at = range.start;
    while at < range.end {
        let sent = extent.send_unverified(socket, at..range.end).await.unwrap();
        at += sent.bytes;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_in_memory_come_in_windows_and_others_in_chunks() {
    for seed in 0..20 {
        // Half of the reads without waiting find less than they ask for.
        let (disk, table) = fresh(seed);
        let (store, _) = open(&disk, &table).unwrap();
        let id = ExtentId::random();
        put(&store, id, LENGTH).await.unwrap();
        let extent = store.open_in_place(id).await.unwrap();
        let start = (usize::try_from(seed).unwrap() * 40_009) % LENGTH;
        let range = start as u64..LENGTH as u64;
        let before = store.usage();
        let stream = extent.read(range.clone()).await.unwrap();
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        let after = store.usage();
        assert!(chunks.concat() == pattern(id, LENGTH)[start..], "seed {seed}");
        assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES), "seed {seed}");
        let inline = after.inline_reads - before.inline_reads;
        let blocking = after.blocking_reads - before.blocking_reads;
        assert_eq!(inline + blocking, chunks.len() as u64, "seed {seed}");
        let long = chunks.iter().filter(|chunk| chunk.len() > WINDOW_BYTES).count() as u64;
        assert!(long <= blocking, "seed {seed}: a chunk from memory is no window");
        // Each part but the first begins at a block.
        let mut at = start + chunks[0].len();
        for chunk in &chunks[1..] {
            assert!((at as u64).is_multiple_of(BLOCK_BYTES), "seed {seed}");
            at += chunk.len();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_rots_between_windows_ends_the_read_before_it() {
    for wrong in [CHUNK_BYTES + 1, LENGTH / 2, LENGTH - 1] {
        let (disk, table) = fresh(wrong as u64);
        let (store, _) = open(&disk, &table).unwrap();
        let id = ExtentId::random();
        put(&store, id, LENGTH).await.unwrap();
        let extent = store.open_in_place(id).await.unwrap();
        let mut readers = Vec::new();
        for _ in 0..3 {
            let mut reader = extent.read(0..LENGTH as u64).await.unwrap();
            let first = reader.next().await.unwrap().unwrap();
            readers.push((reader, first.len()));
        }
        disk.flip(&footer::path(Path::new(ROOT), id), wrong as u64);
        for (mut reader, mut read) in readers {
            let error = loop {
                match reader.next().await.expect("the read doesn't reach its end") {
                    Ok(chunk) => {
                        assert!(chunk == pattern(id, LENGTH)[read..read + chunk.len()]);
                        read += chunk.len();
                    }
                    Err(error) => break error,
                }
            };
            assert!(read <= wrong, "{read} bytes before byte {wrong}");
            let kind = error.kind();
            assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::NotFound), "{error}");
        }
        assert_eq!(store.usage().quarantined, 1);
        // The extent is gone, or known as corrupt: both are no bytes.
        let kind = store.open_in_place(id).await.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::NotFound), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_socket_ends_a_call_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let id = ExtentId::random();
    let extent = open_cached(&store, id).await;
    let (socket, peer) = sockets();
    let first = extent.send_unverified(&socket, 0..LENGTH as u64).await.unwrap();
    assert!(first.bytes > 0 && first.bytes < LENGTH as u64, "{first:?}");
    assert_eq!(first.end, SendEnd::Full);
    let rest = first.bytes..LENGTH as u64;
    let none = extent.send_unverified(&socket, rest.clone()).await.unwrap();
    assert_eq!((none.bytes, none.end), (0, SendEnd::Full));
    assert!(first.waited > Duration::ZERO && none.waited > Duration::ZERO, "{first:?} {none:?}");
    // A peer that takes bytes gets all of them.
    let peer = received(peer);
    send_all(&extent, &socket, rest).await;
    drop(socket);
    assert!(peer.join().unwrap() == pattern(id, LENGTH));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_sockets_delay_no_other_reader_and_no_call_of_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let id = ExtentId::random();
    put(&store, id, LENGTH).await.unwrap();
    let extent = store.open_in_place(id).await.unwrap();
    // More peers that take nothing than the device has threads.
    let peers: Vec<_> = (0..100).map(|_| sockets()).collect();
    let sends = peers.iter().map(|(socket, _)| extent.send_unverified(socket, 0..LENGTH as u64));
    let (socket, peer) = sockets();
    let peer = received(peer);
    let served = async {
        send_all(&extent, &socket, 0..LENGTH as u64).await;
        put(&store, ExtentId::random(), LENGTH).await.unwrap();
    };
    let (ends, ()) = futures::join!(futures::future::try_join_all(sends), served);
    let is_full = |sent: &SentBytes| sent.end == SendEnd::Full && sent.bytes > 0;
    assert!(ends.unwrap().iter().all(is_full));
    drop(socket);
    assert!(peer.join().unwrap() == pattern(id, LENGTH));
}

/// Opens a store behind a gate. Its device is suspect once no call has ended for 100 ms.
fn open_gated(folder: &Path, gate: &Arc<FolderGate>) -> (ExtentStore, Arc<Pool>) {
    open_patient(folder, gate, Duration::from_millis(100))
}

/// Opens a store behind a gate. Its device is suspect once no call has ended for a time.
fn open_patient(
    folder: &Path,
    gate: &Arc<FolderGate>,
    patience: Duration,
) -> (ExtentStore, Arc<Pool>) {
    let threads = Arc::new(Pool::new("d1".to_owned(), patience));
    let options = ExtentOptions { threads: threads.clone(), ..ExtentOptions::default() };
    let disk = Arc::new(GatedDisk::new(folder, gate.clone()));
    let table = ExtentTable::open(&folder.join("index")).unwrap();
    let clock = Arc::new(SystemClock);
    let (store, _) = ExtentStore::open(folder, disk, table, clock, &options).unwrap();
    (store, threads)
}

/// Opens an extent whose bytes are in memory.
async fn open_cached(store: &ExtentStore, id: ExtentId) -> ExtentInPlace {
    put(store, id, LENGTH).await.unwrap();
    let extent = store.open_in_place(id).await.unwrap();
    let in_memory: Vec<Bytes> =
        extent.read(0..LENGTH as u64).await.unwrap().try_collect().await.unwrap();
    assert_eq!(in_memory.concat().len(), LENGTH);
    extent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_hangs_fails_and_makes_its_device_suspect() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::<FolderGate>::default());
    let (store, threads) = open_gated(folder.path(), &gate);
    let id = ExtentId::random();
    let extent = open_cached(&store, id).await;
    gate.shut_for_sends();
    let (socket, peer) = sockets();
    // Calls that end meanwhile are no pulse of the thread that hangs.
    let calls = async {
        loop {
            threads.run(|| Ok(())).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let error: Error = tokio::select! {
        sent = extent.send_unverified(&socket, 0..LENGTH as u64) => sent.unwrap_err(),
        ended = calls => { let ended: Result<()> = ended; ended.unwrap_err() }
        () = tokio::time::sleep(Duration::from_mins(1)) => panic!("nothing notices the hung send"),
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(threads.pulse().stalled().is_some());
    let (other, _peer) = sockets();
    let refused = extent.send_unverified(&other, 0..LENGTH as u64).now_or_never();
    assert_eq!(refused.expect("it waits for nothing").unwrap_err().kind(), ErrorKind::Unavailable);
    gate.open();
    while threads.pulse().stalled().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The thread goes on with other sends. The send without a caller ended after its turn.
    drop(peer);
    let (socket, peer) = sockets();
    let peer = received(peer);
    send_all(&extent, &socket, 0..LENGTH as u64).await;
    drop(socket);
    assert!(peer.join().unwrap() == pattern(id, LENGTH));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_in_the_disk_is_no_time_of_the_client() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::<FolderGate>::default());
    let (store, _) = open_patient(folder.path(), &gate, Duration::from_mins(1));
    let id = ExtentId::random();
    put(&store, id, LENGTH).await.unwrap();
    let extent = store.open_in_place(id).await.unwrap();
    gate.shut();
    let (socket, _peer) = sockets();
    let opens = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        gate.open();
    };
    let (sent, ()) = tokio::join!(extent.send_unverified(&socket, 0..LENGTH as u64), opens);
    let sent = sent.unwrap();
    assert_eq!((sent.end, sent.waited), (SendEnd::Full, Duration::ZERO), "{sent:?}");
    assert!(sent.bytes > 0, "{sent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_hangs_after_its_first_bytes_is_never_repeated() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::<FolderGate>::default());
    let (store, _) = open_gated(folder.path(), &gate);
    let id = ExtentId::random();
    let extent = open_cached(&store, id).await;
    // The sending thread sends bytes once, and finds no further ones. A thread of the disk hangs.
    gate.shut_after_a_send();
    let (socket, peer) = sockets();
    let sent = extent.send_unverified(&socket, 0..LENGTH as u64).await.unwrap();
    assert_eq!(sent.end, SendEnd::Failed, "a further call would send the bytes of the hung one");
    assert!(sent.bytes > 0 && sent.bytes < LENGTH as u64, "{sent:?}");
    // The data port ends the connection before the disk answers.
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).unwrap();
    gate.open();
    drop(socket);
    let bytes = received(peer).join().unwrap();
    assert!(bytes == pattern(id, LENGTH)[..usize::try_from(sent.bytes).unwrap()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_in_memory_come_from_the_disk() {
    for seed in 0..10 {
        // Half of the reads without waiting find less than they ask for.
        let (disk, table) = fresh(seed);
        let (store, _) = open(&disk, &table).unwrap();
        let id = ExtentId::random();
        put(&store, id, LENGTH).await.unwrap();
        let extent = store.open_in_place(id).await.unwrap();
        let (socket, peer) = sockets();
        let peer = received(peer);
        let start = (usize::try_from(seed).unwrap() * 40_009) % LENGTH;
        send_all(&extent, &socket, start as u64..LENGTH as u64).await;
        drop(socket);
        assert!(peer.join().unwrap() == pattern(id, LENGTH)[start..], "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_leaves_ends_a_send() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let id = ExtentId::random();
    put(&store, id, LENGTH).await.unwrap();
    let extent = store.open_in_place(id).await.unwrap();
    let (socket, mut peer) = sockets();
    let leaving = std::thread::spawn(move || {
        peer.read_exact(&mut vec![0; 300_000]).unwrap();
    });
    let mut at = 0;
    let error = loop {
        match extent.send_unverified(&socket, at..LENGTH as u64).await {
            Ok(sent) => at += sent.bytes,
            Err(error) => break error,
        }
        assert!(at < LENGTH as u64, "all bytes were sent to a peer that left");
    };
    assert!(at >= 300_000, "{at} bytes were counted");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    leaving.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_before_an_error_of_the_disk_are_counted() {
    let (disk, table) = fresh(7);
    let (store, _) = open(&disk, &table).unwrap();
    let id = ExtentId::random();
    put(&store, id, LENGTH).await.unwrap();
    let extent = store.open_in_place(id).await.unwrap();
    disk.break_byte(&footer::path(Path::new(ROOT), id), 1_000_000);
    let (socket, peer) = sockets();
    let peer = received(peer);
    let mut at = 0;
    let error = loop {
        match extent.send_unverified(&socket, at..LENGTH as u64).await {
            Ok(sent) => at += sent.bytes,
            Err(error) => break error,
        }
    };
    assert!((900_000..=1_000_000).contains(&at), "{at}: {error}");
    drop(socket);
    assert!(peer.join().unwrap() == pattern(id, LENGTH)[..usize::try_from(at).unwrap()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_needs_the_space_of_deleted_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let (deleted, kept, packed) = (ExtentId::random(), ExtentId::random(), ExtentId::random());
    let mut readers = Vec::new();
    for (id, length) in [(deleted, LENGTH), (kept, LENGTH), (packed, 100_000)] {
        put(&store, id, length).await.unwrap();
        readers.push(store.open_in_place(id).await.unwrap());
    }
    store.delete(&[deleted, packed]).await.unwrap();
    let is_needed = |reader: &ExtentInPlace| reader.space_needed().now_or_never().is_some();
    assert!(!readers.iter().any(is_needed), "the device has space");
    store.reclaim(10, false).unwrap();
    assert!(!readers.iter().any(is_needed), "the device has space");
    store.reclaim(10, true).unwrap();
    assert_eq!(readers.iter().map(is_needed).collect::<Vec<_>>(), [true, false, false]);
    // Readers of a store that has closed go on.
    assert!(store.close());
    drop(store);
    assert!(!is_needed(&readers[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_closes_while_calls_wait_for_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_real(folder.path());
    let id = ExtentId::random();
    put(&store, id, LENGTH).await.unwrap();
    let extent = store.open_in_place(id).await.unwrap();
    let (socket, peer) = sockets();
    let sending = tokio::spawn(async move {
        send_all(&extent, &socket, 0..LENGTH as u64).await;
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(store.close());
    drop(store);
    let peer = received(peer);
    sending.await.unwrap();
    assert!(peer.join().unwrap() == pattern(id, LENGTH));
}

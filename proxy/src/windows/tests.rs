//! Readers of one extent, alone and in company.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, Stream, StreamExt, stream};
use martlet_protocol::{Error, ExtentId, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::table::WINDOW_BYTES;
use super::{SharedStream, StoredBytes, WindowFigures, Windows};

const MIB: u64 = 1024 * 1024;

/// An extent in memory whose reads are recorded.
#[derive(Clone)]
struct Source(Arc<SourceState>);

struct SourceState {
    bytes: Bytes,
    opened: Mutex<Vec<Range<u64>>>,
    /// Number of next reads that fail after half of their bytes.
    failures: Mutex<usize>,
    /// Permits for reads to begin.
    gate: Semaphore,
}

impl Source {
    fn new(length: u64) -> Self {
        let source = Self::closed(length);
        source.0.gate.add_permits(Semaphore::MAX_PERMITS / 2);
        source
    }

    /// Makes a source whose reads wait.
    fn closed(length: u64) -> Self {
        let bytes: Vec<u8> = (0..length).map(|at| (at / 7 % 251) as u8).collect();
        let (opened, failures) = (Mutex::default(), Mutex::default());
        let gate = Semaphore::new(0);
        Self(Arc::new(SourceState { bytes: bytes.into(), opened, failures, gate }))
    }

    /// Bytes that were requested.
    fn read(&self) -> u64 {
        self.0.opened.lock().iter().map(|range| range.end - range.start).sum()
    }

    fn slice(&self, range: Range<u64>) -> Bytes {
        self.0
            .bytes
            .slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap())
    }
}

impl StoredBytes for Source {
    type Stream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

    fn id(&self) -> ExtentId {
        ExtentId([3; 16])
    }

    fn length(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    fn open(&self, range: Range<u64>) -> BoxFuture<'static, Result<Self::Stream>> {
        let source = self.clone();
        async move {
            source.0.opened.lock().push(range.clone());
            source.0.gate.acquire().await.unwrap().forget();
            let fails = {
                let mut failures = source.0.failures.lock();
                let fails = *failures > 0;
                *failures = failures.saturating_sub(1);
                fails
            };
            let bytes = source.slice(range);
            let half = bytes.len() / 2;
            let second = if fails {
                Err(Error::corrupt("a planted failure"))
            } else {
                Ok(bytes.slice(half..))
            };
            Ok(stream::iter([Ok(bytes.slice(..half)), second]).boxed())
        }
        .boxed()
    }
}

async fn open(
    windows: &Arc<Windows>,
    source: &Source,
    range: Range<u64>,
) -> Result<SharedStream<Source>> {
    SharedStream::open(windows, source.clone(), range, false).await
}

async fn rest(mut stream: SharedStream<Source>) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk?);
        tokio::task::yield_now().await;
    }
    assert_eq!(stream.left(), 0);
    Ok(bytes.freeze())
}

/// Reads a range from the beginning to the end.
async fn read(windows: &Arc<Windows>, source: &Source, range: Range<u64>) -> Result<Bytes> {
    rest(open(windows, source, range).await?).await
}

#[tokio::test(start_paused = true)]
async fn a_lone_reader_opens_its_range_once_and_keeps_nothing() {
    let (windows, source) = (Windows::new(1 << 28), Source::new(8 * MIB));
    for _ in 0..2 {
        assert_eq!(read(&windows, &source, 5..8 * MIB).await.unwrap(), source.slice(5..8 * MIB));
    }
    assert_eq!(*source.0.opened.lock(), [5..8 * MIB, 5..8 * MIB]);
    let expected = WindowFigures { read_bytes: 2 * (8 * MIB - 5), ..WindowFigures::default() };
    assert_eq!(windows.figures(), expected);
    assert_eq!(windows.extents_being_read(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_herd_reads_each_window_once() {
    let (windows, source) = (Windows::new(1 << 28), Source::new(8 * MIB + 9));
    let range = |at: u64| at * 1000..8 * MIB + 9 - at;
    let readers = (0..64).map(|at| read(&windows, &source, range(at)));
    for (at, bytes) in (0..).zip(join_all(readers).await) {
        assert!(bytes.unwrap() == source.slice(range(at)), "reader {at}");
    }
    let read = source.read();
    assert!(read <= 2 * (8 * MIB + 9), "the first one began alone: {read}");
    let figures = windows.figures();
    assert_eq!((figures.fetched, figures.failed), (9, 0));
    assert!(figures.served >= 63 * 8, "{figures:?}");
    assert_eq!(figures.kept_bytes, 8 * MIB + 9);
    assert_eq!(windows.extents_being_read(), 0);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(windows.figures().kept_bytes, 0, "memory returns after the herd");
}

#[tokio::test(start_paused = true)]
async fn a_window_that_was_taken_early_and_dropped_comes_once_more() {
    let (windows, source) = (Windows::new(4 << 20), Source::new(8 * MIB));
    let open = |range| SharedStream::open(&windows, source.clone(), range, true);
    let early = open(0..8 * MIB).await.unwrap();
    rest(open(4 * MIB..8 * MIB).await.unwrap()).await.unwrap();
    assert!(rest(early).await.unwrap() == source.0.bytes);
    let opened = source.0.opened.lock();
    assert_eq!(opened.iter().filter(|range| range.start == 0).count(), 2);
    assert!(opened.iter().all(|range| range.end - range.start == WINDOW_BYTES), "{opened:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lone_reader_changes_to_windows_when_company_comes() {
    let (windows, source) = (Windows::new(1 << 28), Source::new(8 * MIB));
    let mut first = open(&windows, &source, 0..8 * MIB).await.unwrap();
    let begun = first.next().await.unwrap().unwrap();
    assert_eq!(begun.len() as u64, 4 * MIB);
    let second = open(&windows, &source, 0..8 * MIB).await.unwrap();
    assert!(first.has_met() && second.has_met());
    let (first, second) = tokio::join!(rest(first), rest(second));
    assert!(first.unwrap() == source.slice(4 * MIB..8 * MIB) && second.unwrap() == source.0.bytes);
    assert_eq!(source.read(), 16 * MIB, "one whole range, and each window once");
    assert_eq!(windows.figures().served, 12);
}

#[tokio::test(start_paused = true)]
async fn a_failed_window_is_not_cached_and_each_reader_retries() {
    let (windows, source) = (Windows::new(1 << 28), Source::closed(MIB));
    let lone = open(&windows, &source, 0..MIB);
    let others = || join_all((0..3).map(|_| read(&windows, &source, 0..MIB)));
    let gate = async {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(source.0.opened.lock().len(), 2, "one alone, and one window for three");
        *source.0.failures.lock() = 2;
        source.0.gate.add_permits(100);
    };
    let (lone, shared, ()) = tokio::join!(lone, others(), gate);
    assert!(rest(lone.unwrap()).await.is_err(), "its own read failed in mid-body");
    assert!(shared.into_iter().all(|bytes| bytes.unwrap() == source.0.bytes));
    let figures = windows.figures();
    assert_eq!((figures.failed, figures.fetched, figures.kept_bytes), (1, 0, 0));
    assert_eq!(source.0.opened.lock().len(), 5);
    let again = others().await;
    assert!(again.into_iter().all(|bytes| bytes.unwrap() == source.0.bytes));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_ends_no_fetch_that_others_wait_for() {
    let (windows, source) = (Windows::new(1 << 28), Source::closed(MIB));
    let mut readers: Vec<_> = (0..3).map(|_| read(&windows, &source, 0..MIB).boxed()).collect();
    for reader in &mut readers {
        assert!(reader.now_or_never().is_none());
    }
    tokio::task::yield_now().await;
    // The second one began the fetch of the window.
    drop(readers.remove(1));
    source.0.gate.add_permits(2);
    for bytes in join_all(readers).await {
        assert!(bytes.unwrap() == source.0.bytes);
    }
    assert_eq!(source.0.opened.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_without_readers_ends() {
    let (windows, source) = (Windows::new(1 << 28), Source::closed(4 * MIB));
    let mut readers: Vec<_> = (0..3).map(|_| read(&windows, &source, 0..4 * MIB).boxed()).collect();
    for reader in &mut readers {
        assert!(reader.now_or_never().is_none());
    }
    drop(readers);
    sleep(Duration::from_secs(1)).await;
    source.0.gate.add_permits(100);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(windows.figures(), WindowFigures::default());
    assert_eq!(Arc::strong_count(&source.0), 1, "no task holds it");
    assert_eq!(windows.extents_being_read(), 0);
}

#[tokio::test(start_paused = true)]
async fn slow_readers_keep_nothing_and_memory_stays_bounded() {
    const BOUND: u64 = 4 * MIB;
    let bound = usize::try_from(BOUND).unwrap();
    let (windows, source) = (Windows::new(bound), Source::new(16 * MIB));
    let all = 0..16 * MIB;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut stream = open(&windows, &source, all.clone()).await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        slow.push((stream, first));
    }
    let quick = join_all((0..8).map(|_| read(&windows, &source, all.clone()))).await;
    assert!(quick.into_iter().all(|bytes| bytes.unwrap() == source.0.bytes));
    assert!(windows.figures().kept_bytes <= BOUND);
    for (stream, first) in slow {
        let begun = first.len() as u64;
        assert!(rest(stream).await.unwrap() == source.slice(begun..16 * MIB));
        assert!(windows.figures().kept_bytes <= BOUND);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_without_window_memory_read_alone() {
    let (windows, source) = (Windows::new(1), Source::new(4 * MIB));
    let readers = join_all((0..4).map(|_| read(&windows, &source, 0..4 * MIB))).await;
    assert!(readers.into_iter().all(|bytes| bytes.unwrap() == source.0.bytes));
    assert_eq!(windows.figures().fetched, 0);
}

#[tokio::test(start_paused = true)]
async fn short_ranges_and_a_store_without_windows_share_nothing() {
    let (windows, source) = (Windows::new(1 << 28), Source::new(4 * MIB));
    for range in [0..4096, MIB - 4096..MIB + 4096, 0..200 * 1024] {
        let readers = join_all((0..4).map(|_| read(&windows, &source, range.clone()))).await;
        assert!(readers.into_iter().all(|bytes| bytes.unwrap() == source.slice(range.clone())));
    }
    let off = Windows::new(0);
    join_all((0..4).map(|_| read(&off, &source, 0..4 * MIB))).await;
    assert_eq!((windows.figures().fetched, off.figures().fetched), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_short_extent_is_one_window() {
    let (windows, source) = (Windows::new(1 << 28), Source::new(100_000));
    let readers = join_all((0..16).map(|_| read(&windows, &source, 0..100_000))).await;
    assert!(readers.into_iter().all(|bytes| bytes.unwrap() == source.0.bytes));
    assert_eq!((source.read(), windows.figures().kept_bytes), (200_000, 100_000));
}

#[tokio::test(start_paused = true)]
async fn readers_that_met_before_begin_with_windows() {
    let (windows, source) = (Windows::new(1 << 28), Source::new(2 * MIB));
    let stream = SharedStream::open(&windows, source.clone(), 0..2 * MIB, true).await.unwrap();
    assert!(!stream.has_met(), "nobody else is there");
    assert!(rest(stream).await.unwrap() == source.0.bytes);
    assert_eq!((windows.figures().fetched, WINDOW_BYTES), (2, MIB));
}

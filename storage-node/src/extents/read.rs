//! Reads of bytes: whole blocks around the requested range, a chunk at a time, verified unless the
//! reader verifies them itself. A reader in place gets bytes of the page cache in short windows.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::stream;
use martlet_protocol::limits::{BLOCK_BYTES, CHUNK_BYTES};
use martlet_protocol::{ByteStream, ErrorKind, ExtentId, Result};

use super::blocks::BLOCK;
use super::buffer::{BufferPool, PooledBuffer, WINDOW_BYTES};
use super::open::{OpenExtent, mismatch};
use super::state::Counters;
use super::store::StoreState;
use crate::device::pool::Pool;

/// Parts of a store that a read needs. They don't prevent the store from closing: a slow reader
/// needs only its file.
#[derive(Clone)]
pub(super) struct ExtentReader {
    pool: BufferPool,
    threads: Arc<Pool>,
    counters: Arc<Counters>,
    store: Weak<StoreState>,
    verifies: bool,
    /// Most bytes of a chunk that comes from the page cache.
    cached_max: usize,
}

/// Whole blocks around the first bytes of a range.
struct Chunk {
    from: u64,
    length: usize,
    /// First byte of the range after the chunk.
    next: u64,
}

impl Chunk {
    /// The first chunk of `range`, of at most `bytes_max`.
    fn of(extent: &OpenExtent, range: &Range<u64>, bytes_max: usize) -> Self {
        let from = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let next = range.end.min(from + bytes_max as u64);
        let to = next.next_multiple_of(BLOCK_BYTES).min(extent.length);
        Self { from, length: within_chunk(to - from), next }
    }
}

impl ExtentReader {
    pub(super) fn of(store: &Arc<StoreState>) -> Self {
        let (pool, threads) = (store.pool.clone(), store.threads.clone());
        let counters = store.counters.clone();
        Self {
            pool,
            threads,
            counters,
            store: Arc::downgrade(store),
            verifies: true,
            cached_max: CHUNK_BYTES,
        }
    }

    /// Returns a reader that gets bytes of the page cache in windows.
    pub(super) fn by_windows(self) -> Self {
        Self { cached_max: WINDOW_BYTES, ..self }
    }

    /// Returns a reader that compares no checksums.
    pub(super) fn unverified(self) -> Self {
        Self { verifies: false, ..self }
    }

    /// Threads on which calls wait for the disk.
    pub(super) fn threads(&self) -> &Arc<Pool> {
        &self.threads
    }

    /// Compares bytes from the beginning of a block on with their checksums, unless the reader
    /// verifies nothing.
    fn check(&self, extent: &OpenExtent, from: u64, bytes: &[u8]) -> Result<()> {
        let first = usize::try_from(from / BLOCK_BYTES).expect("an extent has few blocks");
        let is_right = !self.verifies || extent.verify(bytes, first);
        is_right.then_some(()).ok_or_else(|| mismatch(extent.id))
    }
}

/// Reads `range` of an extent. The first chunk is read before this returns, so its errors are known
/// before the response to the client begins.
pub(super) async fn stream(
    store: ExtentReader,
    extent: Arc<OpenExtent>,
    range: Range<u64>,
) -> Result<ByteStream> {
    let (first, next) = chunk(&store, &extent, &range).await?;
    if next == range.end {
        return Ok(Box::pin(stream::once(async { Ok(first) })));
    }
    let state = (store, extent, next, range.end, Some(first));
    Ok(Box::pin(stream::try_unfold(state, |(store, extent, at, end, ready)| async move {
        if let Some(first) = ready {
            return Ok(Some((first, (store, extent, at, end, None))));
        }
        if at == end {
            return Ok(None);
        }
        let (bytes, next) = chunk(&store, &extent, &(at..end)).await?;
        Ok(Some((bytes, (store, extent, next, end, None))))
    })))
}

/// Returns the first chunk of `range`, and the offset of the next chunk.
async fn chunk(
    store: &ExtentReader,
    extent: &Arc<OpenExtent>,
    range: &Range<u64>,
) -> Result<(Bytes, u64)> {
    let bytes_max = store.pool.chunk_bytes();
    let cached = Chunk::of(extent, range, bytes_max.min(store.cached_max));
    let (chunk, outcome) = if let Some(buffer) = cached_bytes(store, extent, &cached)? {
        store.counters.inline_reads.fetch_add(1, Ordering::Relaxed);
        let bytes = &buffer.all()[..cached.length];
        let verified = store.check(extent, cached.from, bytes).map(|()| buffer);
        (cached, verified)
    } else {
        // The device reads more at a time than a window.
        store.counters.blocking_reads.fetch_add(1, Ordering::Relaxed);
        let chunk = Chunk::of(extent, range, bytes_max);
        let fetched = fetch(store, extent.clone(), chunk.from, chunk.length).await;
        (chunk, fetched)
    };
    let buffer = match outcome {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            again(store, extent.id, chunk.from, chunk.length).await?.ok_or(error)?
        }
        outcome => outcome?,
    };
    let from = chunk.from;
    let window = within_chunk(range.start - from)..within_chunk(chunk.next - from);
    Ok((buffer.into_bytes(window), chunk.next))
}

/// Reads a chunk without waiting for the device; none if a part of it is not in memory.
fn cached_bytes(
    store: &ExtentReader,
    extent: &OpenExtent,
    chunk: &Chunk,
) -> Result<Option<PooledBuffer>> {
    let is_window = (BLOCK + 1..=WINDOW_BYTES).contains(&chunk.length);
    let mut buffer =
        if is_window { store.pool.take_window() } else { store.pool.take(chunk.length) };
    let bytes = &mut buffer.all_mut()[..chunk.length];
    let ready = extent.file.read_nowait(bytes, extent.base + chunk.from)?;
    Ok((ready == chunk.length).then_some(buffer))
}

/// Reads a chunk again if its extent is intact on disk; none if the extent was quarantined.
async fn again(
    store: &ExtentReader,
    id: ExtentId,
    from: u64,
    length: usize,
) -> Result<Option<PooledBuffer>> {
    let Some(inner) = store.store.upgrade() else { return Ok(None) };
    if !StoreState::verify_and_quarantine(&inner, id).await {
        return Ok(None);
    }
    let extent = StoreState::open_extent(&inner, id).await?;
    fetch(store, extent, from, length).await.map(Some)
}

/// Reads a chunk that begins at `from` on a thread, and verifies it. The thread takes the buffer,
/// so that reads that wait for a disk that hangs hold none.
async fn fetch(
    store: &ExtentReader,
    extent: Arc<OpenExtent>,
    from: u64,
    length: usize,
) -> Result<PooledBuffer> {
    let reader = store.clone();
    let read = move || {
        let mut buffer = reader.pool.take(length);
        extent.file.read_at(&mut buffer.all_mut()[..length], extent.base + from)?;
        reader.check(&extent, from, &buffer.all()[..length])?;
        Ok(buffer)
    };
    store.threads.run(read).await
}

fn within_chunk(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a chunk fits in memory")
}

const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK) && WINDOW_BYTES.is_multiple_of(BLOCK));

//! Buffers for bytes between socket and disk. They are aligned, so that writes can bypass the page
//! cache, and reused, so that a busy store doesn't fault in fresh pages for every MiB.
//!
//! Clients that stall hold the buffers of their bytes. So the first streams get buffers of 1 MiB.
//! While [`LENT_MAX`] buffers are lent, further streams use short chunks, and none waits.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use martlet_protocol::limits::{ALIGN_BYTES, CHUNK_BYTES};
use parking_lot::Mutex;

use super::blocks::BLOCK;

/// [`ALIGN_BYTES`] for slices.
#[expect(clippy::cast_possible_truncation, reason = "4 KiB fits anywhere")]
pub(super) const ALIGN: usize = ALIGN_BYTES as usize;
/// A chunk, with space for a record's header before it or a file's footer after it.
pub(super) const BUFFER_BYTES: usize = CHUNK_BYTES + 4 * ALIGN;
/// Buffers up to this size are not reused, but for windows, and don't count as lent.
const SMALL_BYTES: usize = 128 * 1024;
/// Length of a window in bytes: what is read from the page cache, verified and sent at a time. The
/// windows of some readers fit into a core's second-level cache, so that each byte leaves it once.
pub(super) const WINDOW_BYTES: usize = 128 * 1024;
/// Lent buffers, except small ones, from which on chunks become short. Counts all devices of a
/// process.
const LENT_MAX: usize = 128;
/// Length of a short chunk in bytes.
const SHORT_CHUNK_BYTES: usize = BLOCK;

/// Memory that begins at a multiple of 4 KiB.
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    /// Bytes in use; the code that fills the buffer maintains this count.
    pub(super) filled: usize,
}

impl AlignedBuffer {
    pub(super) fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes.next_multiple_of(ALIGN) + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        Self { memory, start, filled: 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.memory.len() - ALIGN
    }

    pub(super) fn all(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.capacity()]
    }

    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.capacity();
        &mut self.memory[self.start..end]
    }

    /// Appends as much of `bytes` as fits below `limit`; returns the number of bytes appended.
    pub(super) fn append(&mut self, bytes: &[u8], limit: usize) -> usize {
        let taken = bytes.len().min(limit - self.filled);
        let filled = self.filled;
        self.all_mut()[filled..filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        taken
    }

    /// Length of a chunk that leaves space for a header or a footer.
    pub(super) fn chunk_bytes(&self) -> usize {
        (self.capacity() - 4 * ALIGN).min(CHUNK_BYTES)
    }

    /// Appends zeros up to the next multiple of 4 KiB.
    pub(super) fn pad(&mut self) {
        let (filled, padded) = (self.filled, self.filled.next_multiple_of(ALIGN));
        self.all_mut()[filled..padded].fill(0);
        self.filled = padded;
    }
}

/// Idle buffers of [`BUFFER_BYTES`] and of [`WINDOW_BYTES`], for reuse. The last one that came back
/// is lent first, for a processor's cache may hold it.
#[derive(Clone)]
pub(super) struct BufferPool {
    idle: Arc<Mutex<Vec<AlignedBuffer>>>,
    windows: Arc<Mutex<Vec<AlignedBuffer>>>,
    /// Most idle buffers of each size.
    idle_max: usize,
    /// Lent buffers, except small ones, of all devices of the process.
    lent: Arc<AtomicUsize>,
}

static LENT_NOW: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

impl BufferPool {
    pub(super) fn new(idle_max: usize) -> Self {
        Self { idle: Arc::default(), windows: Arc::default(), idle_max, lent: LENT_NOW.clone() }
    }

    /// Returns the bytes that a stream should move at a time now.
    pub(super) fn chunk_bytes(&self) -> usize {
        let is_scarce = self.lent.load(Ordering::Relaxed) >= LENT_MAX;
        if is_scarce { SHORT_CHUNK_BYTES } else { CHUNK_BYTES }
    }

    /// Returns a buffer for the next chunk of a stream, with its header or footer.
    pub(super) fn take_chunk(&self) -> PooledBuffer {
        self.take(self.chunk_bytes() + 4 * ALIGN)
    }

    /// Returns a buffer of `bytes`, or a small one that can be [exchanged](Self::exchange) when it
    /// is full. The remaining bytes may never come.
    pub(super) fn take_start(&self, bytes: usize) -> PooledBuffer {
        self.take(bytes.min(SMALL_BYTES))
    }

    /// Returns a longer buffer with the content of `full`; after repeated calls, one of `bytes`.
    pub(super) fn exchange(&self, full: &PooledBuffer, bytes: usize) -> PooledBuffer {
        let is_scarce = self.lent.load(Ordering::Relaxed) >= LENT_MAX;
        let mut longer = if is_scarce {
            let step = 2 * full.capacity();
            self.lend(AlignedBuffer::new(if step < bytes { step } else { BUFFER_BYTES.max(bytes) }))
        } else {
            self.take(bytes)
        };
        longer.append(&full.all()[..full.filled], full.filled);
        longer
    }

    /// Returns a buffer of at least `bytes` with arbitrary content. It returns to the pool when
    /// dropped.
    pub(super) fn take(&self, bytes: usize) -> PooledBuffer {
        let idle = (bytes > SMALL_BYTES).then(|| self.idle.lock().pop()).flatten();
        let mut buffer = idle.unwrap_or_else(|| {
            AlignedBuffer::new(if bytes > SMALL_BYTES { BUFFER_BYTES.max(bytes) } else { bytes })
        });
        buffer.filled = 0;
        self.lend(buffer)
    }

    /// Returns a buffer of a window with arbitrary content. It returns to the pool when dropped.
    pub(super) fn take_window(&self) -> PooledBuffer {
        let idle = self.windows.lock().pop();
        self.lend(idle.unwrap_or_else(|| AlignedBuffer::new(WINDOW_BYTES)))
    }

    /// Idle buffers of a capacity; none if such buffers are not reused.
    fn idle_of(&self, capacity: usize) -> Option<&Mutex<Vec<AlignedBuffer>>> {
        match capacity {
            WINDOW_BYTES => Some(&self.windows),
            BUFFER_BYTES => Some(&self.idle),
            _ => None,
        }
    }

    fn lend(&self, buffer: AlignedBuffer) -> PooledBuffer {
        if buffer.capacity() > SMALL_BYTES {
            self.lent.fetch_add(1, Ordering::Relaxed);
        }
        PooledBuffer { buffer: Some(buffer), pool: self.clone() }
    }
}

/// A lent buffer.
pub(super) struct PooledBuffer {
    buffer: Option<AlignedBuffer>,
    pool: BufferPool,
}

const LENT: &str = "the buffer is here until it is dropped";

impl std::ops::Deref for PooledBuffer {
    type Target = AlignedBuffer;

    fn deref(&self) -> &AlignedBuffer {
        self.buffer.as_ref().expect(LENT)
    }
}

impl std::ops::DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut AlignedBuffer {
        self.buffer.as_mut().expect(LENT)
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        if buffer.capacity() > SMALL_BYTES {
            self.pool.lent.fetch_sub(1, Ordering::Relaxed);
        }
        let Some(idle) = self.pool.idle_of(buffer.capacity()) else { return };
        let mut idle = idle.lock();
        if idle.len() < self.pool.idle_max {
            idle.push(buffer);
        }
    }
}

struct Window {
    buffer: PooledBuffer,
    range: Range<usize>,
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.all()[self.range.clone()]
    }
}

impl PooledBuffer {
    /// Converts part of the buffer to shared bytes; the last clone to be dropped returns the
    /// buffer.
    pub(super) fn into_bytes(self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Window { buffer: self, range })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a pool that counts only its own buffers.
    fn alone() -> BufferPool {
        BufferPool { lent: Arc::default(), ..BufferPool::new(1) }
    }

    #[test]
    fn buffers_are_aligned_padded_and_used_again() {
        let pool = BufferPool::new(1);
        let mut buffer = pool.take(CHUNK_BYTES);
        assert_eq!(buffer.all().as_ptr().align_offset(ALIGN), 0);
        buffer.all_mut().fill(7);
        assert_eq!(buffer.append(b"hello", 3), 3);
        buffer.pad();
        assert_eq!(buffer.filled, ALIGN);
        assert_eq!(&buffer.all()[..5], b"hel\0\0");
        let address = buffer.all().as_ptr();
        let bytes = buffer.into_bytes(1..3);
        let clone = bytes.clone();
        drop(bytes);
        assert_eq!(pool.idle.lock().len(), 0, "still in use");
        assert_eq!(&clone[..], b"el");
        drop(clone);
        assert_eq!(pool.take(CHUNK_BYTES).all().as_ptr(), address);
    }

    #[test]
    fn chunks_are_short_while_many_buffers_are_out() {
        let pool = alone();
        let lent: Vec<PooledBuffer> = (0..LENT_MAX).map(|_| pool.take_chunk()).collect();
        assert!(lent.iter().all(|buffer| buffer.chunk_bytes() == CHUNK_BYTES));
        let short = pool.take_chunk();
        assert_eq!((short.chunk_bytes(), pool.chunk_bytes()), (BLOCK, BLOCK));
        drop(lent);
        assert_eq!(pool.take_chunk().chunk_bytes(), CHUNK_BYTES);
    }

    #[test]
    fn a_buffer_that_is_full_is_exchanged_with_its_bytes() {
        let pool = alone();
        let mut buffer = pool.take_start(CHUNK_BYTES);
        buffer.append(&vec![7; SMALL_BYTES], SMALL_BYTES);
        let lent: Vec<PooledBuffer> = (0..LENT_MAX).map(|_| pool.take_chunk()).collect();
        let step = pool.exchange(&buffer, CHUNK_BYTES);
        assert_eq!((step.capacity(), step.filled), (2 * SMALL_BYTES, SMALL_BYTES));
        drop(lent);
        let whole = pool.exchange(&step, CHUNK_BYTES);
        assert!(whole.capacity() >= CHUNK_BYTES);
        assert_eq!(whole.all()[..whole.filled], vec![7; SMALL_BYTES]);
    }

    #[test]
    fn the_pool_is_bounded_and_small_buffers_stay_out_of_it() {
        let pool = BufferPool::new(1);
        let (first, second, small) = (pool.take(CHUNK_BYTES), pool.take(CHUNK_BYTES), pool.take(1));
        assert_eq!(small.capacity(), ALIGN);
        drop((first, second, small));
        assert_eq!(pool.idle.lock().len(), 1);
    }

    #[test]
    fn windows_are_used_again_and_bounded() {
        let pool = alone();
        let (first, second) = (pool.take_window(), pool.take_window());
        assert_eq!((first.capacity(), pool.lent.load(Ordering::Relaxed)), (WINDOW_BYTES, 0));
        let address = first.all().as_ptr();
        let bytes = first.into_bytes(3..9);
        drop((bytes, second));
        assert_eq!((pool.windows.lock().len(), pool.idle.lock().len()), (1, 0));
        assert_eq!(pool.take_window().all().as_ptr(), address);
    }
}

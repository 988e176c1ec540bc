//! Memory for bytes on their way between socket and disk: aligned, so that writes can go past the
//! page cache, and used again, so that a busy store doesn't fault in fresh pages for every MiB.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::limits::{ALIGN_BYTES, CHUNK_BYTES};
use parking_lot::Mutex;

/// [`ALIGN_BYTES`] for slices.
#[expect(clippy::cast_possible_truncation, reason = "4 KiB fits anywhere")]
pub(super) const ALIGN: usize = ALIGN_BYTES as usize;
/// A chunk, and room for a record's header before it or for a file's footer after it.
pub(super) const BUFFER_BYTES: usize = CHUNK_BYTES + 4 * ALIGN;
/// Buffers up to this size are not worth keeping.
const SMALL_BYTES: usize = 128 * 1024;

/// Memory that begins at a multiple of 4 KiB.
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    /// Bytes in use; whoever fills the buffer keeps count here.
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

    /// Appends as much of `bytes` as fits below `limit`, and returns how much.
    pub(super) fn append(&mut self, bytes: &[u8], limit: usize) -> usize {
        let taken = bytes.len().min(limit - self.filled);
        let filled = self.filled;
        self.all_mut()[filled..filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        taken
    }

    /// Zeros up to the next multiple of 4 KiB.
    pub(super) fn pad(&mut self) {
        let (filled, padded) = (self.filled, self.filled.next_multiple_of(ALIGN));
        self.all_mut()[filled..padded].fill(0);
        self.filled = padded;
    }
}

/// Buffers of [`BUFFER_BYTES`] that wait for their next use.
#[derive(Clone)]
pub(super) struct BufferPool {
    idle: Arc<Mutex<Vec<AlignedBuffer>>>,
    idle_max: usize,
}

impl BufferPool {
    pub(super) fn new(idle_max: usize) -> Self {
        Self { idle: Arc::default(), idle_max }
    }

    /// A buffer of at least `bytes`, whose content is whatever it was. It comes back when dropped.
    pub(super) fn take(&self, bytes: usize) -> Pooled {
        let idle = (bytes > SMALL_BYTES).then(|| self.idle.lock().pop()).flatten();
        let mut buffer = idle.unwrap_or_else(|| {
            AlignedBuffer::new(if bytes > SMALL_BYTES { BUFFER_BYTES.max(bytes) } else { bytes })
        });
        buffer.filled = 0;
        Pooled { buffer: Some(buffer), pool: self.clone() }
    }
}

/// A buffer on loan.
pub(super) struct Pooled {
    buffer: Option<AlignedBuffer>,
    pool: BufferPool,
}

const LENT: &str = "the buffer is here until it is dropped";

impl std::ops::Deref for Pooled {
    type Target = AlignedBuffer;

    fn deref(&self) -> &AlignedBuffer {
        self.buffer.as_ref().expect(LENT)
    }
}

impl std::ops::DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut AlignedBuffer {
        self.buffer.as_mut().expect(LENT)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let mut idle = self.pool.idle.lock();
        if buffer.capacity() == BUFFER_BYTES && idle.len() < self.pool.idle_max {
            idle.push(buffer);
        }
    }
}

struct Window {
    buffer: Pooled,
    range: Range<usize>,
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.all()[self.range.clone()]
    }
}

impl Pooled {
    /// Part of the buffer as shared bytes; the last of them to be dropped gives it back.
    pub(super) fn into_bytes(self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Window { buffer: self, range })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_pool_is_bounded_and_small_buffers_stay_out_of_it() {
        let pool = BufferPool::new(1);
        let (first, second, small) = (pool.take(CHUNK_BYTES), pool.take(CHUNK_BYTES), pool.take(1));
        assert_eq!(small.capacity(), ALIGN);
        drop((first, second, small));
        assert_eq!(pool.idle.lock().len(), 1);
    }
}

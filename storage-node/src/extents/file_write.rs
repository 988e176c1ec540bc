//! Writes a file extent: while a thread hashes and writes one chunk, the next chunk fills.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::EXTENT_BYTES_MAX;
use martlet_protocol::trace::{self, SpanKind};
use martlet_protocol::{ErrorKind, ExtentId, Result};
use tokio::sync::oneshot;

use crate::device::pool::PooledCall;
use crate::disk::{Caching, DiskFile};

use super::blocks::{BLOCK, BlockHasher};
use super::buffer::{ALIGN, PooledBuffer};
use super::folders::Folders;
use super::footer;
use super::gather::Gather;
use super::seal::Description;
use super::state::{Counters, Headroom, Suspect};
use super::store::StoreState;

/// A file extent that is being written. Dropped before [`Self::keep`], it removes its file.
pub(super) struct FileWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    hasher: BlockHasher,
    folders: Arc<Folders>,
    counters: Arc<Counters>,
    suspect: Arc<Suspect>,
    /// Result of the sync of the file's name.
    named: Option<oneshot::Receiver<Result<()>>>,
    headroom: Arc<Headroom>,
    /// Length of the file until its last bytes are written.
    length: u64,
    /// Allocated bytes of the file.
    allocated: u64,
    kept: bool,
}

/// Bounds in bytes of the allocation ahead of received bytes, which is half of those bytes.
const AHEAD_BYTES_MIN: u64 = 1024 * 1024 - 64 * 1024;
const AHEAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

impl FileWriter {
    /// Makes the file under its final name, at its maximum length. Its name becomes durable while
    /// its bytes arrive, and space is allocated as they arrive. A client that stalls holds no more
    /// space than it has sent, and half of that. Blocks.
    pub(super) fn create(
        store: &StoreState,
        id: ExtentId,
        declared: Option<u64>,
        hasher: BlockHasher,
    ) -> Result<Self> {
        let path = footer::path(&store.root, id);
        let file = store.suspect.record_outcome(store.disk.create(&path, Caching::Direct))?;
        let named = path.parent().map(|folder| store.folders.sync(folder));
        let most = declared.unwrap_or(EXTENT_BYTES_MAX);
        let length = footer::file_bytes(most, footer_bytes_max(most));
        let writer = Self {
            file,
            path,
            hasher,
            folders: store.folders.clone(),
            counters: store.counters.clone(),
            suspect: store.suspect.clone(),
            named,
            headroom: store.headroom.clone(),
            length,
            allocated: 0,
            kept: false,
        };
        // An unfinished file must end in a zero sector, so its end lies beyond all bytes of the
        // client.
        writer.suspect.record_outcome(writer.file.truncate(length))?;
        Ok(writer)
    }

    /// Writes the whole body, and makes it durable.
    pub(super) async fn take(
        self,
        store: &StoreState,
        mut gather: Gather,
        first: PooledBuffer,
        facts: ExtentRecord,
    ) -> Result<(Self, ExtentRecord)> {
        let mut buffer = first;
        let mut writing: Option<PooledCall<Self>> = None;
        let mut idle = Some(self);
        loop {
            let limit = buffer.chunk_bytes();
            let filled = gather.fill(&mut buffer, limit).await;
            let writer = match writing.take() {
                Some(call) => store.threads.wait(call).await?,
                None => idle.take().expect("a writer is idle or writing"),
            };
            if filled? {
                let finish = move || writer.finish(buffer, facts);
                let (mut writer, record) = store.threads.run(finish).await?;
                if let Some(named) = writer.named.take() {
                    store.threads.pulse().wait(super::folders::synced(named)).await??;
                }
                return Ok((writer, record));
            }
            let full = std::mem::replace(&mut buffer, store.pool.take_chunk());
            writing = Some(store.threads.start(move || writer.absorb(&full)));
        }
    }

    fn absorb(mut self, chunk: &PooledBuffer) -> Result<Self> {
        let bytes = &chunk.all()[..chunk.filled];
        let offset = self.hasher.length();
        self.hasher.update(bytes);
        let end = self.hasher.length();
        let ahead = (end / 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        self.make_room(end, ahead)?;
        self.suspect.record_outcome(self.file.write_at(&[IoSlice::new(bytes)], offset))?;
        Ok(self)
    }

    /// Allocates space below `end`, and if space permits for `ahead` more bytes.
    fn make_room(&mut self, end: u64, ahead: u64) -> Result<()> {
        if end <= self.allocated {
            return Ok(());
        }
        let to = (end + ahead).next_multiple_of(ALIGN as u64).min(self.length);
        match self.allocate(to) {
            Err(error) if error.kind() == ErrorKind::Full && to > end => self.allocate(end),
            outcome => outcome,
        }
    }

    fn allocate(&mut self, to: u64) -> Result<()> {
        let more = to - self.allocated;
        self.headroom.admit(more)?;
        self.suspect.record_outcome(self.file.allocate(self.allocated, more))?;
        self.allocated = to;
        Ok(())
    }

    /// Writes the last chunk and the footer, truncates the file to its final length, and syncs it.
    fn finish(
        mut self,
        mut last: PooledBuffer,
        facts: ExtentRecord,
    ) -> Result<(Self, ExtentRecord)> {
        let offset = self.hasher.length();
        self.hasher.update(&last.all()[..last.filled]);
        let length = self.hasher.length();
        let description = Description::complete(facts, length, &mut self.hasher)?;
        let footer = footer::encode(&description);
        last.pad();
        let limit = last.capacity();
        let written = last.append(&footer, limit);
        debug_assert_eq!(written, footer.len(), "a buffer has room for a chunk and a footer");
        let total = footer::file_bytes(length, footer.len());
        self.make_room(total, 0)?;
        if total != self.length {
            self.suspect.record_outcome(self.file.truncate(total))?;
        }
        let last = IoSlice::new(&last.all()[..last.filled]);
        self.suspect.record_outcome(self.file.write_at(&[last], offset))?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let _span = trace::child(SpanKind::Internal, "sync of a file");
        self.file.sync().inspect_err(|error| self.suspect.set(error))?;
        Ok((self, description.record))
    }

    /// Keeps the file when this is dropped.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.kept {
            self.folders.discard(&self.path);
        }
    }
}

/// Maximum length of the footer of an extent of `length` bytes, for allocation. The owner's key is
/// at most 1 KiB; types bound all other fields.
fn footer_bytes_max(length: u64) -> usize {
    let blocks = usize::try_from(length).expect("an extent fits in memory").div_ceil(BLOCK);
    (blocks * 4 + 2048).next_multiple_of(ALIGN)
}

//! Writes one file extent: while one chunk is hashed and written on a thread, the next one fills.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::{CHUNK_BYTES, EXTENT_BYTES_MAX};
use martlet_protocol::{Error, ExtentId, Result};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::disk::{Caching, DiskFile};

use super::blocks::{BLOCK, BlockHasher};
use super::buffer::{ALIGN, Pooled};
use super::folders::Folders;
use super::footer;
use super::gather::Gather;
use super::seal::Description;
use super::state::{Counters, Suspect};
use super::store::Inner;
use super::write::described;

/// A file extent that is being written. Dropped before it is kept, it leaves nothing behind.
pub(super) struct FileWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    hasher: BlockHasher,
    folders: Arc<Folders>,
    counters: Arc<Counters>,
    suspect: Arc<Suspect>,
    /// Answered when the file's name is durable.
    named: Option<oneshot::Receiver<Result<()>>>,
    declared: Option<u64>,
    kept: bool,
}

impl FileWriter {
    /// Makes the file under its final name, with room for everything. Its name is made durable
    /// while its bytes still come. Blocks.
    pub(super) fn create(store: &Inner, id: ExtentId, declared: Option<u64>) -> Result<Self> {
        let path = footer::path(&store.root, id);
        let file = store.suspect.note(store.disk.create(&path, Caching::Direct))?;
        let named = path.parent().map(|folder| store.folders.sync(folder));
        let writer = Self {
            file,
            path,
            hasher: BlockHasher::default(),
            folders: store.folders.clone(),
            counters: store.counters.clone(),
            suspect: store.suspect.clone(),
            named,
            declared,
            kept: false,
        };
        let length = declared.unwrap_or(EXTENT_BYTES_MAX);
        let room = footer::file_bytes(length, footer_bytes_max(length));
        writer.suspect.note(writer.file.allocate(0, room))?;
        Ok(writer)
    }

    /// Takes the whole body, and makes it durable.
    pub(super) async fn take(
        self,
        mut gather: Gather,
        first: Pooled,
        spare: impl Fn() -> Pooled,
        facts: ExtentRecord,
    ) -> Result<(Self, ExtentRecord)> {
        let mut buffer = first;
        let mut writing: Option<JoinHandle<Result<Self>>> = None;
        let mut idle = Some(self);
        loop {
            let filled = gather.fill(&mut buffer, CHUNK_BYTES).await;
            let writer = match writing.take() {
                Some(task) => joined(task.await)?,
                None => idle.take().expect("a writer is idle or writing"),
            };
            if filled? {
                let task = tokio::task::spawn_blocking(move || writer.finish(buffer, facts));
                let (mut writer, record) = joined(task.await)?;
                if let Some(named) = writer.named.take() {
                    super::folders::synced(named).await?;
                }
                return Ok((writer, record));
            }
            let full = std::mem::replace(&mut buffer, spare());
            writing = Some(tokio::task::spawn_blocking(move || writer.absorb(&full)));
        }
    }

    fn absorb(mut self, chunk: &Pooled) -> Result<Self> {
        let bytes = &chunk.all()[..chunk.filled];
        let offset = self.hasher.length();
        self.hasher.update(bytes);
        self.suspect.note(self.file.write_at(&[IoSlice::new(bytes)], offset))?;
        Ok(self)
    }

    /// Writes the last chunk and the footer, cuts the file to length, and syncs it.
    fn finish(mut self, mut last: Pooled, facts: ExtentRecord) -> Result<(Self, ExtentRecord)> {
        let offset = self.hasher.length();
        self.hasher.update(&last.all()[..last.filled]);
        let length = self.hasher.length();
        let (record, crcs) = described(facts, length, &mut self.hasher);
        let footer = footer::encode(&Description { record: record.clone(), crcs });
        last.pad();
        let limit = last.capacity();
        let written = last.append(&footer, limit);
        debug_assert_eq!(written, footer.len(), "a buffer has room for a chunk and a footer");
        let total = footer::file_bytes(length, footer.len());
        if self.declared.is_none() || footer.len() != footer_bytes_max(length) {
            self.suspect.note(self.file.truncate(total))?;
        }
        let last = IoSlice::new(&last.all()[..last.filled]);
        self.suspect.note(self.file.write_at(&[last], offset))?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync().inspect_err(|error| self.suspect.set(error))?;
        Ok((self, record))
    }

    /// Keeps the file.
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

/// The longest footer that an extent of `length` bytes can have: the room to set aside for it. The
/// owner's key is at most 1 KiB, everything else is bounded by its type.
fn footer_bytes_max(length: u64) -> usize {
    let blocks = usize::try_from(length).expect("an extent fits in memory").div_ceil(BLOCK);
    (blocks * 4 + 2048).next_multiple_of(ALIGN)
}

fn joined<T>(task: Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    task.unwrap_or_else(|error| {
        Err(Error::internal("writing an extent ended unexpectedly").with_source(error))
    })
}

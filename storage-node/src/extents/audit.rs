//! Verification of whole extents: each block against its CRC32C, the whole against its BLAKE3, and
//! its description against the table.
//!
//! Reads bypass the page cache if the file system supports this. The cache may hold the bytes that
//! were written while the disk has different bytes. Readers keep their cached bytes.
//!
//! An I/O error is no proof: a cable may be loose. Later calls read the extent again, and it moves to
//! quarantine only once the disk could not read it repeatedly, over minutes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use martlet_protocol::backend::AuditResult;
use martlet_protocol::limits::{BLOCK_BYTES, CHUNK_BYTES};
use martlet_protocol::{Error, ErrorKind, ExtentId, Result};

use super::ExtentStore;
use super::buffer::ALIGN;
use super::footer;
use super::open::{OpenExtent, mismatch};
use super::record::BlockRun;
use super::row::{Row, RowLocation};
use super::seal::SealLocation;
use super::store::StoreState;
use super::unreadable::is_unreadable;
use crate::device::moment::Moment;
use crate::disk::{Caching, DiskFile};

/// Rows that are read from the table at a time.
const PAGE: usize = 64;
/// Time after which a call ends with its current extent: callers have timeouts, and disks may be
/// busy.
const SLICE: Duration = Duration::from_secs(2);

/// Extents that a call verifies again first, if they were unreadable before.
const AGAIN_AT_ONCE: usize = 4;

/// Result of the verification of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Soundness {
    /// As it was written, or removed meanwhile.
    Sound,
    /// Other bytes than were written, or lost.
    Corrupt,
    /// The disk can't read it for now.
    Unreadable,
}

impl ExtentStore {
    /// Verifies extents with ids above `after`, in order of ids, at least one. Stops after
    /// `bytes_max` bytes or two seconds. Corrupt extents move to quarantine.
    pub async fn audit(
        &self,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<AuditResult<ExtentId>> {
        let (mut audited, mut after, began) = (AuditResult::default(), after, Instant::now());
        audited.corrupt = self.read_again().await?;
        loop {
            let store = self.0.clone();
            let page = self.0.threads.run(move || store.table.list(after, PAGE)).await?;
            let Some(last) = page.last() else { return Ok(audited) };
            let page_ends = last.record.extent.id;
            for row in page.into_iter().filter(|row| row.place != RowLocation::Quarantined) {
                let is_full = audited.bytes >= bytes_max || began.elapsed() > SLICE;
                if audited.items > 0 && is_full {
                    audited.next = after;
                    return Ok(audited);
                }
                let id = row.record.extent.id;
                audited.items += 1;
                audited.bytes += u64::from(row.record.extent.length);
                let store = self.0.clone();
                if self.0.threads.run(move || store.soundness(&row)).await? == Soundness::Corrupt {
                    StoreState::quarantine(&self.0, id).await;
                    audited.corrupt.push(id);
                }
                after = Some(id);
            }
            after = Some(page_ends);
        }
    }

    /// Verifies some extents again that could not be read a minute ago or earlier. Those that are
    /// corrupt or lost move to quarantine, and are returned.
    async fn read_again(&self) -> Result<Vec<ExtentId>> {
        let mut corrupt = Vec::new();
        for id in self.0.unreadable.due(Moment::now(self.0.now_ms()), AGAIN_AT_ONCE) {
            let store = self.0.clone();
            let read = move || match store.table.get(id)? {
                Some(row) if row.place != RowLocation::Quarantined => store.soundness(&row),
                _ => {
                    store.unreadable.forget(id);
                    Ok(Soundness::Sound)
                }
            };
            if self.0.threads.run(read).await? == Soundness::Corrupt {
                StoreState::quarantine(&self.0, id).await;
                corrupt.push(id);
            }
        }
        Ok(corrupt)
    }
}

impl StoreState {
    /// Checks on disk an extent that a reader found corrupt. If only the page cache has a flipped
    /// bit, drops the extent from the cache and returns true: it may be opened and read again.
    /// Otherwise moves the extent to quarantine.
    pub(super) async fn verify_and_quarantine(store: &Arc<Self>, id: ExtentId) -> bool {
        let inner = store.clone();
        match store.threads.run(move || inner.is_sound_on_disk(id)).await {
            Ok(true) => {
                store.counters.corrupt_reads.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(extent = %id, "corrected an extent in memory that is right on disk");
                true
            }
            Ok(false) => {
                Self::quarantine(store, id).await;
                false
            }
            Err(error) => {
                tracing::error!(extent = %id, %error, "could not verify a corrupt extent again");
                false
            }
        }
    }

    /// Moves a corrupt extent to quarantine.
    async fn quarantine(store: &Arc<Self>, id: ExtentId) {
        store.counters.corrupt_reads.fetch_add(1, Ordering::Relaxed);
        let inner = store.clone();
        if let Err(error) = store.threads.run(move || inner.set_aside(id)).await {
            tracing::error!(extent = %id, %error, "could not quarantine a corrupt extent");
        }
    }

    /// Returns true if the disk has an extent as it was written, and then drops its cached bytes.
    /// Blocks.
    fn is_sound_on_disk(&self, id: ExtentId) -> Result<bool> {
        let Some(row) = self.table.get(id)? else { return Ok(true) };
        if row.place == RowLocation::Quarantined {
            return Ok(false);
        }
        match self.soundness(&row)? {
            Soundness::Sound => {}
            Soundness::Corrupt => return Ok(false),
            Soundness::Unreadable => {
                return Err(Error::unavailable("the disk can't read the extent for now"));
            }
        }
        self.opened.remove(&id);
        self.drop_cached(&row)?;
        Ok(true)
    }

    /// Drops the cached bytes of an extent.
    fn drop_cached(&self, row: &Row) -> Result<()> {
        let extent = row.record.extent;
        match row.place {
            RowLocation::Record(volume, offset) => {
                let spot = SealLocation { volume, offset };
                let run = BlockRun::of_record(spot, u64::from(extent.length));
                self.volumes.get(volume)?.file.drop_cached(run.offset, run.bytes)
            }
            RowLocation::File | RowLocation::Quarantined => {
                let file = self.disk.open(&footer::path(&self.root, extent.id), Caching::Cached)?;
                file.drop_cached(0, file.length()?)
            }
        }
    }

    /// Verifies an extent. One that was removed meanwhile is sound. One that the disk can't read is
    /// read again at once, and counts as corrupt after repeated failures over minutes. Blocks.
    fn soundness(&self, row: &Row) -> Result<Soundness> {
        let id = row.record.extent.id;
        let verified = match self.verify(row) {
            Err(error) if is_unreadable(&error) => {
                // Bytes in the cache prove nothing about the disk.
                self.drop_cached(row).and_then(|()| self.verify(row))
            }
            verified => verified,
        };
        match verified {
            Ok(()) => {
                self.unreadable.forget(id);
                Ok(Soundness::Sound)
            }
            Err(_) if self.table.get(id)?.as_ref() != Some(row) => Ok(Soundness::Sound),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => {
                tracing::error!(extent = %id, %error, "found a corrupt extent");
                self.unreadable.forget(id);
                Ok(Soundness::Corrupt)
            }
            Err(error) if is_unreadable(&error) => {
                if self.unreadable.record(id, Moment::now(self.now_ms())) {
                    tracing::error!(extent = %id, %error, "the disk has lost an extent");
                    self.unreadable.forget(id);
                    return Ok(Soundness::Corrupt);
                }
                tracing::warn!(extent = %id, %error, "could not read an extent, trying again later");
                Ok(Soundness::Unreadable)
            }
            Err(error) => Err(error),
        }
    }

    fn verify(&self, row: &Row) -> Result<()> {
        let extent = row.record.extent;
        match row.place {
            RowLocation::Record(volume, offset) => {
                let run =
                    BlockRun::of_record(SealLocation { volume, offset }, u64::from(extent.length));
                let described = self.open_record(row, run.spot(), Caching::Direct)?;
                self.verify_bytes(row, &described, &self.volumes.get(volume)?.direct)
            }
            RowLocation::File | RowLocation::Quarantined => {
                let path = footer::path(&self.root, extent.id);
                let direct = self.disk.open(&path, Caching::Direct)?;
                let described = OpenExtent::file(row, direct.clone(), None)?;
                self.verify_bytes(row, &described, &direct)
            }
        }
    }

    /// Verifies all bytes of an extent through `file`, a chunk at a time.
    fn verify_bytes(
        &self,
        row: &Row,
        described: &OpenExtent,
        file: &Arc<dyn DiskFile>,
    ) -> Result<()> {
        let extent = row.record.extent;
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        let mut buffer = self.pool.take(CHUNK_BYTES);
        while at < described.length {
            let left = usize::try_from(described.length - at).unwrap_or(usize::MAX);
            let bytes = left.min(CHUNK_BYTES);
            let padded = bytes.next_multiple_of(ALIGN);
            file.read_at(&mut buffer.all_mut()[..padded], described.base + at)?;
            let piece = &buffer.all()[..bytes];
            let first = usize::try_from(at / BLOCK_BYTES).expect("an extent has few blocks");
            if !described.verify(piece, first) {
                return Err(mismatch(extent.id));
            }
            hasher.update(piece);
            at += bytes as u64;
        }
        if *hasher.finalize().as_bytes() != extent.blake3 {
            return Err(mismatch(extent.id));
        }
        Ok(())
    }
}

//! Extents that are read as a whole and verified: every block against its CRC32C, all of it against
//! its BLAKE3, and what it says of itself against the table.
//!
//! The bytes are read past the page cache where the file system can: what is there may be what was
//! written while the disk has something else, and readers keep what they have cached.

use std::sync::Arc;

use martlet_protocol::backend::Audited;
use martlet_protocol::limits::{BLOCK_BYTES, CHUNK_BYTES};
use martlet_protocol::{ErrorKind, ExtentId, Result};

use super::ExtentStore;
use super::buffer::ALIGN;
use super::footer;
use super::open::{OpenExtent, mismatch};
use super::record::Run;
use super::row::{Place, Row};
use super::store::Inner;
use crate::disk::{Caching, DiskFile};
use crate::index::blocking;

/// Rows that are looked up at a time.
const PAGE: usize = 64;

impl ExtentStore {
    /// Verifies extents above `after`, by id, until `bytes_max` were read (one extent at least). What
    /// is corrupt goes to quarantine.
    pub async fn audit(
        &self,
        after: Option<ExtentId>,
        bytes_max: u64,
    ) -> Result<Audited<ExtentId>> {
        let (mut audited, mut after) = (Audited::default(), after);
        loop {
            let store = self.0.clone();
            let page = blocking(move || store.table.list(after, PAGE)).await?;
            let Some(last) = page.last() else { return Ok(audited) };
            let page_ends = last.record.extent.id;
            for row in page.into_iter().filter(|row| row.place != Place::Quarantined) {
                if audited.items > 0 && audited.bytes >= bytes_max {
                    audited.next = after;
                    return Ok(audited);
                }
                let id = row.record.extent.id;
                audited.items += 1;
                audited.bytes += u64::from(row.record.extent.length);
                let store = self.0.clone();
                if !blocking(move || store.is_sound(&row)).await? {
                    Inner::quarantine(&self.0, id).await;
                    audited.corrupt.push(id);
                }
                after = Some(id);
            }
            after = Some(page_ends);
        }
    }
}

impl Inner {
    /// Whether an extent is what was written. One that was removed meanwhile is. Blocks.
    fn is_sound(&self, row: &Row) -> Result<bool> {
        let id = row.record.extent.id;
        match self.verify(row) {
            Ok(()) => Ok(true),
            Err(_) if self.table.get(id)?.as_ref() != Some(row) => Ok(true),
            // What the disk does not give back is as lost as what it gives back wrongly.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Internal
                ) =>
            {
                tracing::error!(extent = %id, %error, "an extent is not what was written");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn verify(&self, row: &Row) -> Result<()> {
        let extent = row.record.extent;
        match row.place {
            Place::Record(volume, offset) => {
                let run = Run::of_record((volume, offset), u64::from(extent.length));
                let described = self.open_record(row, run.spot())?;
                self.verify_bytes(row, &described, &self.volumes.get(volume)?.direct)
            }
            Place::File | Place::Quarantined => {
                let path = footer::path(&self.root, extent.id);
                let described = OpenExtent::file(row, self.disk.open(&path, Caching::Cached)?)?;
                let direct = self.disk.open(&path, Caching::Direct)?;
                self.verify_bytes(row, &described, &direct)
            }
        }
    }

    /// Reads all bytes of an extent through `file`, a chunk at a time.
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

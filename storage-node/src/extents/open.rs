//! An extent that is open for reading, with the checksums that its bytes must meet.

use std::sync::Arc;

use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{Error, ExtentId, Result};
use quick_cache::Weighter;

use crate::disk::DiskFile;

use super::blocks;
use super::file_lease::FileLease;
use super::footer::Footer;
use super::lease::Lease;
use super::record::{BlockRun, Header};
use super::row::Row;
use super::seal::Description;
use super::volumes::Volume;
use super::{footer, record};

/// Cache weight of an open file. Records weigh 1, because they share their files.
pub(super) const FILE_WEIGHT: u64 = 64;

/// An open extent.
#[derive(Debug)]
pub(super) struct OpenExtent {
    pub(super) id: ExtentId,
    pub(super) length: u64,
    pub(super) blake3: [u8; 32],
    pub(super) file: Arc<dyn DiskFile>,
    /// Offset of the extent in the file.
    pub(super) base: u64,
    pub(super) crcs: Vec<u32>,
    /// Prevents reuse of a record's space.
    lease: Option<Arc<Lease>>,
    /// Prevents truncation of a deleted file, if the store lends its files.
    _file_lease: Option<Arc<FileLease>>,
}

impl OpenExtent {
    /// Opens a file extent.
    pub(super) fn file(
        row: &Row,
        file: Arc<dyn DiskFile>,
        lease: Option<Arc<FileLease>>,
    ) -> Result<Self> {
        match footer::inspect(file.as_ref())? {
            Footer::Good(description) => {
                let opened = Self::described(row, file, 0, description, None)?;
                Ok(Self { _file_lease: lease, ..opened })
            }
            _ => Err(mismatch(row.record.extent.id)),
        }
    }

    /// Returns true if the extent lies in a volume.
    pub(super) fn is_packed(&self) -> bool {
        self.lease.is_some()
    }

    /// Opens a packed extent. The caller took `lease` before, so the record's space is not reused.
    pub(super) fn record(
        row: &Row,
        volume: &Volume,
        run: BlockRun,
        lease: Arc<Lease>,
        header: &[u8],
    ) -> Result<Self> {
        let id = row.record.extent.id;
        match record::inspect(&volume.seal, run.spot(), header) {
            Header::Good(description) => {
                let base = run.offset + ALIGN_BYTES;
                Self::described(row, volume.file.clone(), base, description, Some(lease))
            }
            _ => Err(mismatch(id)),
        }
    }

    fn described(
        row: &Row,
        file: Arc<dyn DiskFile>,
        base: u64,
        description: Description,
        lease: Option<Arc<Lease>>,
    ) -> Result<Self> {
        let extent = row.record.extent;
        if description.record != row.record {
            return Err(mismatch(extent.id));
        }
        let (id, length) = (extent.id, u64::from(extent.length));
        let (blake3, crcs) = (extent.blake3, description.crcs);
        Ok(Self { id, length, blake3, file, base, crcs, lease, _file_lease: None })
    }

    /// Returns true if `bytes`, from the beginning of block `first` on, match the checksums.
    pub(super) fn verify(&self, bytes: &[u8], first: usize) -> bool {
        blocks::verify(bytes, &self.crcs, first)
    }
}

pub(super) fn mismatch(id: ExtentId) -> Error {
    Error::corrupt(format!("extent {id} is corrupt"))
}

/// Weighs open extents by the files that they keep open.
#[derive(Clone)]
pub(super) struct ByFiles;

impl Weighter<ExtentId, Arc<OpenExtent>> for ByFiles {
    fn weight(&self, _: &ExtentId, extent: &Arc<OpenExtent>) -> u64 {
        if extent.lease.is_some() { 1 } else { FILE_WEIGHT }
    }
}

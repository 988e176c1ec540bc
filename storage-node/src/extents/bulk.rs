//! Places of packed extents whose bytes are never written: records in volumes of holes.

use std::path::Path;
use std::sync::Arc;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{Error, Result};

use super::options::ExtentOptions;
use super::record::record_bytes;
use super::recover;
use super::row::{Row, RowLocation};
use super::volumes::Volumes;
use crate::disk::Disk;
use crate::index::PlacedRow;

/// Volumes of holes, filled from the first block on.
pub(crate) struct BulkVolumes {
    volumes: Volumes,
    volume_bytes: u64,
    /// The volume that is being filled, and the offset of its next record.
    number: u32,
    offset: u64,
}

impl BulkVolumes {
    /// Begins to fill a store that has no volume. `Conflict` if it has one.
    pub(crate) fn open(root: &Path, disk: Arc<dyn Disk>) -> Result<Self> {
        recover::make_folders(disk.as_ref(), root)?;
        if !disk.list(&root.join("volumes"))?.is_empty() {
            return Err(Error::conflict(format!("{} holds extents already", root.display())));
        }
        let ExtentOptions { volume_bytes, volume_step_bytes, .. } = ExtentOptions::default();
        let volumes = Volumes::new(disk, root, volume_bytes, volume_step_bytes);
        // Before the first volume is made, no record fits.
        Ok(Self { volumes, volume_bytes, number: 0, offset: volume_bytes })
    }

    /// Returns the row of an extent at the next place.
    pub(crate) fn row(&mut self, record: &ExtentRecord) -> Result<PlacedRow> {
        let offset = self.take(u64::from(record.extent.length))?;
        let place = RowLocation::Record(self.number, offset);
        Ok(Row { place, record: record.clone() }.placed())
    }

    /// Leaves the place of an extent of `length` bytes free, as if it was deleted.
    pub(crate) fn leave_free(&mut self, length: u64) -> Result<()> {
        self.take(length).map(drop)
    }

    fn take(&mut self, length: u64) -> Result<u64> {
        let bytes = record_bytes(length);
        if self.offset + bytes > self.volume_bytes {
            self.number = self.volumes.add_hole(self.volume_bytes)?;
            self.offset = ALIGN_BYTES;
        }
        let offset = self.offset;
        self.offset += bytes;
        Ok(offset)
    }
}

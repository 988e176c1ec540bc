//! Destruction of wrong copies: other bytes than those of the extent, under checksums that match them.
//!
//! A release leaves no mark, as the device may get the right copy later. Without a mark, an opening
//! after a crash keeps every whole file or record that has no row. So the bytes of a wrong copy go
//! first, durably: a file by its name, a record by its header. A crash in between leaves a row
//! without bytes: an opening forgets the row of a missing file, and a reader or the audit moves a
//! record without a header to quarantine.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::Path;

use martlet_protocol::{ErrorKind, Result};

use super::buffer::ALIGN;
use super::footer;
use super::row::{Row, RowLocation};
use super::store::StoreState;

impl StoreState {
    /// Destroys the bytes of these rows, durably. The caller holds the lock under which rows are
    /// removed, so that each record still has its space. Blocks.
    ///
    /// # Errors
    /// Errors of the disk. Rows whose bytes are gone stay, and their extents are corrupt.
    pub(super) fn destroy_bytes(&self, rows: &[Row]) -> Result<()> {
        let (mut folders, mut volumes) = (BTreeSet::new(), BTreeSet::new());
        for row in rows {
            let extent = row.record.extent;
            self.opened.remove(&extent.id);
            match row.place {
                // Quarantined bytes are never served, and stay for an operator.
                RowLocation::Quarantined => {}
                RowLocation::File => {
                    match self.unlink(extent.id, u64::from(extent.length)) {
                        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                        Ok(()) | Err(_) => {}
                    }
                    let path = footer::path(&self.root, extent.id);
                    folders.extend(path.parent().map(Path::to_path_buf));
                }
                RowLocation::Record(volume, offset) => {
                    let file = &self.volumes.get(volume)?.file;
                    let zeroed = file.write_at(&[IoSlice::new(&[0; ALIGN])], offset);
                    self.suspect.record_outcome(zeroed)?;
                    volumes.insert(volume);
                }
            }
        }
        for number in volumes {
            let synced = self.volumes.get(number)?.file.sync();
            synced.inspect_err(|error| self.suspect.set(error))?;
        }
        for folder in folders {
            let synced = self.disk.sync_dir(&folder);
            synced.inspect_err(|error| self.suspect.set(error))?;
        }
        Ok(())
    }
}

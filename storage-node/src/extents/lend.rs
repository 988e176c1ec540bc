//! Descriptors of file extents for other processes, under a lease.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::{Error, ErrorKind, ExtentId};

use super::ExtentStore;
use super::footer;
use super::lent_extent::{LendError, LentExtent};
use super::open::OpenExtent;
use super::row::{Row, RowLocation};
use super::store::{StoreState, missing};
use crate::disk::{Caching, LentFolder};

impl ExtentStore {
    /// Opens the file of an extent, by `folder`, for another process. `folder` is the folder of all
    /// file extents.
    pub(crate) async fn lend(
        &self,
        id: ExtentId,
        folder: Arc<LentFolder>,
    ) -> Result<LentExtent, LendError> {
        self.0.suspect.check()?;
        let inner = self.0.clone();
        let outcome = self.0.threads.run(move || Ok(inner.lend(id, &folder))).await?;
        if let Err(LendError::Store(error)) = &outcome
            && error.kind() == ErrorKind::Corrupt
        {
            StoreState::verify_and_quarantine(&self.0, id).await;
        }
        outcome
    }

    /// Returns the folder of the files of a store in `root`.
    pub(crate) fn files_folder(root: &Path) -> PathBuf {
        root.join("extents")
    }
}

impl StoreState {
    fn lend(&self, id: ExtentId, folder: &LentFolder) -> Result<LentExtent, LendError> {
        let Some(leases) = &self.file_leases else {
            return Err(Error::unavailable("the device does not lend its extents").into());
        };
        let row = self.row(id)?;
        check_layout(&row)?;
        let length = u64::from(row.record.extent.length);
        let lease = leases.hold(id, length);
        let path = footer::path(&self.root, id);
        let file = self.disk.open(&path, Caching::Cached)?;
        let crcs = OpenExtent::file(&row, file, None)?.crcs;
        let files = folder.open_files(&footer::name(id))?;
        // A repair gives an equal row, and another lease.
        if self.table.get(id)?.as_ref() != Some(&row) || !lease.is_current() {
            return Err(missing(id).into());
        }
        let is_read_only = folder.writable().is_none();
        Ok(LentExtent { length, crcs, files, is_read_only, lease })
    }
}

/// Refuses extents whose file has other bytes than an object's.
fn check_layout(row: &Row) -> Result<(), LendError> {
    let id = row.record.extent.id;
    if row.place != RowLocation::File {
        return Err(LendError::Packed(id));
    }
    match row.record.layout.stripe {
        Some(stripe) if id.fragment_number() >= stripe.k => Err(LendError::Parity(id)),
        _ => Ok(()),
    }
}

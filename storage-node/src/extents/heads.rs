//! Copies of volume heads: `volume-heads/<number>.head` holds the first 4 KiB of a volume.
//!
//! A volume's head holds the secret that seals its records, so a volume without its head can't be
//! scanned. The copy lies in a file of its own, and is durable before its volume is made. So a
//! volume's copy is never older than the volume.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::{ErrorKind, Result};

use super::buffer::ALIGN;
use super::record::VolumeHead;
use crate::disk::{Caching, Disk};

/// Copies of the volume heads of a store.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

/// Returns the folder of the copies in the store's folder.
pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("volume-heads")
}

impl Heads {
    /// Opens the copies in the store's folder.
    pub(super) fn new(disk: Arc<dyn Disk>, root: &Path) -> Self {
        Self { disk, folder: folder(root) }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.head"))
    }

    /// Writes the copy of a head, durably, and replaces an older copy. The head fits in one sector,
    /// which a disk writes whole or not at all.
    pub(super) fn keep(&self, head: &VolumeHead) -> Result<()> {
        let path = self.path(head.number);
        let file = match self.disk.create(&path, Caching::Cached) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.disk.open(&path, Caching::Cached)?
            }
            created => created?,
        };
        file.write_at(&[IoSlice::new(&head.encode())], 0)?;
        file.sync()?;
        self.disk.sync_dir(&self.folder)
    }

    /// Returns the copy of a volume's head, if it exists and is readable.
    pub(super) fn copy(&self, number: u32) -> Option<VolumeHead> {
        let file = self.disk.open(&self.path(number), Caching::Cached).ok()?;
        let mut bytes = vec![0; ALIGN];
        file.read_at(&mut bytes, 0).ok()?;
        VolumeHead::decode(&bytes).filter(|head| head.number == number)
    }
}

//! Loading of many objects into a new device, for benchmarks and tests of its size.
//!
//! Entries, sums and rows of extents are those of real writes. They are written in batches without
//! a log, at some hundred thousand objects a second. The extents have places in volumes of holes
//! and no bytes: reads of their bytes fail, and an audit quarantines them.

use std::path::Path;
use std::sync::Arc;

use martlet_protocol::entry::Entry;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{RegisterKey, Result};

use crate::device;
use crate::disk::PosixDisk;
use crate::extents::BulkVolumes;
use crate::index::{BulkIndex, Caches};

/// Object of a bulk load.
#[derive(Clone, Debug)]
pub struct BulkObject {
    /// Register of the object.
    pub key: RegisterKey,
    /// Entry of the object.
    pub entry: Entry,
    /// Extents of the object on this device.
    pub extents: Vec<ExtentRecord>,
}

/// A device that is being loaded. Nothing else may use it.
pub struct BulkLoad {
    index: BulkIndex,
    volumes: BulkVolumes,
    // Last field, so that the lock is released last.
    _lock: std::fs::File,
}

impl std::fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BulkLoad")
    }
}

impl BulkLoad {
    /// Begins to load a device that a node has formatted and closed. Blocks.
    ///
    /// # Errors
    /// `Conflict` if the device is in use or holds packed extents.
    pub fn begin(path: &Path, secret: TreeKey) -> Result<Self> {
        let lock = device::lock(path)?;
        let volumes = BulkVolumes::open(path, Arc::new(PosixDisk))?;
        let index = BulkIndex::open(&path.join("index"), secret, &Caches::default())?;
        Ok(Self { index, volumes, _lock: lock })
    }

    /// Adds an object whose register is empty.
    pub fn add(&mut self, object: &BulkObject) -> Result<()> {
        for record in &object.extents {
            self.index.add_extent(&self.volumes.row(record)?)?;
        }
        self.index.add(&object.key, &object.entry)
    }

    /// Leaves the place of an extent of `length` bytes free.
    pub fn leave_free(&mut self, length: u64) -> Result<()> {
        self.volumes.leave_free(length)
    }

    /// Makes everything durable. Blocks.
    pub fn finish(self) -> Result<()> {
        self.index.finish()
    }
}

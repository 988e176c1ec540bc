//! What a node counts. The counters rise for ever; whoever scrapes them takes differences.

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::DeviceStatus;

use crate::extents::ExtentUsage;

/// Figures of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeMetrics {
    /// Its devices.
    pub devices: Vec<DeviceMetrics>,
}

/// Figures of one device.
#[derive(Clone, Debug)]
pub struct DeviceMetrics {
    /// Id, folder, health, space, extents.
    pub status: DeviceStatus,
    /// Its index.
    pub index: IndexMetrics,
    /// Its extents; zeros while it is offline.
    pub extents: ExtentUsage,
    /// How often it was closed and opened again since the node started.
    pub reopened: u64,
}

/// Figures of one index since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexMetrics {
    /// Operations that the committer answered: writes, promises, fences and the like.
    pub writes: u64,
    /// Synced batches that they shared.
    pub syncs: u64,
    /// Operations of the largest group.
    pub group_ops_max: u64,
    /// Bytes of the batches.
    pub bytes: u64,
    /// Registers read.
    pub reads: u64,
    /// Of those, reads that had to go to a thread that may wait for the disk.
    pub blocking_reads: u64,
    /// Listings.
    pub lists: u64,
    /// Rows that listings looked at.
    pub listed_rows: u64,
    /// Inline bytes that were not what was written.
    pub corrupt_reads: u64,
    /// Writes that were kept for other devices.
    pub hints_kept: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// [`IndexMetrics`] while they rise. They outlive a reopening.
        #[derive(Debug, Default)]
        pub(crate) struct IndexCounters {
            $($name: AtomicU64,)*
        }

        impl IndexCounters {
            pub(crate) fn snapshot(&self) -> IndexMetrics {
                IndexMetrics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters!(
    writes,
    syncs,
    group_ops_max,
    bytes,
    reads,
    blocking_reads,
    lists,
    listed_rows,
    corrupt_reads,
    hints_kept
);

impl IndexCounters {
    pub(crate) fn committed(&self, ops: usize, bytes: usize, synced: bool) {
        self.writes.fetch_add(ops as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.syncs.fetch_add(u64::from(synced), Ordering::Relaxed);
        self.group_ops_max.fetch_max(ops as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn blocking_read(&self) {
        self.blocking_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn listed(&self, rows: usize) {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.listed_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn hint_kept(&self) {
        self.hints_kept.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn corrupt_read(&self) {
        self.corrupt_reads.fetch_add(1, Ordering::Relaxed);
    }
}

//! Counters of a node. They rise until the process ends; monitoring computes differences.

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::DeviceStatus;

use crate::extents::ExtentUsage;

/// Counters of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeMetrics {
    /// The node's devices.
    pub devices: Vec<DeviceMetrics>,
}

/// Counters of one device.
#[derive(Clone, Debug)]
pub struct DeviceMetrics {
    /// Id, folder, health, space, extents.
    pub status: DeviceStatus,
    /// Counters of its index.
    pub index: IndexMetrics,
    /// Usage of its extent store; zeros while the device is offline.
    pub extents: ExtentUsage,
    /// Number of times the device was closed and opened again since the node started.
    pub reopened: u64,
}

/// Counters of one index since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexMetrics {
    /// Operations that the committer answered: writes, promises, fences and so on.
    pub writes: u64,
    /// Synced batches that carried these operations.
    pub syncs: u64,
    /// Number of operations in the largest batch.
    pub group_ops_max: u64,
    /// Total bytes of the batches.
    pub bytes: u64,
    /// Registers read.
    pub reads: u64,
    /// Reads that needed a thread that may wait for the disk.
    pub blocking_reads: u64,
    /// Listings served.
    pub lists: u64,
    /// Rows that listings visited.
    pub listed_rows: u64,
    /// Reads whose inline bytes failed verification.
    pub corrupt_reads: u64,
    /// Hints stored: writes kept for other devices.
    pub hints_kept: u64,
    /// Runs whose usage differed from their registers, and was corrected.
    pub usage_corrections: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// Atomic counters behind [`IndexMetrics`]. They survive reopenings of the device.
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
    hints_kept,
    usage_corrections
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

    pub(crate) fn usage_corrected(&self, runs: usize) {
        self.usage_corrections.fetch_add(runs as u64, Ordering::Relaxed);
    }

    pub(crate) fn corrupt_read(&self) {
        self.corrupt_reads.fetch_add(1, Ordering::Relaxed);
    }
}

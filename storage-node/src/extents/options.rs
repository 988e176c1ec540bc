//! Options of a store.

use std::sync::Arc;

use martlet_protocol::backend::RingEpochs;

use crate::device::pool::Pool;
use crate::device::pulse::STALL_AFTER;

const MIB: u64 = 1024 * 1024;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct ExtentOptions {
    /// Free bytes that new extents must leave on the device (beyond the bytes of the ballast).
    pub reserve_bytes: u64,
    /// Length of a volume.
    pub volume_bytes: u64,
    /// Bytes that a volume is preallocated by at a time.
    pub volume_step_bytes: u64,
    /// Number of file extents that are kept open for later readers; 64 packed extents count as one
    /// file extent.
    pub open_files_max: u64,
    /// Minimum length in bytes of free runs that `reclaim` returns to the file system.
    pub punch_bytes_min: u64,
    /// As above, while the device is short of space.
    pub punch_bytes_min_if_short: u64,
    /// True if the table is complete, because the store was closed before the process ended.
    pub clean: bool,
    /// True if the store lends descriptors of its files to other processes.
    pub lends: bool,
    /// Rings of the node; none where no ring can change beside the store's callers.
    pub rings: Option<Arc<RingEpochs>>,
    /// Hash of the map of free space that was saved when the store was closed.
    pub saved_space: Option<[u8; 32]>,
    /// Threads on which calls wait for the disk.
    pub(crate) threads: Arc<Pool>,
}

impl Default for ExtentOptions {
    fn default() -> Self {
        Self {
            reserve_bytes: 0,
            volume_bytes: 4096 * MIB,
            volume_step_bytes: 32 * MIB,
            open_files_max: 256,
            punch_bytes_min: 4 * MIB,
            punch_bytes_min_if_short: MIB / 16,
            clean: false,
            lends: false,
            rings: None,
            saved_space: None,
            threads: Arc::new(Pool::new("a store of its own".to_owned(), STALL_AFTER)),
        }
    }
}

//! Usage figures of a store.

/// Usage figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentUsage {
    /// Bytes in extents; up to 4 KiB more of each while they are counted.
    pub bytes: u64,
    /// Number of extents; that of their places while they are counted.
    pub extents: u64,
    /// True while extents are counted after a crash.
    pub is_counting: bool,
    /// Number of items in quarantine.
    pub quarantined: u64,
    /// Bytes in volumes that are free for new records.
    pub volume_free_bytes: u64,
    /// Bytes of deleted file extents that leases of other processes keep.
    pub withheld_bytes: u64,
    /// Extents written since the store was opened.
    pub writes: u64,
    /// Data syncs of files and volumes since the store was opened.
    pub syncs: u64,
    /// Folder syncs since the store was opened.
    pub folder_syncs: u64,
    /// Reads that found corrupt bytes.
    pub corrupt_reads: u64,
    /// Chunk reads answered from the page cache without a thread hop.
    pub inline_reads: u64,
    /// Chunk reads that waited for the device on a thread of their own.
    pub blocking_reads: u64,
}

//! What can be set about an [`ObjectStore`](crate::ObjectStore).

use martlet_protocol::limits;

/// Settings of an object store; the defaults are for production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Smallest part of a completed upload but its last.
    pub part_bytes_min: u64,
    /// How long a bucket that was looked up is taken for granted.
    pub bucket_cache_ms: u64,
    /// Bytes of bodies that all writes together may hold on their way to devices.
    pub buffer_bytes_max: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            part_bytes_min: limits::PART_BYTES_MIN,
            bucket_cache_ms: 1000,
            buffer_bytes_max: 128 * 1024 * 1024,
        }
    }
}

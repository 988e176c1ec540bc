//! Settings of an [`ObjectStore`](crate::ObjectStore).

use martlet_protocol::limits;

/// Settings of an object store; the defaults are for production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Minimum size in bytes of a completed upload's parts, except the last.
    pub part_bytes_min: u64,
    /// Most extents of a part's manifest inside its entry; a longer one is stored in extents of its own.
    pub part_extents_inline_max: usize,
    /// Lifetime of a cached bucket, in milliseconds.
    pub bucket_cache_ms: u64,
    /// Lifetime of a cached access key, in milliseconds.
    pub account_cache_ms: u64,
    /// Lifetime of a cached access key while no quorum replies, in milliseconds.
    pub account_outage_ms: u64,
    /// Maximum number of body bytes that all writes hold together before devices take them.
    pub buffer_bytes_max: usize,
    /// Maximum number of bytes of extents that concurrent readers share. Zero turns sharing off.
    pub window_bytes_max: usize,
    /// Timeout of one call to a register, in milliseconds.
    pub index_call_ms: u64,
    /// Time in milliseconds that primaries are awaited before other devices are queried.
    pub index_patience_ms: u64,
    /// Time in milliseconds before a read queries one more replica.
    pub index_hedge_ms: u64,
    /// Time limit of an operation on a register, with retries, in milliseconds.
    pub index_operation_ms: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            part_bytes_min: limits::PART_BYTES_MIN,
            part_extents_inline_max: limits::PART_EXTENTS_INLINE_MAX,
            bucket_cache_ms: 1000,
            account_cache_ms: 1000,
            account_outage_ms: 60_000,
            buffer_bytes_max: 128 * 1024 * 1024,
            window_bytes_max: 256 * 1024 * 1024,
            index_call_ms: 5000,
            index_patience_ms: 1000,
            index_hedge_ms: 30,
            index_operation_ms: 15_000,
        }
    }
}

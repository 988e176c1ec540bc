//! What can be set about an [`ObjectStore`](crate::ObjectStore).

use martlet_protocol::limits;

/// Settings of an object store; the defaults are for production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Smallest part of a completed upload but its last.
    pub part_bytes_min: u64,
    /// How long a bucket that was looked up is taken for granted.
    pub bucket_cache_ms: u64,
    /// How long an access key that was looked up is taken for granted.
    pub account_cache_ms: u64,
    /// The same while no quorum answers.
    pub account_outage_ms: u64,
    /// Bytes of bodies that all writes together may hold on their way to devices.
    pub buffer_bytes_max: usize,
    /// How long one call to a register may take.
    pub index_call_ms: u64,
    /// How long primaries are waited for before whoever else may know is asked too.
    pub index_patience_ms: u64,
    /// How long a read waits for the replicas that it asked before it asks one more.
    pub index_hedge_ms: u64,
    /// How long an operation on a register may go on trying.
    pub index_operation_ms: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            part_bytes_min: limits::PART_BYTES_MIN,
            bucket_cache_ms: 1000,
            account_cache_ms: 1000,
            account_outage_ms: 60_000,
            buffer_bytes_max: 128 * 1024 * 1024,
            index_call_ms: 5000,
            index_patience_ms: 1000,
            index_hedge_ms: 30,
            index_operation_ms: 15_000,
        }
    }
}

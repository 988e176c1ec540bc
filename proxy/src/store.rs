//! The object store: one type, whose operations stand in the modules of their subjects.

use std::sync::Arc;

use martlet_protocol::stamp::StampSource;
use martlet_protocol::{Clock, limits};
use tokio::sync::Semaphore;

use crate::bucket::BucketCache;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::latch::Latches;
use crate::manifests::Manifests;
use crate::options::StoreOptions;

/// Objects in buckets, over the nodes of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStore {
    pub(crate) inner: Arc<Inner>,
}

/// What the operations share.
pub(crate) struct Inner {
    pub(crate) cluster: Cluster,
    pub(crate) options: StoreOptions,
    pub(crate) stamps: StampSource,
    pub(crate) buckets: BucketCache,
    pub(crate) manifests: Manifests,
    /// Held around a ballot on a register.
    pub(crate) ballots: Latches,
    /// Held around the end of an upload, with ballots inside.
    pub(crate) uploads: Latches,
    /// Bytes of bodies that may still be taken in, over all writes.
    pub(crate) buffer: Arc<Semaphore>,
    /// Threads that may hash at a time.
    pub(crate) hashers: Arc<Semaphore>,
}

impl ObjectStore {
    /// A store over `cluster`.
    pub fn new(cluster: Cluster, clock: Arc<dyn Clock>, options: StoreOptions) -> Self {
        let buffer = options.buffer_bytes_max.clamp(1, Semaphore::MAX_PERMITS);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let inner = Inner {
            cluster,
            options,
            stamps: StampSource::new(clock),
            buckets: BucketCache::new(options.bucket_cache_ms),
            manifests: Manifests::default(),
            ballots: Latches::new(),
            uploads: Latches::new(),
            buffer: Arc::new(Semaphore::new(buffer)),
            hashers: Arc::new(Semaphore::new(cores)),
        };
        Self { inner: Arc::new(inner) }
    }
}

/// Refuses keys that no object can have. NUL would blur where a key ends in an upload's name.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > limits::KEY_BYTES_MAX || key.contains('\0') {
        let max = limits::KEY_BYTES_MAX;
        return Err(Error::InvalidRequest(format!("a key has 1 to {max} bytes, none of them NUL")));
    }
    Ok(())
}

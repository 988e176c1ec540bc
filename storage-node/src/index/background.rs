//! Threads on which RocksDB flushes and compacts.
//!
//! All indexes of a process share these threads, and RocksDB sizes the pool for a single index. So
//! one flush that hangs could block the flushes of all devices. The number of threads therefore
//! rises with the number of indexes: one compaction, one flush and one removal of old files for
//! each.

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use rocksdb::Env;

const FLUSH_THREADS: i32 = 2;
const COMPACTION_THREADS: i32 = 1;

/// Number of open indexes.
static OPEN: Mutex<i32> = Mutex::new(0);

/// Background threads of one index; returned on drop.
#[derive(Debug)]
pub(super) struct BackgroundThreads(());

impl BackgroundThreads {
    /// Adds the threads of one more index.
    pub(super) fn take() -> Result<Self> {
        let failed =
            |error| Error::internal("RocksDB's environment can't be created").with_source(error);
        let mut shared: Env = Env::new().map_err(failed)?;
        let mut open = OPEN.lock();
        *open += 1;
        shared.set_high_priority_background_threads(FLUSH_THREADS * *open);
        shared.set_low_priority_background_threads(COMPACTION_THREADS * *open);
        Ok(Self(()))
    }
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        // The next opening of an index sets the number.
        *OPEN.lock() -= 1;
    }
}

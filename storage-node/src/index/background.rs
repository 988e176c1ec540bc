//! The threads on which RocksDB flushes and compacts.
//!
//! All indexes of a process share them, and RocksDB gives the process as many as one index asks for: a
//! flush that hangs would be the last of any device. So their number rises with that of the indexes: one
//! compaction, one flush and one removal of old files for each.

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use rocksdb::Env;

const FLUSH_THREADS: i32 = 2;
const COMPACTION_THREADS: i32 = 1;

/// How many indexes are open.
static OPEN: Mutex<i32> = Mutex::new(0);

/// Threads of one index, while this lives.
#[derive(Debug)]
pub(super) struct BackgroundThreads(());

impl BackgroundThreads {
    /// Makes room for the work of one more index.
    pub(super) fn take() -> Result<Self> {
        let failed = |error| Error::internal("RocksDB has no environment").with_source(error);
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
        // The next index that opens sets the number.
        *OPEN.lock() -= 1;
    }
}

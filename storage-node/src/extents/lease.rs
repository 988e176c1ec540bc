//! Leases on records: the space of a deleted record is free once its last reader has ended.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use martlet_protocol::{Error, ExtentId, Result};

use super::record::BlockRun;
use super::space::SpaceMap;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Leases of the records that are being read.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    live: Arc<Mutex<HashMap<Place, Weak<Lease>>>>,
    space: Arc<Mutex<SpaceMap>>,
}

/// A record of an extent. An extent that was quarantined and written again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    id: ExtentId,
    volume: u32,
    offset: u64,
}

/// A reader's lease on a record, shared by all its readers. The space of a condemned record is
/// freed when the last reader drops the lease.
#[derive(Debug)]
pub(super) struct Lease {
    place: Place,
    run: BlockRun,
    condemned: AtomicBool,
    owner: Leases,
}

impl Leases {
    pub(super) fn new(space: Arc<Mutex<SpaceMap>>) -> Self {
        Self { live: Arc::default(), space }
    }

    /// Returns the lease on an extent's record. Take it before checking that the record exists: a
    /// delete in between then finds the lease.
    pub(super) fn hold(&self, id: ExtentId, run: BlockRun) -> Arc<Lease> {
        let mut live = self.live.lock();
        let place = Place { id, volume: run.volume, offset: run.offset };
        if let Some(lease) = live.get(&place).and_then(Weak::upgrade) {
            return lease;
        }
        let lease =
            Arc::new(Lease { place, run, condemned: AtomicBool::new(false), owner: self.clone() });
        live.insert(place, Arc::downgrade(&lease));
        lease
    }

    /// Frees the space of condemned records that are still being read. Only for a closed store,
    /// which allocates nothing. `Unavailable` if a reader ends at the same time.
    pub(super) fn settle(&self) -> Result<()> {
        let (held, count) = {
            let live = self.live.lock();
            (live.values().filter_map(Weak::upgrade).collect::<Vec<_>>(), live.len())
        };
        // The lock is free: a lease that is the last one takes it when it is dropped.
        if held.len() < count {
            return Err(Error::unavailable("a reader is just ending"));
        }
        for lease in held {
            if lease.condemned.swap(false, Ordering::AcqRel) {
                self.space.lock().release(lease.run);
            }
        }
        Ok(())
    }

    /// Frees the space of a record whose header is durably zero, at once or when its readers end.
    pub(super) fn condemn(&self, id: ExtentId, run: BlockRun) {
        self.hold(id, run).condemned.store(true, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut live = self.owner.live.lock();
        // A new lease may have replaced this one.
        if live.get(&self.place).is_some_and(|held| held.as_ptr() == std::ptr::from_ref(self)) {
            live.remove(&self.place);
        }
        // Under the lock: who finds no lease finds the space free.
        if self.condemned.load(Ordering::Acquire) {
            self.owner.space.lock().release(self.run);
        }
    }
}

#[cfg(all(test, feature = "interleavings"))]
mod interleavings;

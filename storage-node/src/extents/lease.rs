//! Leases on records: space of a deleted record is free once its last reader is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use martlet_protocol::ExtentId;
use parking_lot::Mutex;

use super::record::Run;
use super::space::SpaceMap;

/// Who reads which record.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    live: Arc<Mutex<HashMap<ExtentId, Weak<Lease>>>>,
    space: Arc<Mutex<SpaceMap>>,
}

/// A reader's hold on a record. All readers of a record share one; the last to let go of a condemned
/// one gives its space back.
#[derive(Debug)]
pub(super) struct Lease {
    id: ExtentId,
    run: Run,
    condemned: AtomicBool,
    owner: Leases,
}

impl Leases {
    pub(super) fn new(space: Arc<Mutex<SpaceMap>>) -> Self {
        Self { live: Arc::default(), space }
    }

    /// A hold on the record of an extent. Take it before looking whether the record is there: then a
    /// delete that comes between finds the hold.
    pub(super) fn hold(&self, id: ExtentId, run: Run) -> Arc<Lease> {
        let mut live = self.live.lock();
        if let Some(lease) = live.get(&id).and_then(Weak::upgrade) {
            return lease;
        }
        let lease =
            Arc::new(Lease { id, run, condemned: AtomicBool::new(false), owner: self.clone() });
        live.insert(id, Arc::downgrade(&lease));
        lease
    }

    /// Frees the space of a record whose header is durably gone, now or when its readers are.
    pub(super) fn condemn(&self, id: ExtentId, run: Run) {
        self.hold(id, run).condemned.store(true, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut live = self.owner.live.lock();
        // Someone may have put a new lease in its place already.
        if live.get(&self.id).is_some_and(|held| held.as_ptr() == std::ptr::from_ref(self)) {
            live.remove(&self.id);
        }
        drop(live);
        if self.condemned.load(Ordering::Acquire) {
            self.owner.space.lock().release(self.run);
        }
    }
}

//! Extents without an entry yet: deleted unless an entry claims them.
//!
//! They are deleted wherever they may have been written, also on devices that refused or did not
//! reply. Writes under way end first. Devices are called concurrently with a timeout; the sweep
//! finds leftovers on dead devices by their owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::timeout;

use crate::extents::{END_TIME, ExtentClient, UncommittedExtents};

/// Extents without an entry yet. Dropping it deletes them where devices are reachable; the sweep
/// finds the rest by their owner.
pub(crate) struct OrphanGuard {
    extents: Arc<ExtentClient>,
    uncommitted: Arc<UncommittedExtents>,
    /// Shared by extents that are claimed together.
    claimed: Arc<AtomicBool>,
}

impl OrphanGuard {
    pub(crate) fn new(extents: Arc<ExtentClient>) -> Self {
        Self { extents, uncommitted: Arc::new(UncommittedExtents::new()), claimed: Arc::default() }
    }

    /// Ties these extents to `others`: they are claimed together.
    pub(crate) fn claimed_with(&mut self, others: &Self) {
        self.claimed = others.claimed.clone();
    }

    /// The record of devices that may hold the extents.
    pub(crate) fn uncommitted(&self) -> Arc<UncommittedExtents> {
        self.uncommitted.clone()
    }

    /// Set before an entry that names them may be written. From then on they stay, whatever the
    /// result of the request.
    pub(crate) fn claim(&self) -> &AtomicBool {
        &self.claimed
    }

    /// Withdraws the claim: no entry names them.
    pub(crate) fn release(&self) {
        self.claimed.store(false, Ordering::Release);
    }
}

impl Drop for OrphanGuard {
    fn drop(&mut self) {
        let locations = self.uncommitted.take();
        if self.claimed.load(Ordering::Acquire) {
            return;
        }
        if self.uncommitted.is_quiet() {
            self.extents.delete_soon(locations);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (extents, uncommitted) = (self.extents.clone(), self.uncommitted.clone());
            runtime.spawn(async move {
                let _ = timeout(2 * END_TIME, uncommitted.ended()).await;
                extents.delete_extents(locations).await;
            });
        }
    }
}

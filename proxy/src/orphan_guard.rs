//! Extents without an entry yet: deleted unless an entry claims them.
//!
//! They are deleted wherever they may have been written, also on devices that refused or did not
//! reply. Writes under way end first. Devices are called concurrently with a timeout; the sweep
//! finds leftovers on dead devices by their owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::timeout;

use crate::extents::{END_TIME, ExtentClient, Placed};

/// Extents without an entry yet. Dropping it deletes them where devices are reachable; the sweep
/// finds the rest by their owner.
pub(crate) struct OrphanGuard {
    extents: Arc<ExtentClient>,
    placed: Arc<Placed>,
    /// Shared by extents that are claimed together.
    claimed: Arc<AtomicBool>,
}

impl OrphanGuard {
    pub(crate) fn new(extents: Arc<ExtentClient>) -> Self {
        Self { extents, placed: Arc::new(Placed::new()), claimed: Arc::default() }
    }

    /// Ties these extents to `others`: they are claimed together.
    pub(crate) fn claimed_with(&mut self, others: &Self) {
        self.claimed = others.claimed.clone();
    }

    /// The record of devices that may hold the extents.
    pub(crate) fn placed(&self) -> Arc<Placed> {
        self.placed.clone()
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
        let places = self.placed.take();
        if self.claimed.load(Ordering::Acquire) {
            return;
        }
        if self.placed.is_quiet() {
            self.extents.delete_soon(places);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (extents, placed) = (self.extents.clone(), self.placed.clone());
            runtime.spawn(async move {
                let _ = timeout(2 * END_TIME, placed.ended()).await;
                extents.delete_extents(places).await;
            });
        }
    }
}

//! Extents without an entry yet: deleted unless an entry claims them.
//!
//! They are deleted wherever they may have been written, also on devices that refused or did not
//! reply. Writes under way end first. Devices are called concurrently with a timeout; the sweep
//! finds leftovers on dead devices by their owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::{DeviceId, Error, ExtentId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::extents::END_TIME;
use crate::store::Inner;

/// Timeout of a device's deletion.
const DELETE_TIME: Duration = Duration::from_secs(5);

/// Devices that may hold the extents.
pub(crate) struct Placed {
    places: Mutex<Vec<(DeviceId, ExtentId)>>,
    /// Becomes true once the extents are unwanted; background copies hold receivers.
    unwanted: watch::Sender<bool>,
}

impl Placed {
    fn new() -> Self {
        Self { places: Mutex::default(), unwanted: watch::Sender::new(false) }
    }

    /// Records a device before an extent is sent to it.
    pub(crate) fn note(&self, device: DeviceId, id: ExtentId) {
        self.places.lock().push((device, id));
    }

    /// Receiver for background copies: reports that they are unwanted, and is held until they end.
    pub(crate) fn unwanted(&self) -> watch::Receiver<bool> {
        self.unwanted.subscribe()
    }

    /// Ends the background copies; returns true if none runs.
    fn is_quiet(&self) -> bool {
        self.unwanted.send_replace(true);
        self.unwanted.receiver_count() == 0
    }
}

/// Extents without an entry yet. Dropping it deletes them where devices are reachable; the sweep
/// finds the rest by their owner.
pub(crate) struct Unclaimed {
    inner: Arc<Inner>,
    placed: Arc<Placed>,
    /// Shared by extents that are claimed together.
    claimed: Arc<AtomicBool>,
}

impl Unclaimed {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, placed: Arc::new(Placed::new()), claimed: Arc::default() }
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

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let places = std::mem::take(&mut *self.placed.places.lock());
        if self.claimed.load(Ordering::Acquire) {
            return;
        }
        if self.placed.is_quiet() {
            self.inner.delete_soon(places);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (inner, placed) = (self.inner.clone(), self.placed.clone());
            runtime.spawn(async move {
                let _ = timeout(2 * END_TIME, placed.unwanted.closed()).await;
                inner.delete_extents(places).await;
            });
        }
    }
}

impl Inner {
    /// Deletes unwanted extents in the background.
    pub(crate) fn delete_soon(self: &Arc<Self>, placed: Vec<(DeviceId, ExtentId)>) {
        let (false, Ok(runtime)) = (placed.is_empty(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let inner = self.clone();
        runtime.spawn(async move { inner.delete_extents(placed).await });
    }

    /// Removes wrong bytes from a device in the background. Leaves no delete mark, so the right
    /// bytes may still be written there.
    pub(crate) fn release_soon(self: &Arc<Self>, device: DeviceId, id: ExtentId) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let inner = self.clone();
        runtime.spawn(async move {
            let released = timeout(DELETE_TIME, inner.release_on(device, id)).await;
            if let Ok(Err(error)) = released {
                tracing::debug!(%device, %error, "could not delete a wrong copy or fragment");
            }
        });
    }

    async fn release_on(&self, device: DeviceId, id: ExtentId) -> martlet_protocol::Result<()> {
        let node = self.cluster().node(device)?.clone();
        node.release_extents(device, &[id]).await
    }

    /// Deletes extents, with one call for each device.
    pub(crate) async fn delete_extents(&self, placed: Vec<(DeviceId, ExtentId)>) {
        tracing::debug!(extents = ?placed, "deleting extents without an entry");
        let mut by_device: BTreeMap<DeviceId, Vec<ExtentId>> = BTreeMap::new();
        for (device, id) in placed {
            by_device.entry(device).or_default().push(id);
        }
        let deletions = by_device.into_iter().map(|(device, ids)| async move {
            let deleted = timeout(DELETE_TIME, self.delete_on(device, &ids)).await;
            let late = |_| Err(Error::unavailable("the device does not answer"));
            if let Err(error) = deleted.unwrap_or_else(late) {
                tracing::debug!(%device, %error, "leaving unwanted extents to the sweep");
            }
        });
        join_all(deletions).await;
    }

    async fn delete_on(&self, device: DeviceId, ids: &[ExtentId]) -> martlet_protocol::Result<()> {
        let node = self.cluster().node(device)?.clone();
        node.delete_extents(device, ids).await
    }
}

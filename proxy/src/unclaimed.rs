//! Extents that no entry names yet: deleted again unless an entry claims them.
//!
//! They are deleted wherever they may have been written: on devices that refused or gave no answer,
//! and on those that are still at it, which come to their end first. Devices are told side by side,
//! each for a while only: what a dead one keeps is left to the sweep, which finds it by its owner.

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

/// How long a device may take to delete what nobody wants.
const DELETE_TIME: Duration = Duration::from_secs(5);

/// Where extents may have been written.
pub(crate) struct Placed {
    places: Mutex<Vec<(DeviceId, ExtentId)>>,
    /// Becomes true when nobody wants them; copies under way keep receivers of it.
    unwanted: watch::Sender<bool>,
}

impl Placed {
    fn new() -> Self {
        Self { places: Mutex::default(), unwanted: watch::Sender::new(false) }
    }

    /// Notes a device that is about to be asked to write an extent.
    pub(crate) fn note(&self, device: DeviceId, id: ExtentId) {
        self.places.lock().push((device, id));
    }

    /// For copies that go on by themselves: shows when they are unwanted, and is kept until they
    /// have come to their end.
    pub(crate) fn unwanted(&self) -> watch::Receiver<bool> {
        self.unwanted.subscribe()
    }

    /// Ends the copies that go on by themselves; true if there are none.
    fn is_quiet(&self) -> bool {
        self.unwanted.send_replace(true);
        self.unwanted.receiver_count() == 0
    }
}

/// Extents that no entry names yet. Dropped, it deletes them, as far as devices let it: what is
/// left, the sweep finds by its owner.
pub(crate) struct Unclaimed {
    inner: Arc<Inner>,
    placed: Arc<Placed>,
    /// Shared by extents of which an entry names all or none.
    claimed: Arc<AtomicBool>,
}

impl Unclaimed {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, placed: Arc::new(Placed::new()), claimed: Arc::default() }
    }

    /// Ties these to others: whoever claims those claims these.
    pub(crate) fn claimed_with(&mut self, others: &Self) {
        self.claimed = others.claimed.clone();
    }

    /// Where devices are noted before they are asked to write.
    pub(crate) fn placed(&self) -> Arc<Placed> {
        self.placed.clone()
    }

    /// Set as soon as an entry that names them may have been written: from then on they stay,
    /// whatever becomes of the request.
    pub(crate) fn claim(&self) -> &AtomicBool {
        &self.claimed
    }

    /// No entry names them after all.
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
    /// Deletes extents that nobody wants, in the background.
    pub(crate) fn delete_soon(self: &Arc<Self>, placed: Vec<(DeviceId, ExtentId)>) {
        let (false, Ok(runtime)) = (placed.is_empty(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let inner = self.clone();
        runtime.spawn(async move { inner.delete_extents(placed).await });
    }

    /// Lets go of what a device wrote that isn't what it was sent, in the background. Nothing is
    /// remembered there, so that the right bytes may come to it yet.
    pub(crate) fn release_soon(self: &Arc<Self>, device: DeviceId, id: ExtentId) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let inner = self.clone();
        runtime.spawn(async move {
            let released = timeout(DELETE_TIME, inner.release_on(device, id)).await;
            if let Ok(Err(error)) = released {
                tracing::debug!(%device, %error, "a wrong copy or fragment was not let go");
            }
        });
    }

    async fn release_on(&self, device: DeviceId, id: ExtentId) -> martlet_protocol::Result<()> {
        let node = self.cluster().node(device)?.clone();
        node.release_extents(device, &[id]).await
    }

    /// Deletes extents, with one call for each device.
    pub(crate) async fn delete_extents(&self, placed: Vec<(DeviceId, ExtentId)>) {
        tracing::debug!(extents = ?placed, "deleting what no entry names");
        let mut by_device: BTreeMap<DeviceId, Vec<ExtentId>> = BTreeMap::new();
        for (device, id) in placed {
            by_device.entry(device).or_default().push(id);
        }
        let deletions = by_device.into_iter().map(|(device, ids)| async move {
            let deleted = timeout(DELETE_TIME, self.delete_on(device, &ids)).await;
            let late = |_| Err(Error::unavailable("the device doesn't answer"));
            if let Err(error) = deleted.unwrap_or_else(late) {
                tracing::debug!(%device, %error, "unwanted extents are left to the sweep");
            }
        });
        join_all(deletions).await;
    }

    async fn delete_on(&self, device: DeviceId, ids: &[ExtentId]) -> martlet_protocol::Result<()> {
        let node = self.cluster().node(device)?.clone();
        node.delete_extents(device, ids).await
    }
}

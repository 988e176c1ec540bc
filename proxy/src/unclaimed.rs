//! Extents that no entry names yet: deleted again unless an entry claims them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::{DeviceId, ExtentId};

use crate::ingest::Placed;
use crate::store::Inner;

/// Extents that no entry names yet. Dropped, it deletes them, as far as devices let it: what is
/// left, the sweep finds by its owner.
pub(crate) struct Unclaimed {
    inner: Arc<Inner>,
    placed: Arc<Placed>,
    claimed: AtomicBool,
}

impl Unclaimed {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, placed: Arc::default(), claimed: AtomicBool::new(false) }
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
        let placed = std::mem::take(&mut *self.placed.lock());
        if !*self.claimed.get_mut() {
            self.inner.delete_soon(placed);
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

    /// Deletes extents, one call for each device.
    pub(crate) async fn delete_extents(&self, placed: Vec<(DeviceId, ExtentId)>) {
        let mut by_device: HashMap<DeviceId, Vec<ExtentId>> = HashMap::new();
        for (device, id) in placed {
            by_device.entry(device).or_default().push(id);
        }
        for (device, ids) in by_device {
            let deleted = match self.cluster.node(device) {
                Ok(node) => node.delete_extents(device, &ids).await,
                Err(error) => Err(error),
            };
            if let Err(error) = deleted {
                tracing::debug!(%device, %error, "unwanted extents are left to the sweep");
            }
        }
    }
}

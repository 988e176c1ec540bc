//! Cache of spilled manifests. Manifests are immutable, and each range request of an object needs
//! its manifest.
//!
//! Invariants:
//! * Cached manifests take [`BYTES_MAX`] together. The longest manifest of extents of 4 MiB fits in.
//! * Requests at a time share one load of a manifest, and [`LOADS_MAX`] manifests are loaded at a time.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use martlet_protocol::entry::Manifest;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{ExtentId, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::shared_loads::SharedLoads;

/// Maximum bytes of all cached manifests together. One of 5 TiB in extents of 8 MiB takes 35 MiB, in
/// extents of 4 MiB 66 MiB. In shorter extents it may be too long to be cached.
const BYTES_MAX: usize = 72 * 1024 * 1024;
/// Maximum number of manifests that are loaded at a time. A load takes the encoded bytes too.
const LOADS_MAX: usize = 8;

/// Manifests, keyed by the first extent that stores them.
pub(crate) struct Manifests {
    /// In order of last use.
    kept: Mutex<VecDeque<(ExtentId, Arc<Manifest>)>>,
    loading: SharedLoads<ExtentId, Arc<Manifest>>,
    /// Turns at loading a manifest.
    loads: Semaphore,
}

impl Default for Manifests {
    fn default() -> Self {
        let loads = Semaphore::new(LOADS_MAX);
        Self { kept: Mutex::default(), loading: SharedLoads::default(), loads }
    }
}

/// Bytes of a manifest in memory.
fn bytes(manifest: &Manifest) -> usize {
    let checksums = manifest.part_checksums.iter();
    manifest.extents.len() * size_of::<ExtentRef>()
        + manifest.parts.len() * size_of::<u64>()
        + checksums.map(|sum| size_of::<Vec<u8>>() + sum.len()).sum::<usize>()
}

impl Manifests {
    /// Returns a manifest from the cache, or loads it. If a load fails, another request that waits
    /// for the manifest loads it.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) async fn get_or_load(
        &self,
        id: ExtentId,
        load: impl Future<Output = Result<Manifest>>,
    ) -> Result<Arc<Manifest>> {
        if let Some(cached) = self.get(id) {
            return Ok(cached);
        }
        let load_once = async {
            let _turn = self.loads.acquire().await.expect("the semaphore is never closed");
            // A load that ended since the look-up.
            if let Some(cached) = self.get(id) {
                return Ok(cached);
            }
            let manifest = Arc::new(load.await?);
            self.put(id, manifest.clone());
            Ok(manifest)
        };
        self.loading.join(id, load_once).await
    }

    fn get(&self, id: ExtentId) -> Option<Arc<Manifest>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(other, _)| *other == id)?;
        let found = kept.remove(at)?;
        let manifest = found.1.clone();
        kept.push_front(found);
        Some(manifest)
    }

    /// Caches a manifest, and evicts the least recently used ones.
    fn put(&self, id: ExtentId, manifest: Arc<Manifest>) {
        let mut kept = self.kept.lock();
        kept.retain(|(other, _)| *other != id);
        kept.push_front((id, manifest));
        let mut total = 0;
        let fit = kept.iter().take_while(|(_, manifest)| {
            total += bytes(manifest);
            total <= BYTES_MAX
        });
        let fit = fit.count();
        kept.truncate(fit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{join_all, pending};
    use martlet_protocol::PolicyId;
    use tokio::task::yield_now;

    use super::*;

    const ID: ExtentId = ExtentId([7; 16]);

    fn manifest(extents: usize) -> Manifest {
        let extent = ExtentRef { id: ID, length: 8 << 20, blake3: [1; 32] };
        Manifest {
            policy: PolicyId(0),
            extents: vec![extent; extents],
            parts: Vec::new(),
            part_checksums: Vec::new(),
        }
    }

    #[test]
    fn the_least_recently_used_manifests_are_evicted() {
        let kept = Manifests::default();
        let id = |byte| ExtentId([byte; 16]);
        let third = BYTES_MAX / 3 / size_of::<ExtentRef>();
        for byte in 0..3 {
            kept.put(id(byte), Arc::new(manifest(third)));
        }
        assert!(kept.get(id(0)).is_some());
        kept.put(id(3), Arc::new(manifest(third)));
        assert!(kept.get(id(1)).is_none(), "it was read longest ago");
        assert!([0, 2, 3].iter().all(|byte| kept.get(id(*byte)).is_some()));
        kept.put(id(3), Arc::new(manifest(1)));
        assert_eq!(kept.get(id(3)).unwrap().extents.len(), 1);
    }

    #[test]
    fn the_longest_manifest_is_cached() {
        let kept = Manifests::default();
        // 5 TiB in extents of 4 MiB, of 10,000 parts with the longest checksums.
        let mut longest = manifest(1_310_720 + 10_000);
        longest.parts = vec![1 << 29; 10_000];
        longest.part_checksums = vec![vec![1; 64]; 10_000];
        kept.put(ID, Arc::new(longest));
        assert!(kept.get(ID).is_some());
    }

    #[tokio::test]
    async fn a_load_is_cached_and_shared() {
        let (manifests, loads) = (Manifests::default(), AtomicUsize::new(0));
        let read = |_| {
            manifests.get_or_load(ID, async {
                loads.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
                Ok(manifest(9))
            })
        };
        assert!(join_all((0..100).map(read)).await.iter().all(Result::is_ok));
        assert_eq!(loads.load(Ordering::Relaxed), 1);
        assert!(manifests.get_or_load(ID, pending()).await.is_ok(), "it is cached");
    }
}

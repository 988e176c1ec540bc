//! Cache of spilled manifests. Manifests are immutable, and each range request of an object needs
//! its manifest.

use std::collections::VecDeque;
use std::sync::Arc;

use martlet_protocol::ExtentId;
use martlet_protocol::entry::Manifest;
use parking_lot::Mutex;

/// Maximum number of extents and parts in all cached manifests together: about 5 MiB.
const NAMED_MAX: usize = 100_000;

/// Manifests, keyed by the first extent that stores them, in order of last use.
#[derive(Default)]
pub(crate) struct Manifests {
    kept: Mutex<VecDeque<(ExtentId, Arc<Manifest>)>>,
}

fn named(manifest: &Manifest) -> usize {
    manifest.extents.len() + manifest.parts.len()
}

impl Manifests {
    pub(crate) fn get(&self, id: ExtentId) -> Option<Arc<Manifest>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(other, _)| *other == id)?;
        let found = kept.remove(at)?;
        let manifest = found.1.clone();
        kept.push_front(found);
        Some(manifest)
    }

    /// Caches a manifest, and evicts the least recently used ones.
    pub(crate) fn put(&self, id: ExtentId, manifest: Arc<Manifest>) {
        if named(&manifest) > NAMED_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        kept.retain(|(other, _)| *other != id);
        kept.push_front((id, manifest));
        let mut total = 0;
        let fit = kept.iter().take_while(|(_, manifest)| {
            total += named(manifest);
            total <= NAMED_MAX
        });
        let fit = fit.count();
        kept.truncate(fit);
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::PolicyId;

    use super::*;

    fn manifest(parts: usize) -> Arc<Manifest> {
        Arc::new(Manifest {
            policy: PolicyId(0),
            extents: Vec::new(),
            parts: vec![1; parts],
            part_checksums: Vec::new(),
        })
    }

    #[test]
    fn the_least_recently_used_manifests_are_evicted() {
        let kept = Manifests::default();
        let id = |byte| ExtentId([byte; 16]);
        for byte in 0..3 {
            kept.put(id(byte), manifest(NAMED_MAX / 3));
        }
        assert!(kept.get(id(0)).is_some());
        kept.put(id(3), manifest(NAMED_MAX / 3));
        assert!(kept.get(id(1)).is_none(), "it was read longest ago");
        assert!([0, 2, 3].iter().all(|byte| kept.get(id(*byte)).is_some()));
        kept.put(id(3), manifest(1));
        assert_eq!(kept.get(id(3)).unwrap().parts.len(), 1);
        kept.put(id(4), manifest(NAMED_MAX + 1));
        assert!(kept.get(id(4)).is_none() && kept.get(id(3)).is_some(), "too long to keep");
    }
}

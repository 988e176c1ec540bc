//! Contents of spilled manifests. Extents never change, so a manifest is read once, and its list of
//! extents is kept while there is room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use martlet_protocol::backend::SpilledManifest;
use martlet_protocol::entry::Body;
use martlet_protocol::{ExtentId, Result};
use parking_lot::Mutex;

use crate::cluster::StepTopology;
use crate::manifest::BodyExtents;

/// Extents of all kept manifests together: 64 MiB of ids, some fifty objects of 5 TiB.
const EXTENTS_MAX: usize = 4 * 1024 * 1024;

/// Kept manifests, by the extents that hold them.
#[derive(Default)]
pub(super) struct Manifests(Mutex<KeptManifests>);

#[derive(Default)]
struct KeptManifests {
    by_pieces: HashMap<Vec<ExtentId>, Arc<[ExtentId]>>,
    /// Order of arrival; the oldest goes first.
    order: VecDeque<Vec<ExtentId>>,
    extents: usize,
}

impl Manifests {
    /// Returns the sorted extents that a manifest names.
    ///
    /// # Errors
    /// If the manifest can't be read: its extents are unknown.
    pub(super) async fn extents(
        &self,
        cluster: &StepTopology,
        pieces: &[ExtentId],
        spilled: &SpilledManifest,
    ) -> Result<Arc<[ExtentId]>> {
        if let Some(kept) = self.0.lock().by_pieces.get(pieces) {
            return Ok(kept.clone());
        }
        let SpilledManifest { policy, pieces: manifest } = spilled.clone();
        let body = BodyExtents::of(cluster, &Body::Spilled { policy, manifest }).await?;
        let mut extents: Vec<ExtentId> = body.data.extents.iter().map(|it| it.id).collect();
        extents.sort_unstable();
        let extents: Arc<[ExtentId]> = extents.into();
        self.0.lock().keep(pieces, extents.clone());
        Ok(extents)
    }
}

impl KeptManifests {
    fn keep(&mut self, pieces: &[ExtentId], extents: Arc<[ExtentId]>) {
        if extents.len() > EXTENTS_MAX || self.by_pieces.contains_key(pieces) {
            return;
        }
        self.extents += extents.len();
        self.by_pieces.insert(pieces.to_vec(), extents);
        self.order.push_back(pieces.to_vec());
        while self.extents > EXTENTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let gone = self.by_pieces.remove(&oldest).map_or(0, |gone| gone.len());
            self.extents -= gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_the_sum_stays_within_its_bound() {
        let mut kept = KeptManifests::default();
        let third = EXTENTS_MAX / 3 + 1;
        for at in 0..5u8 {
            kept.keep(&[ExtentId([at; 16])], vec![ExtentId([9; 16]); third].into());
            assert!(kept.extents <= EXTENTS_MAX);
        }
        let there: Vec<bool> =
            (0..5).map(|at| kept.by_pieces.contains_key(&[ExtentId([at; 16])][..])).collect();
        assert_eq!(there, [false, false, false, true, true]);
        assert_eq!((kept.order.len(), kept.extents), (2, 2 * third));
        kept.keep(&[ExtentId([7; 16])], vec![ExtentId([9; 16]); EXTENTS_MAX + 1].into());
        assert_eq!(kept.order.len(), 2, "a longer one is not kept");
    }
}

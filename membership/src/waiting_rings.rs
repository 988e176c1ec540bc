//! Rings of the index that wait until the ring changes before them are over (rule P3).
//!
//! ```text
//! <data-dir>/index-<epoch>.waiting
//! ```
//!
//! Each is in the folder, whole and synced, before its waiting is reported. They are no `.ring`
//! files. So at the next start the current ring is in use until the change before is known to be
//! over. Waiting rings come into use one after the other, because no other node may have the ones
//! in between.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_ring::Ring;
use martlet_serving::folder::DataFolder;
use parking_lot::Mutex;

const EXTENSION: &str = "waiting";
/// Maximum number of waiting rings.
pub(super) const WAITING_MAX: usize = 16;

fn file(ring: &Ring) -> String {
    format!("index-{}.{EXTENSION}", ring.epoch())
}

/// Waiting rings, in the order of their epochs.
#[derive(Debug, Default)]
pub(super) struct WaitingRings(Mutex<Vec<Arc<Ring>>>);

impl WaitingRings {
    /// Loads the waiting rings of a data folder. A damaged ring is skipped, as its operator can
    /// push it again.
    pub(super) fn load(folder: &DataFolder) -> Self {
        let paths = paths(&folder.join("")).unwrap_or_else(|error| {
            tracing::error!(%error, "could not load waiting rings");
            Vec::new()
        });
        let read = |path: &PathBuf| {
            let bytes = fs::read(path).map_err(|error| error.to_string());
            let ring = bytes.and_then(|it| Ring::decode(&it).map_err(|error| error.to_string()));
            ring.map_err(|error| {
                tracing::error!(path = %path.display(), error, "ignored a waiting ring");
            })
            .ok()
        };
        let mut rings: Vec<Arc<Ring>> = paths.iter().filter_map(read).map(Arc::new).collect();
        rings.sort_by_key(|ring| ring.epoch());
        rings.dedup_by_key(|ring| ring.epoch());
        Self(Mutex::new(rings))
    }

    /// Returns the ring with the lowest epoch.
    pub(super) fn first(&self) -> Option<Arc<Ring>> {
        self.0.lock().first().cloned()
    }

    /// Returns all rings, by epoch.
    pub(super) fn all(&self) -> Vec<Arc<Ring>> {
        self.0.lock().clone()
    }

    /// Adds a ring, synced. At [`WAITING_MAX`] rings it is refused.
    pub(super) fn put(&self, folder: &DataFolder, ring: &Arc<Ring>) -> Result<(), String> {
        if self.0.lock().len() >= WAITING_MAX {
            return Err(format!(
                "{WAITING_MAX} rings already wait for earlier changes: check martlet admin status, \
                 and push this ring again when one of them is in use"
            ));
        }
        folder.replace(&file(ring), &ring.encode()).map_err(|failure| failure.to_string())?;
        let mut rings = self.0.lock();
        let at = rings.partition_point(|other| other.epoch() < ring.epoch());
        rings.insert(at, ring.clone());
        Ok(())
    }

    /// Removes the rings up to this epoch.
    pub(super) fn clear(&self, folder: &DataFolder, epoch: u64) {
        self.0.lock().retain(|ring| ring.epoch() > epoch);
        let over = |path: &Path| {
            let ring = fs::read(path).ok().and_then(|bytes| Ring::decode(&bytes).ok());
            ring.is_none_or(|ring| ring.epoch() <= epoch)
        };
        let paths = paths(&folder.join("")).unwrap_or_default();
        for path in paths.iter().filter(|path| over(path)) {
            match fs::remove_file(path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // The ring is checked again at the next start, and found to be in use.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "could not remove a ring that \
                        waited");
                }
            }
        }
    }
}

/// Returns the paths of waiting rings. Earlier versions used the single file `index.waiting`.
fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<PathBuf> = paths.collect::<io::Result<_>>()?;
    let waits = |path: &PathBuf| path.extension().is_some_and(|it| it == EXTENSION);
    Ok(paths.into_iter().filter(waits).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{builder, device, next, ring};

    fn epochs(waiting: &WaitingRings) -> Vec<u64> {
        waiting.all().iter().map(|ring| ring.epoch()).collect()
    }

    #[test]
    fn waiting_rings_are_kept_until_cleared() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        assert!(WaitingRings::load(&folder).first().is_none());
        let mut builder = builder(0, 3);
        let first = next(&mut builder);
        builder.add(device(4, "d1")).unwrap();
        let second = next(&mut builder);
        let waiting = WaitingRings::load(&folder);
        waiting.put(&folder, &second).unwrap();
        waiting.put(&folder, &first).unwrap();
        assert_eq!(
            (epochs(&waiting), epochs(&WaitingRings::load(&folder))),
            (vec![1, 2], vec![1, 2])
        );
        fs::write(folder.join("index-2.waiting"), b"no ring").unwrap();
        assert_eq!(epochs(&WaitingRings::load(&folder)), [1]);
        for _ in 0..2 {
            waiting.clear(&folder, 1);
        }
        assert_eq!(epochs(&waiting), [2]);
        assert!(WaitingRings::load(&folder).first().is_none(), "what is damaged is gone too");
    }

    #[test]
    fn a_ring_that_waited_before_rings_waited_in_a_row_is_found() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        let ring = ring(0, 3);
        folder.replace("index.waiting", &ring.encode()).unwrap();
        let waiting = WaitingRings::load(&folder);
        assert_eq!(waiting.first().unwrap().hash(), ring.hash());
        waiting.clear(&folder, ring.epoch());
        assert!(WaitingRings::load(&folder).first().is_none());
    }
}

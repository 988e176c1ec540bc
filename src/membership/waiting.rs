//! A ring of the index that waits for the ring change before it to be over (rule P3).
//!
//! ```text
//! <data-dir>/index.waiting
//! ```
//!
//! It is in the folder, whole and synced, before anybody is told that it waits. It is no `.ring` file:
//! at the next start the old ring is in use again until the change before is known to be over.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;

use martlet_ring::Ring;
use parking_lot::Mutex;

use crate::process::folder::DataFolder;

const FILE: &str = "index.waiting";

/// The ring that waits, if one does.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Option<Arc<Ring>>>);

impl Waiting {
    /// The one of a data folder. One that is damaged is left out: whoever pushed it has it.
    pub(super) fn load(folder: &DataFolder) -> Self {
        let path = folder.join(FILE);
        let ring = match fs::read(&path) {
            Ok(bytes) => Ring::decode(&bytes).map_err(|error| error.to_string()).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        let ring = ring.unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), error, "the ring that waits is left out");
            None
        });
        Self(Mutex::new(ring.map(Arc::new)))
    }

    /// The ring that waits.
    pub(super) fn get(&self) -> Option<Arc<Ring>> {
        self.0.lock().clone()
    }

    /// Lets a ring wait, in the place of one that may have waited before.
    pub(super) fn put(&self, folder: &DataFolder, ring: &Arc<Ring>) -> Result<(), String> {
        folder.replace(FILE, &ring.encode()).map_err(|failure| failure.to_string())?;
        *self.0.lock() = Some(ring.clone());
        Ok(())
    }

    /// Nothing waits any more.
    pub(super) fn clear(&self, folder: &DataFolder) {
        *self.0.lock() = None;
        let path = folder.join(FILE);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // It is judged again at the next start, and found to be in use.
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a ring that waited stays behind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::rings::testing::ring;

    #[test]
    fn what_waits_is_remembered_until_it_is_cleared() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        let hash = |folder: &DataFolder| Waiting::load(folder).get().map(|ring| ring.hash());
        assert_eq!(hash(&folder), None);
        let ring = ring(0, 3);
        let waiting = Waiting::load(&folder);
        waiting.put(&folder, &ring).unwrap();
        assert_eq!(hash(&folder), Some(ring.hash()));
        fs::write(place.path().join(FILE), b"no ring").unwrap();
        assert_eq!(hash(&folder), None);
        waiting.clear(&folder);
        waiting.clear(&folder);
        assert!(waiting.get().is_none() && !place.path().join(FILE).exists());
    }
}

//! Keeps the rings of a process, in memory and in its data folder, and lets newer ones in.
//!
//! ```text
//! <data-dir>/index.ring, data-0.ring, …
//! ```
//!
//! * A ring gives way only to one that [`Ring::check_successor`] allows: of the same builder, and of
//!   a later epoch. Nobody can talk a process into an older one.
//! * Bytes that are no whole ring are refused, and what is there stays; likewise another ring of the
//!   same epoch (rule P3), which is an error in the log: two builders are in use.
//! * A ring is in the folder, whole and synced, before anybody is told that it was taken.
//! * Which moves are done is known to the builder alone: rings have no phases yet. So a later ring is
//!   trusted in what it settles.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::http::{Announcement, RingTag, RingTags};
use martlet_ring::Ring;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::rings::{RingName, Rings, tag};
use crate::failure::Failure;
use crate::process::folder::DataFolder;

/// What became of a ring that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It is in place.
    Taken,
    /// It was there already.
    Known,
}

/// The rings of a process.
pub(crate) struct RingKeeper {
    folder: Arc<DataFolder>,
    now: RwLock<Arc<Now>>,
    /// Held while a ring is judged, written and put in place.
    changing: Mutex<()>,
    changed: watch::Sender<u64>,
}

struct Now {
    rings: Arc<Rings>,
    announcement: Announcement,
}

impl Now {
    fn of(rings: Rings) -> Arc<Self> {
        Arc::new(Self { announcement: rings.announcement(), rings: Arc::new(rings) })
    }
}

impl RingKeeper {
    /// The rings of a data folder, and those of `files` where they are newer or not there yet.
    pub(crate) fn open(folder: Arc<DataFolder>, files: &[PathBuf]) -> Result<Self, Failure> {
        let kept = read_folder(&folder)?;
        let rings = Rings::new(kept).map_err(|error| {
            Failure::refused(format!(
                "the rings in {} don't go together: {error}",
                folder.join("").display()
            ))
        })?;
        let (changed, _) = watch::channel(0);
        let now = RwLock::new(Now::of(rings));
        let keeper = Self { folder, now, changing: Mutex::new(()), changed };
        for file in files {
            keeper.take_file(file)?;
        }
        Ok(keeper)
    }

    fn take_file(&self, path: &Path) -> Result<(), Failure> {
        let (name, ring) = read_file(path)?;
        if let Some(kept) = self.rings().get(name)
            && kept.identity().lineage == ring.identity().lineage
            && kept.epoch() > ring.epoch()
        {
            let (kept, epoch) = (kept.epoch(), ring.epoch());
            tracing::info!(%name, epoch, kept, "the ring file is older than the ring that is kept");
            return Ok(());
        }
        let mend = "; name the ring that the cluster uses, or remove the one that is kept if it is not \
                    of this cluster";
        self.take(name, &ring).map(|_| ()).map_err(|error| {
            Failure::refused(format!("{} can't be used: {error}{mend}", path.display()))
        })
    }

    /// The rings as they are now.
    pub(crate) fn rings(&self) -> Arc<Rings> {
        self.now.read().rings.clone()
    }

    /// What replies say of them.
    pub(crate) fn announcement(&self) -> Announcement {
        self.now.read().announcement.clone()
    }

    /// Tells of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Takes the bytes of a ring, if it may take the place of the one that is there.
    pub(crate) fn offer(&self, name: RingName, bytes: &[u8]) -> Result<Offer, String> {
        let ring = Ring::decode(bytes).map_err(|error| {
            tracing::error!(%name, %error, "a ring that came is damaged, and was refused");
            format!("it is no whole ring: {error}")
        })?;
        self.take(name, &Arc::new(ring))
    }

    fn take(&self, name: RingName, ring: &Arc<Ring>) -> Result<Offer, String> {
        let _changing = self.changing.lock();
        let rings = self.rings();
        if let Some(kept) = rings.get(name) {
            if kept.hash() == ring.hash() {
                return Ok(Offer::Known);
            }
            if let Err(error) = kept.check_successor(ring, |_| true) {
                if kept.epoch() == ring.epoch() {
                    tracing::error!(%name, %error, "another ring of the same epoch was refused");
                }
                return Err(error.to_string());
            }
        }
        let next = rings.with(name, ring.clone())?;
        let file = format!("{name}.ring");
        self.folder.replace(&file, &ring.encode()).map_err(|failure| failure.to_string())?;
        *self.now.write() = Now::of(next);
        self.changed.send_modify(|changes| *changes += 1);
        tracing::info!(%name, epoch = ring.epoch(), "a ring is in place");
        Ok(Offer::Taken)
    }

    /// Which rings somebody who has these is ahead with.
    pub(crate) fn behind(&self, theirs: &RingTags) -> Vec<RingName> {
        let rings = self.rings();
        theirs.iter().filter_map(|tag| wanted(&rings, &tag)).collect()
    }
}

/// Whether a ring that somebody has is worth asking for.
fn wanted(rings: &Rings, theirs: &RingTag) -> Option<RingName> {
    let name: RingName = theirs.name.parse().ok()?;
    let Some(ring) = rings.get(name) else { return Some(name) };
    if theirs.epoch == ring.epoch() && *theirs != tag(name, ring) {
        let epoch = theirs.epoch;
        tracing::error!(%name, epoch, "a node has another ring of the same epoch: two builders are in use");
    }
    (theirs.epoch > ring.epoch()).then_some(name)
}

fn read_folder(folder: &DataFolder) -> Result<BTreeMap<RingName, Arc<Ring>>, Failure> {
    let place = folder.join("");
    let unreadable = |error: std::io::Error| {
        Failure::refused(format!("{} can't be read: {error}", place.display()))
    };
    let mut rings = BTreeMap::new();
    for entry in fs::read_dir(&place).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "ring") {
            let (name, ring) = read_file(&path)?;
            rings.insert(name, ring);
        }
    }
    Ok(rings)
}

/// The name of a ring file and the ring in it.
pub(crate) fn read_file(path: &Path) -> Result<(RingName, Arc<Ring>), Failure> {
    let shown = path.display();
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = stem.parse().map_err(|error| {
        Failure::refused(format!(
            "{shown} is named after no ring: {error}; rename it to index.ring or data-0.ring"
        ))
    })?;
    let ring = Ring::load(path).map_err(|error| {
        Failure::refused(format!(
            "the ring can't be used: {error}; copy it again from where martlet ring wrote it, or from \
             the data folder of another node"
        ))
    })?;
    Ok((name, Arc::new(ring)))
}

#[cfg(test)]
mod tests {
    use super::super::rings::testing::*;
    use super::*;

    const DATA: RingName = RingName::Data(martlet_protocol::PolicyId(0));

    fn keeper(place: &tempfile::TempDir) -> RingKeeper {
        RingKeeper::open(Arc::new(DataFolder::open(place.path()).unwrap()), &[]).unwrap()
    }

    #[test]
    fn p3_newer_rings_are_taken_and_kept_and_older_ones_never() {
        let place = tempfile::tempdir().unwrap();
        let mut builder = builder(0, 3);
        let first = next(&mut builder);
        builder.add(device(4, "d1")).unwrap();
        let second = next(&mut builder);
        let keeper = keeper(&place);
        let mut changes = keeper.changes();
        for name in [RingName::Index, DATA] {
            assert_eq!(keeper.offer(name, &first.encode()), Ok(Offer::Taken));
        }
        assert_eq!(keeper.offer(RingName::Index, &second.encode()), Ok(Offer::Taken));
        assert_eq!(keeper.offer(RingName::Index, &second.encode()), Ok(Offer::Known));
        assert!(keeper.offer(RingName::Index, &first.encode()).unwrap_err().contains("older"));
        assert!(changes.has_changed().unwrap() && *changes.borrow_and_update() == 3);
        drop(keeper);
        let rings = self::keeper(&place).rings();
        assert_eq!(rings.index().unwrap().hash(), second.hash());
        assert_eq!(rings.get(DATA).unwrap().hash(), first.hash());
    }

    #[test]
    fn p3_damaged_and_contradicting_rings_are_refused_and_the_old_one_stays() {
        let place = tempfile::tempdir().unwrap();
        let keeper = keeper(&place);
        let mine = ring(0, 3);
        keeper.offer(RingName::Index, &mine.encode()).unwrap();
        let contradicting = ring(0, 4);
        assert_eq!(contradicting.epoch(), mine.epoch());
        let refusal = keeper.offer(RingName::Index, &contradicting.encode()).unwrap_err();
        assert!(refusal.contains("two rings of epoch"), "{refusal}");
        let mut bytes = mine.encode();
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            bytes[at] ^= 1;
            assert!(keeper.offer(RingName::Index, &bytes).is_err());
            bytes[at] ^= 1;
        }
        assert!(keeper.offer(RingName::Index, &bytes[..bytes.len() - 1]).is_err());
        assert_eq!(keeper.rings().index().unwrap().hash(), mine.hash());
        assert_eq!(Ring::load(&place.path().join("index.ring")).unwrap().hash(), mine.hash());
    }

    #[test]
    fn it_knows_who_is_ahead() {
        let place = tempfile::tempdir().unwrap();
        let keeper = keeper(&place);
        let mut builder = builder(0, 3);
        let first = next(&mut builder);
        builder.add(device(4, "d1")).unwrap();
        let second = next(&mut builder);
        keeper.offer(RingName::Index, &first.encode()).unwrap();
        let has = |ring: &Ring| Announcement::new(&[tag(RingName::Index, ring)]).rings().clone();
        assert_eq!(keeper.behind(&has(&first)), []);
        assert_eq!(keeper.behind(&has(&second)), [RingName::Index]);
        keeper.offer(RingName::Index, &second.encode()).unwrap();
        assert_eq!(keeper.behind(&has(&first)), []);
        let unknown = Announcement::new(&[tag(DATA, &first)]);
        assert_eq!(keeper.behind(unknown.rings()), [DATA]);
    }

    #[test]
    fn files_are_taken_where_they_are_newer() {
        let place = tempfile::tempdir().unwrap();
        let files = tempfile::tempdir().unwrap();
        let mut builder = builder(0, 3);
        let first = next(&mut builder);
        builder.add(device(4, "d1")).unwrap();
        let second = next(&mut builder);
        let path = files.path().join("index.ring");
        let open = || {
            RingKeeper::open(
                Arc::new(DataFolder::open(place.path()).unwrap()),
                std::slice::from_ref(&path),
            )
        };
        let epoch = |keeper: RingKeeper| keeper.rings().index().unwrap().epoch();
        second.save(&path).unwrap();
        assert_eq!(epoch(open().unwrap()), second.epoch());
        first.save(&path).unwrap();
        assert_eq!(epoch(open().unwrap()), second.epoch());
        fs::write(&path, b"no ring").unwrap();
        let refusal = open().err().unwrap().to_string();
        assert!(refusal.contains("copy it again"), "{refusal}");
        let misnamed = files.path().join("mine.ring");
        first.save(&misnamed).unwrap();
        assert!(read_file(&misnamed).err().unwrap().to_string().contains("index.ring"));
    }
}

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
//! * A ring of the index comes into use when the ring change before it is over, by the highest term
//!   that was heard of; until then it [waits](super::waiting), and the one before stays (rule P3).
//! * Data rings have no phases: a later one is trusted in what it settles, and who reads asks previous
//!   holders too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::http::{Announcement, RingTag, RingTags};
use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::{Phase, Term};
use martlet_ring::Ring;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::rings::{RingName, Rings, tag};
use super::waiting::Waiting;
use crate::failure::Failure;
use crate::process::folder::DataFolder;

/// What became of a ring that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It is in place.
    Taken,
    /// It was there already.
    Known,
    /// It is kept until the ring change before it is over.
    Waits,
}

/// The rings of a process.
pub(crate) struct RingKeeper {
    folder: Arc<DataFolder>,
    now: RwLock<Arc<Now>>,
    waiting: Waiting,
    /// The highest term that was heard of.
    known: AtomicU64,
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
        let waiting = Waiting::load(&folder);
        let known = AtomicU64::new(Term::NONE.0);
        let keeper = Self { folder, now, waiting, known, changing: Mutex::new(()), changed };
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
        self.take(name, &ring, true).map(|_| ()).map_err(|error| {
            Failure::refused(format!("{} can't be used: {error}{mend}", path.display()))
        })
    }

    /// The rings as they are now.
    pub(crate) fn rings(&self) -> Arc<Rings> {
        self.now.read().rings.clone()
    }

    /// What replies say of them, and the highest term that was heard of.
    pub(crate) fn announcement(&self) -> Announcement {
        self.now.read().announcement.clone().at(self.term())
    }

    /// The highest term that was heard of.
    pub(crate) fn term(&self) -> Term {
        Term(self.known.load(Ordering::SeqCst))
    }

    /// The ring of the index that waits for the ring change before it; others may wait for it.
    pub(crate) fn waiting(&self) -> Option<Arc<Ring>> {
        self.waiting.first()
    }

    /// Hears of a term: of a higher one than before, everybody is told who asked for changes.
    pub(crate) fn hear_term(&self, term: Term) {
        let is_far = term.0.saturating_sub(self.term().0) > RING_AHEAD_MAX;
        if is_far && term != Term::ANY {
            tracing::error!(%term, "a term so far above what is known is not believed");
        }
        if is_far || self.known.fetch_max(term.0, Ordering::SeqCst) >= term.0 {
            return;
        }
        self.changed.send_modify(|changes| *changes += 1);
        tracing::info!(%term, "a ring change goes on");
    }

    /// Puts the rings that wait in place, one after the other, if what they wait for is over. Blocks.
    pub(crate) fn reconsider(&self) {
        let _changing = self.changing.lock();
        let known = self.term();
        // Each goes, or is the last that is looked at.
        while let Some(ring) = self.waiting.first().filter(|ring| ring.term_at(known).is_some()) {
            self.put_in_place(&ring, known);
        }
    }

    fn put_in_place(&self, ring: &Arc<Ring>, known: Term) {
        let rings = self.rings();
        let may = rings.index().map_or(Ok(()), |kept| kept.check_index_successor(ring, known));
        let placed =
            may.map_err(|error| error.to_string()).and_then(|()| self.place(RingName::Index, ring));
        if let Err(error) = placed {
            tracing::error!(epoch = ring.epoch(), error, "a ring that waited can't be used");
        }
        self.waiting.clear(&self.folder, ring.epoch());
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
        self.take(name, &Arc::new(ring), false)
    }

    /// At the start no term is known yet: then a newer ring of the index waits until it was asked for.
    fn take(&self, name: RingName, ring: &Arc<Ring>, at_start: bool) -> Result<Offer, String> {
        let _changing = self.changing.lock();
        let rings = self.rings();
        let waiting = if name == RingName::Index { self.waiting.all() } else { Vec::new() };
        let kept = rings.get(name);
        if kept.is_none() && ring.epoch().max(ring.change()) > RING_AHEAD_MAX {
            return Err(format!("no ring could follow one of epoch {}", ring.epoch()));
        }
        let is_it = |other: &Arc<Ring>| other.hash() == ring.hash();
        if kept.is_some_and(is_it) {
            return Ok(Offer::Known);
        }
        if waiting.iter().any(is_it) {
            return Ok(Offer::Waits);
        }
        let known = self.term();
        let is_early = at_start || ring.term_at(known).is_none();
        let waits = name == RingName::Index && kept.is_some() && is_early;
        // What waits is judged as if what it waits for were over, and again when it is.
        let judged_at = |next: &Ring, waits| if waits { over(next) } else { known };
        // It may have its place between rings that wait: whoever pushed them skipped it here.
        let (later, earlier): (Vec<_>, Vec<_>) =
            waiting.iter().partition(|other| other.epoch() > ring.epoch());
        for other in kept.into_iter().chain(earlier) {
            check(name, other, ring, judged_at(ring, waits))?;
        }
        for other in later {
            check(name, ring, other, judged_at(other, true))?;
        }
        if waits {
            rings.with(name, ring.clone())?;
            self.waiting.put(&self.folder, ring)?;
            tracing::info!(%name, epoch = ring.epoch(), "a ring waits for the change before it");
            return Ok(Offer::Waits);
        }
        self.place(name, ring)?;
        if !waiting.is_empty() {
            self.waiting.clear(&self.folder, ring.epoch());
        }
        Ok(Offer::Taken)
    }

    /// Writes a ring down and puts it in place.
    fn place(&self, name: RingName, ring: &Arc<Ring>) -> Result<(), String> {
        let next = self.rings().with(name, ring.clone())?;
        let file = format!("{name}.ring");
        self.folder.replace(&file, &ring.encode()).map_err(|failure| failure.to_string())?;
        *self.now.write() = Now::of(next);
        self.changed.send_modify(|changes| *changes += 1);
        tracing::info!(%name, epoch = ring.epoch(), "a ring is in place");
        Ok(())
    }

    /// Which rings somebody who has these is ahead with.
    pub(crate) fn behind(&self, theirs: &RingTags) -> Vec<RingName> {
        let (rings, waiting) = (self.rings(), self.waiting.all());
        let is_here = |tag: &RingTag| {
            let waits = waiting.iter().any(|ring| ring.epoch() == tag.epoch);
            waits && tag.name == RingName::Index.to_string()
        };
        theirs.iter().filter(|tag| !is_here(tag)).filter_map(|tag| wanted(&rings, &tag)).collect()
    }
}

/// The last term of a ring's change.
fn over(ring: &Ring) -> Term {
    Term::of(ring.change(), Phase::New)
}

/// Returns true when one ring may follow another, when `known` is the highest term that was heard of.
fn check(name: RingName, kept: &Ring, next: &Ring, known: Term) -> Result<(), String> {
    let may = match name {
        RingName::Index => kept.check_index_successor(next, known),
        RingName::Data(_) => kept.check_successor(next, |_| true),
    };
    may.map_err(|error| {
        if kept.epoch() == next.epoch() {
            tracing::error!(%name, %error, "another ring of the same epoch was refused");
        }
        error.to_string()
    })
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
mod tests;

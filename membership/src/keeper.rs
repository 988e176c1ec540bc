//! Rings of a process, in memory and in its data folder, and their replacement by newer ones.
//!
//! ```text
//! <data-dir>/index.ring, data-0.ring, …
//! ```
//!
//! * A ring is replaced only if [`Ring::check_successor`] allows it: by a ring of the same builder
//!   and a later epoch. So no caller can bring back an older ring.
//! * Damaged ring files are refused, and the current ring stays. Another ring of the current epoch
//!   is refused too (rule P3), and logged as an error: two builders are in use.
//! * A ring is in the folder, whole and synced, before its acceptance is reported.
//! * A ring of the index comes into use when the ring change before it is over, by the highest
//!   known term. Until then it [waits](super::waiting_rings), and the current ring stays (rule P3).
//! * Rings that wait for a change that no ring here begins, and so may wait for ever, give way to a
//!   ring of the current change, which moves nothing more. They don't once a later change is known to
//!   have begun: a process runs it, and they come into use when it is over.
//! * Data rings have no phases: a later ring is trusted about the moves that it settles, and
//!   readers also try previous holders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_protocol::Term;
use martlet_protocol::backend::{RingEpoch, RingEpochs};
use martlet_protocol::http::{Announcement, RingTag, RingTags};
use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_ring::Ring;
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use martlet_topology::KnownTerm;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::rings::{RingName, RingSet, ring_tag};
use super::waiting_rings::WaitingRings;

/// Outcome of an offered ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferOutcome {
    /// The ring is in use.
    Taken,
    /// The ring was in use already.
    Known,
    /// The ring waits until the ring change before it is over.
    Waits,
}

/// Rings of a process.
pub struct RingKeeper {
    folder: Arc<DataFolder>,
    now: RwLock<Arc<CurrentRings>>,
    waiting: WaitingRings,
    /// Highest known term of the process.
    known: KnownTerm,
    /// Held while a ring is checked, written and put into use.
    changing: Mutex<()>,
    changed: watch::Sender<u64>,
    /// Epochs of the data rings, for conditions of releases (rule X9).
    data_epochs: Arc<RingEpochs>,
}

struct CurrentRings {
    rings: Arc<RingSet>,
    announcement: Announcement,
}

impl CurrentRings {
    fn of(rings: RingSet) -> Arc<Self> {
        Arc::new(Self { announcement: rings.announcement(), rings: Arc::new(rings) })
    }
}

impl RingKeeper {
    /// Opens the rings of a data folder. A ring in `files` is added if it is newer than the stored
    /// ring of its name, or the first.
    pub(crate) fn open(folder: Arc<DataFolder>, files: &[PathBuf]) -> Result<Self, Failure> {
        let kept = read_folder(&folder)?;
        let rings = RingSet::new(kept).map_err(|error| {
            Failure::refused(format!(
                "the rings in {} don't belong together: {error}",
                folder.join("").display()
            ))
        })?;
        let (changed, _) = watch::channel(0);
        let now = RwLock::new(CurrentRings::of(rings));
        let waiting = WaitingRings::load(&folder);
        let (known, changing) = (KnownTerm::default(), Mutex::new(()));
        let data_epochs = Arc::new(RingEpochs::default());
        let keeper = Self { folder, now, waiting, known, changing, changed, data_epochs };
        keeper.raise_data_epochs();
        for file in files {
            keeper.take_file(file)?;
        }
        Ok(keeper)
    }

    fn take_file(&self, path: &Path) -> Result<(), Failure> {
        let (name, ring) = read_ring_file(path)?;
        if let Some(kept) = self.rings().get(name)
            && kept.identity().lineage == ring.identity().lineage
            && kept.epoch() > ring.epoch()
        {
            let (kept, epoch) = (kept.epoch(), ring.epoch());
            tracing::info!(%name, epoch, kept, "ignored a ring file older than the stored ring");
            return Ok(());
        }
        let mend = "; name the ring that the cluster uses, or remove the stored ring if it belongs \
                    to another cluster";
        self.take(name, &ring, true).map(|_| ()).map_err(|error| {
            Failure::refused(format!("{} can't be used: {error}{mend}", path.display()))
        })
    }

    /// Returns the current rings.
    pub fn rings(&self) -> Arc<RingSet> {
        self.now.read().rings.clone()
    }

    /// Returns the announcement for replies: the rings, and the highest known term.
    pub fn announcement(&self) -> Announcement {
        self.now.read().announcement.clone().at(self.term())
    }

    /// Returns the highest known term.
    pub fn term(&self) -> Term {
        self.known.get()
    }

    /// Returns the highest known term, which object layer and workers share and raise too.
    pub fn known_term(&self) -> KnownTerm {
        self.known.clone()
    }

    /// Returns the epochs of the data rings, as they rise.
    pub fn data_epochs(&self) -> Arc<RingEpochs> {
        self.data_epochs.clone()
    }

    fn raise_data_epochs(&self) {
        for (policy, ring) in self.rings().data() {
            self.data_epochs.raise(RingEpoch::of(policy, ring.epoch(), &ring.hash()));
        }
    }

    /// Returns the first ring of the index that waits for the ring change before it. Later rings
    /// may wait behind it.
    pub(crate) fn waiting(&self) -> Option<Arc<Ring>> {
        self.waiting.first()
    }

    /// Returns true if a ring change has begun that the index ring in use doesn't contain.
    pub(crate) fn is_overtaken(&self) -> bool {
        let known = self.term();
        self.rings().index().is_some_and(|ring| ring.is_overtaken(known))
    }

    /// Records a term, and notifies watchers if it is higher than the known term. Waiting rings
    /// don't rely on this notice: a refusal or a status may have raised the term before.
    pub fn receive_term(&self, term: Term) {
        if self.known.raise(term) {
            self.changed.send_modify(|changes| *changes += 1);
            tracing::info!(%term, "a ring change advanced");
        }
    }

    /// Puts waiting rings into use, one after the other, while the changes that they wait for are
    /// over. Blocks on the disk.
    pub(crate) fn reconsider(&self) {
        let _changing = self.changing.lock();
        let known = self.term();
        // `put_in_place` removes each ring, so the loop ends.
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
            tracing::error!(epoch = ring.epoch(), error, "could not use a waiting ring");
        }
        self.waiting.clear(&self.folder, ring.epoch());
    }

    /// Returns a channel that reports every change of rings or term.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Decodes a ring, and accepts it if it may replace the current one. Blocks on the disk.
    pub(crate) fn offer(&self, name: RingName, bytes: &[u8]) -> Result<OfferOutcome, String> {
        let ring = Ring::decode(bytes).map_err(|error| {
            tracing::error!(%name, %error, "refused a damaged ring");
            format!("the ring is damaged: {error}")
        })?;
        self.take(name, &Arc::new(ring), false)
    }

    /// Accepts a ring. At the start no term is known, so a newer ring of the index waits until the
    /// nodes have announced their terms.
    fn take(
        &self,
        name: RingName,
        ring: &Arc<Ring>,
        at_start: bool,
    ) -> Result<OfferOutcome, String> {
        let _changing = self.changing.lock();
        let rings = self.rings();
        let waiting = if name == RingName::Index { self.waiting.all() } else { Vec::new() };
        let kept = rings.get(name);
        if kept.is_none() && ring.epoch().max(ring.change()) > RING_AHEAD_MAX {
            return Err(format!("epoch {} is too high: no ring could follow", ring.epoch()));
        }
        let is_it = |other: &Arc<Ring>| other.hash() == ring.hash();
        if kept.is_some_and(is_it) {
            return Ok(OfferOutcome::Known);
        }
        if waiting.iter().any(is_it) {
            return Ok(OfferOutcome::Waits);
        }
        let known = self.term();
        let is_early = at_start || ring.term_at(known).is_none();
        let waits = name == RingName::Index && kept.is_some() && is_early;
        // A waiting ring is checked as if the change before it were over, and again once it is.
        let judged_at = |next: &Ring, waits| if waits { next.last_term() } else { known };
        if let Some(kept) = kept {
            check(name, kept, ring, judged_at(ring, waits))?;
        }
        // The ring may belong between waiting rings, if an operator pushed the later ones to this
        // node first.
        let fits = |other: &Arc<Ring>| {
            if other.epoch() > ring.epoch() {
                check(name, ring, other, judged_at(other, true))
            } else {
                check(name, other, ring, judged_at(ring, waits))
            }
        };
        if let Err(error) = waiting.iter().try_for_each(fits) {
            if !kept.is_some_and(|kept| replaces(ring, kept, &waiting, known)) {
                return Err(error);
            }
            tracing::warn!(error, "forgot rings that waited for a change that no ring here begins");
            self.waiting.clear(&self.folder, u64::MAX);
        }
        if waits {
            rings.with(name, ring.clone())?;
            self.waiting.put(&self.folder, ring)?;
            tracing::info!(%name, epoch = ring.epoch(), "a ring waits for the change before it");
            return Ok(OfferOutcome::Waits);
        }
        self.place(name, ring)?;
        if !waiting.is_empty() {
            self.waiting.clear(&self.folder, ring.epoch());
        }
        Ok(OfferOutcome::Taken)
    }

    /// Writes a ring to the folder and puts it into use.
    fn place(&self, name: RingName, ring: &Arc<Ring>) -> Result<(), String> {
        let next = self.rings().with(name, ring.clone())?;
        let file = format!("{name}.ring");
        self.folder.replace(&file, &ring.encode()).map_err(|failure| failure.to_string())?;
        *self.now.write() = CurrentRings::of(next);
        self.raise_data_epochs();
        self.changed.send_modify(|changes| *changes += 1);
        tracing::info!(%name, epoch = ring.epoch(), "a ring is in use");
        Ok(())
    }

    /// Returns the names of rings that another process has in a newer edition. Waiting rings count
    /// as present.
    pub(crate) fn behind(&self, theirs: &RingTags) -> Vec<RingName> {
        let (rings, waiting) = (self.rings(), self.waiting.all());
        let is_here = |tag: &RingTag| {
            let waits = waiting.iter().any(|ring| ring.epoch() == tag.epoch);
            waits && tag.name == RingName::Index.to_string()
        };
        theirs.iter().filter(|tag| !is_here(tag)).filter_map(|tag| wanted(&rings, &tag)).collect()
    }
}

/// Returns true if a ring that contradicts the waiting rings may replace all of them.
///
/// They wait for a change that no ring here begins, and no known term shows that a process runs a
/// change after the current one. Should one run it all the same, the ring does no harm: being of the
/// current change, it has the current holders, and devices of a later term refuse its requests as they
/// do now.
fn replaces(ring: &Ring, kept: &Ring, waiting: &[Arc<Ring>], known: Term) -> bool {
    let is_led_to = |first: &Arc<Ring>| first.term_at(kept.last_term()).is_some();
    known != Term::NONE
        && !kept.is_overtaken(known)
        && ring.change() == kept.change()
        && waiting.first().is_some_and(|first| !is_led_to(first))
}

/// Checks that `next` may follow `kept`, with `known` as the highest known term.
fn check(name: RingName, kept: &Ring, next: &Ring, known: Term) -> Result<(), String> {
    let may = match name {
        RingName::Index => kept.check_index_successor(next, known),
        RingName::Data(_) => kept.check_successor(next, |_| true),
    };
    may.map_err(|error| {
        if kept.epoch() == next.epoch() {
            tracing::error!(%name, %error, "refused another ring of the same epoch");
        }
        error.to_string()
    })
}

/// Returns the name of a ring if another process has a newer or an unknown one.
fn wanted(rings: &RingSet, theirs: &RingTag) -> Option<RingName> {
    let name: RingName = theirs.name.parse().ok()?;
    let Some(ring) = rings.get(name) else { return Some(name) };
    if theirs.epoch == ring.epoch() && *theirs != ring_tag(name, ring) {
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
            let (name, ring) = read_ring_file(&path)?;
            rings.insert(name, ring);
        }
    }
    Ok(rings)
}

/// Reads a ring file. Returns the ring and the name in its file name.
pub fn read_ring_file(path: &Path) -> Result<(RingName, Arc<Ring>), Failure> {
    let shown = path.display();
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = stem.parse().map_err(|error| {
        Failure::refused(format!(
            "{shown} has no ring's name: {error}; rename it to index.ring or data-0.ring"
        ))
    })?;
    let ring = Ring::load(path).map_err(|error| {
        Failure::refused(format!(
            "the ring can't be used: {error}; copy it again from its builder's folder or from the \
             data folder of another node"
        ))
    })?;
    Ok((name, Arc::new(ring)))
}

#[cfg(test)]
mod tests;

//! Rings of a process: pushed by the operator, or pulled from a node whose replies announce newer
//! rings. The rules are those of the processes of a real cluster.
//!
//! * An index ring waits while the highest known term does not allow its change to begin; the ring
//!   before stays in use (rule P3). A data ring is used at once.
//! * A process loses its known term when it ends, but keeps its rings. Its object layer or workers
//!   share the term, and raise it too.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Phase, Term};
use martlet_ring::Ring;
use martlet_topology::KnownTerm;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::chance::SharedRng;
use super::rings::SimulatedRings;
use super::trace::Trace;

/// Callback for new rings.
type Follow = Box<dyn Fn(&SimulatedRings) + Send + Sync>;

/// A process as a member of the cluster.
pub(crate) struct SimulatedMember {
    name: String,
    trace: Trace,
    chance: SharedRng,
    /// Maximum delay in milliseconds until announced rings are pulled.
    pull_ms: u64,
    state: Mutex<MembershipState>,
    follow: Mutex<Option<Follow>>,
}

struct MembershipState {
    rings: SimulatedRings,
    waiting: Option<Arc<Ring>>,
    known: KnownTerm,
    /// True while newer rings are pulled.
    is_pulling: bool,
}

impl SimulatedMember {
    pub(crate) fn new(
        name: String,
        rings: SimulatedRings,
        trace: Trace,
        chance: SharedRng,
    ) -> Arc<Self> {
        let known = KnownTerm::default();
        let state = MembershipState { rings, waiting: None, known, is_pulling: false };
        let pull_ms = chance.pick(&[0, 50, 1000, 10_000]);
        let (state, follow) = (Mutex::new(state), Mutex::new(None));
        Arc::new(Self { name, trace, chance, pull_ms, state, follow })
    }

    /// Starts a process with its rings and without a known term. Returns the term that the process
    /// shares.
    pub(crate) fn begin(&self) -> KnownTerm {
        self.end();
        let known = KnownTerm::default();
        self.state.lock().known = known.clone();
        known
    }

    /// Sets the receiver of the process's new rings.
    pub(crate) fn follow(&self, follow: impl Fn(&SimulatedRings) + Send + Sync + 'static) {
        *self.follow.lock() = Some(Box::new(follow));
    }

    /// Ends a process for good.
    pub(crate) fn end(&self) {
        *self.follow.lock() = None;
    }

    /// The rings in use.
    pub(crate) fn rings(&self) -> SimulatedRings {
        self.state.lock().rings.clone()
    }

    /// Accepts rings if they are newer and may be used.
    pub(crate) fn offer(&self, rings: &SimulatedRings) {
        let changed = {
            let mut state = self.state.lock();
            let taken = state.take_index(&rings.index);
            if let Err(why) = &taken {
                let epoch = rings.index.epoch();
                self.trace.note(format_args!("{}: index ring {epoch} refused: {why}", self.name));
            }
            state.take_data(&rings.data) | taken.unwrap_or(false)
        };
        if changed {
            self.changed();
        }
    }

    /// Handles the term and the rings that a reply announces.
    pub(crate) fn follow_term(self: &Arc<Self>, term: Term, theirs: &Arc<Self>) {
        self.receive_term(term);
        let rings = theirs.rings();
        let mut state = self.state.lock();
        let index = state.waiting.as_ref().unwrap_or(&state.rings.index).epoch();
        let is_behind =
            rings.index.epoch() > index || rings.data.epoch() > state.rings.data.epoch();
        if is_behind && !std::mem::replace(&mut state.is_pulling, true) {
            drop(state);
            let (member, theirs) = (self.clone(), theirs.clone());
            let pull_ms = self.chance.below(self.pull_ms + 1);
            tokio::spawn(async move {
                sleep(Duration::from_millis(pull_ms)).await;
                member.state.lock().is_pulling = false;
                member.offer(&theirs.rings());
            });
        }
    }

    /// Handles a term, for which a ring may wait.
    pub(crate) fn receive_term(&self, term: Term) {
        {
            let mut state = self.state.lock();
            let rose = state.known.raise(term);
            // The process itself may have raised the term before.
            let known = state.known.get();
            let is_over = |ring: &Arc<Ring>| ring.term_at(known).is_some();
            if !rose && !state.waiting.as_ref().is_some_and(is_over) {
                return;
            }
            if let Some(ring) = state.waiting.take() {
                // Checks the ring again: the ring is accepted, or waits on.
                let judged = state.take_index(&ring);
                self.trace.note(format_args!(
                    "{}: index ring {} waited: {judged:?}",
                    self.name,
                    ring.epoch()
                ));
            }
        }
        self.changed();
    }

    fn changed(&self) {
        let (rings, known) = {
            let state = self.state.lock();
            (state.rings.clone(), state.known.get())
        };
        let (index, data) = (rings.index.epoch(), rings.data.epoch());
        self.trace.note(format_args!("{}: rings {index} {data}, term {known}", self.name));
        if let Some(follow) = &*self.follow.lock() {
            follow(&rings);
        }
    }
}

impl MembershipState {
    /// Offers an index ring; returns true if the ring in use has changed.
    fn take_index(&mut self, ring: &Arc<Ring>) -> Result<bool, String> {
        let newest = self.waiting.as_ref().unwrap_or(&self.rings.index);
        if ring.epoch() <= newest.epoch() {
            return Ok(false);
        }
        let known = self.known.get();
        let waits = ring.term_at(known).is_none();
        let judged_at = if waits { Term::of(ring.change(), Phase::New) } else { known };
        for other in [Some(&self.rings.index), self.waiting.as_ref()].into_iter().flatten() {
            let may = other.check_index_successor(ring, judged_at);
            may.map_err(|error| error.to_string())?;
        }
        if waits {
            self.waiting = Some(ring.clone());
        } else {
            self.rings.index = ring.clone();
            self.waiting = None;
        }
        Ok(!waits)
    }

    fn take_data(&mut self, ring: &Arc<Ring>) -> bool {
        let is_newer = ring.epoch() > self.rings.data.epoch();
        if is_newer {
            self.rings.data = ring.clone();
        }
        is_newer
    }
}

//! Which rings a process goes by, and how it comes by newer ones: pushed by the operator, or pulled
//! from a node whose replies announce them. The rules are those of the processes of a real cluster.
//!
//! * A ring of the index whose change may not begin yet, by the highest term that was heard of, is
//!   kept aside; the one before stays in use (rule P3). A ring of the data is used at once.
//! * What a process has heard of terms is gone when it ends; its rings are kept.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Phase, Term};
use martlet_ring::Ring;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::chance::Chance;
use super::rings::Rings;
use super::trace::Trace;

/// What a process does when it has other rings or has heard of a higher term.
type Follow = Box<dyn Fn(&Rings, Term) + Send + Sync>;

/// A process as a member of the cluster.
pub(crate) struct Member {
    name: String,
    trace: Trace,
    chance: Chance,
    /// How long it takes at most until a ring that a node announced is here.
    pull_ms: u64,
    state: Mutex<State>,
    follow: Mutex<Option<Follow>>,
}

struct State {
    rings: Rings,
    waiting: Option<Arc<Ring>>,
    known: Term,
    /// Whether somebody is being asked for newer rings.
    is_pulling: bool,
}

impl Member {
    pub(crate) fn new(name: String, rings: Rings, trace: Trace, chance: Chance) -> Arc<Self> {
        let state = State { rings, waiting: None, known: Term::NONE, is_pulling: false };
        let pull_ms = chance.pick(&[0, 50, 1000, 10_000]);
        let (state, follow) = (Mutex::new(state), Mutex::new(None));
        Arc::new(Self { name, trace, chance, pull_ms, state, follow })
    }

    /// A process begins: it has its rings, and has heard of no term.
    pub(crate) fn begin(&self, follow: impl Fn(&Rings, Term) + Send + Sync + 'static) {
        self.state.lock().known = Term::NONE;
        *self.follow.lock() = Some(Box::new(follow));
    }

    /// A process ends for good.
    pub(crate) fn end(&self) {
        *self.follow.lock() = None;
    }

    /// The rings in use.
    pub(crate) fn rings(&self) -> Rings {
        self.state.lock().rings.clone()
    }

    /// Takes rings in, as far as they are newer and may be used.
    pub(crate) fn offer(&self, rings: &Rings) {
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

    /// Hears what a reply of a node says beside its answer.
    pub(crate) fn hear(self: &Arc<Self>, term: Term, theirs: &Arc<Self>) {
        self.hear_term(term);
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

    /// Hears of a term, which may be what a ring waits for.
    pub(crate) fn hear_term(&self, term: Term) {
        {
            let mut state = self.state.lock();
            if term <= state.known || term == Term::ANY {
                return;
            }
            state.known = term;
            if let Some(ring) = state.waiting.take() {
                // Judged anew: it is taken, or waits on.
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
            (state.rings.clone(), state.known)
        };
        let (index, data) = (rings.index.epoch(), rings.data.epoch());
        self.trace.note(format_args!("{}: rings {index} {data}, term {known}", self.name));
        if let Some(follow) = &*self.follow.lock() {
            follow(&rings, known);
        }
    }
}

impl State {
    /// Whether the ring that is in use has changed.
    fn take_index(&mut self, ring: &Arc<Ring>) -> Result<bool, String> {
        let newest = self.waiting.as_ref().unwrap_or(&self.rings.index);
        if ring.epoch() <= newest.epoch() {
            return Ok(false);
        }
        let waits = ring.term_at(self.known).is_none();
        let judged_at = if waits { Term::of(ring.change(), Phase::New) } else { self.known };
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

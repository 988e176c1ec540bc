//! Everything that happened in a run, in order, one line each; and the time that histories are
//! recorded in.
//!
//! Two runs of one seed have the same trace, byte for byte.

use std::fmt::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What happened so far. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// When the run began.
    pub(crate) begun: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    last: u64,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), state: Arc::default() }
    }

    /// Adds a line.
    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        let at_ms = self.begun.elapsed().as_millis();
        let mut state = self.state.lock();
        writeln!(state.text, "{at_ms:>8} {what}").expect("strings take everything");
    }

    /// A moment of its own: microseconds, and never the same twice, so that what came first is
    /// always known.
    pub(crate) fn moment(&self) -> u64 {
        let now = u64::try_from(self.begun.elapsed().as_micros()).expect("runs are short");
        let mut state = self.state.lock();
        state.last = now.max(state.last + 1);
        state.last
    }

    /// All lines.
    pub(crate) fn text(&self) -> String {
        self.state.lock().text.clone()
    }
}

//! The events of a run in order, one line each, and the clock of recorded histories.
//!
//! Two runs of one seed have byte-identical traces.

use std::fmt::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines so far, shared by clones.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Start of the run.
    pub(crate) begun: Instant,
    state: Arc<Mutex<TraceState>>,
}

#[derive(Debug, Default)]
struct TraceState {
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

    /// Returns a unique moment in microseconds: each call returns a later one, so that the order of
    /// events is always known.
    pub(crate) fn moment(&self) -> u64 {
        let now = u64::try_from(self.begun.elapsed().as_micros()).expect("runs are short");
        let mut state = self.state.lock();
        state.last = now.max(state.last + 1);
        state.last
    }

    /// Returns all lines.
    pub(crate) fn text(&self) -> String {
        self.state.lock().text.clone()
    }
}

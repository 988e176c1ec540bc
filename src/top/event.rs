//! Events of the screen thread, which the other threads send.

use std::io;

use martlet_serving::Failure;
use martlet_top::Answer;
use ratatui::crossterm::event::Event as Input;

/// Outcome of a request.
pub(super) enum Fetched {
    /// Reply, or a failure that may pass.
    Answer(Answer),
    /// The process refuses the credential.
    Refused(Failure),
}

/// Event of the screen thread.
pub(super) enum Event {
    /// Key, or change of the terminal's size.
    Input(Input),
    /// Reason for which keys can't be read.
    InputLost(io::Error),
    /// Outcome of a request.
    Fetched(Fetched),
    /// End of a set of requests.
    SetDone,
    /// Signal to end.
    Stop,
}

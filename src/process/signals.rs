//! SIGTERM and SIGINT: the first asks the server to finish, the second does not wait.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that end a server.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals from now on.
    pub(crate) fn take() -> Result<Self, Failure> {
        let take = |kind| {
            signal(kind)
                .map_err(|error| Failure::refused(format!("signals can't be taken: {error}")))
        };
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one, and names it.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

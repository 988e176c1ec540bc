//! SIGTERM and SIGINT: the first signal starts a graceful stop, the second ends the process at
//! once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Signals that end a server.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the signal handlers.
    pub fn take() -> Result<Self, Failure> {
        let take = |kind| {
            signal(kind).map_err(|error| {
                Failure::refused(format!("signal handlers can't be installed: {error}"))
            })
        };
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

//! SIGTERM and SIGINT: the first signal starts a graceful stop, the second ends the process at
//! once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Signals that end a server, or a role within a process of several roles.
pub struct Signals(SignalSource);

enum SignalSource {
    Process { terminate: Signal, interrupt: Signal },
    Relay(mpsc::UnboundedReceiver<&'static str>),
}

impl Signals {
    /// Installs the signal handlers.
    pub fn take() -> Result<Self, Failure> {
        let take = |kind| {
            signal(kind).map_err(|error| {
                Failure::refused(format!("signal handlers can't be installed: {error}"))
            })
        };
        Ok(Self(SignalSource::Process {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        }))
    }

    /// Makes signals that another part of the process relays by their names.
    pub fn relayed(relay: mpsc::UnboundedReceiver<&'static str>) -> Self {
        Self(SignalSource::Relay(relay))
    }

    /// Waits for the next signal, and returns its name. A relay without a sender has none.
    pub async fn next(&mut self) -> &'static str {
        match &mut self.0 {
            SignalSource::Process { terminate, interrupt } => tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            },
            SignalSource::Relay(relay) => match relay.recv().await {
                Some(name) => name,
                None => std::future::pending().await,
            },
        }
    }
}

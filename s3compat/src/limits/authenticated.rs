//! Connections that have had an authenticated request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Mark of one connection, set once a request on the connection was authenticated. The server puts
/// the mark into the extensions of each request, like [`Peer`](crate::Peer), and may prefer
/// connections with a set mark.
#[derive(Clone, Debug, Default)]
pub struct AuthenticatedFlag(Arc<AtomicBool>);

impl AuthenticatedFlag {
    /// Marks the connection as authenticated.
    pub fn set(&self) {
        // Most requests find the mark set, and leave its cache line shared.
        if !self.is_set() {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Returns true if a request was authenticated.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

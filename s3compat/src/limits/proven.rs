//! Connections that have shown a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mark of one connection: set once a request on the connection was authenticated. Whoever serves
/// connections puts the mark among the extensions of each request, as [`Peer`](crate::Peer), and may
/// prefer connections that have it.
#[derive(Clone, Debug, Default)]
pub struct Proven(Arc<AtomicBool>);

impl Proven {
    /// Notes that a request was authenticated.
    pub fn set(&self) {
        // Most requests find the mark set, and leave its cache line shared.
        if !self.is_set() {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Returns true when a request was authenticated.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

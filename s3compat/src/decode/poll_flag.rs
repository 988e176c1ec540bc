//! Record of the first poll of a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Records that the body of a waiting client was requested. Empty if the client does not wait.
/// Clones share the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollFlag(Option<Arc<AtomicBool>>);

impl PollFlag {
    /// Creates a flag, which records something only if the client waits.
    pub(crate) fn new(waits: bool) -> Self {
        Self(waits.then(Arc::default))
    }

    /// Records a poll.
    pub(super) fn set(&self) {
        if let Some(polled) = &self.0 {
            polled.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the client waits, and its body was not requested.
    pub(crate) fn is_unset(&self) -> bool {
        self.0.as_ref().is_some_and(|polled| !polled.load(Ordering::Relaxed))
    }
}

//! Who may see an object, where the object itself says so.

use martlet_protocol::entry::Object;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::store::Inner;

/// Asked about every object that a session reads, or changes without bringing bytes, before anything
/// of it is told: conditions and ranges are judged behind it.
pub trait Guard: Send + Sync {
    /// Whether the session may go on.
    fn admits(&self, object: &Object) -> bool;
}

impl Inner {
    /// Refuses what a guard doesn't admit.
    pub(crate) fn admit(&self, object: &Object) -> Result<()> {
        match &self.guard {
            Some(guard) if !guard.admits(object) => Err(Error::AccessDenied),
            _ => Ok(()),
        }
    }
}

impl Session {
    /// The same session with a guard before the objects that it reads.
    #[must_use]
    pub fn guarded(&self, guard: std::sync::Arc<dyn Guard>) -> Self {
        Self(self.0.guarded(guard))
    }
}

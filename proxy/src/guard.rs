//! Access checks that depend on the object itself.

use martlet_protocol::entry::Object;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::store::Inner;

/// Access check for each object that a session reads, or changes without a body. It runs before
/// conditions and ranges are evaluated, so a refused caller learns nothing of the object.
pub trait Guard: Send + Sync {
    /// Returns true if the session may access the object.
    fn admits(&self, object: &Object) -> bool;
}

impl Inner {
    /// Refuses objects that the session's guard doesn't admit.
    pub(crate) fn admit(&self, object: &Object) -> Result<()> {
        match &self.guard {
            Some(guard) if !guard.admits(object) => Err(Error::AccessDenied),
            _ => Ok(()),
        }
    }
}

impl Session {
    /// Returns this session with a guard on the objects that it reads.
    #[must_use]
    pub fn guarded(&self, guard: std::sync::Arc<dyn Guard>) -> Self {
        Self(self.0.guarded(guard))
    }
}

//! Access checks that depend on the object itself.

use martlet_protocol::entry::Object;

/// Access check for each object that a session reads, or changes without a body. It runs before
/// conditions and ranges are evaluated, so a refused caller learns nothing of the object.
pub trait Guard: Send + Sync {
    /// Returns true if the session may access the object.
    fn admits(&self, object: &Object) -> bool;
}

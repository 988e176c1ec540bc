//! Access checks that depend on the object itself.

use martlet_protocol::entry::Object;

/// Access check for each object that a session reads, or changes without a body. It runs before
/// conditions and ranges are evaluated, so a refused caller learns nothing of the object.
pub trait Guard: Send + Sync {
    /// Returns true if the session may access the object.
    fn admits(&self, object: &Object) -> bool;

    /// Returns true if this state of the object may be served although a later one may exist: what the
    /// session could read then, it may still read. Otherwise the object is read at the level of what
    /// decides about access (rule A4).
    fn trusts(&self, _object: &Object) -> bool {
        false
    }
}

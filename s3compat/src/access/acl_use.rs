//! Whether a request was let in by an access control list, for those who log requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a list let a request do what nothing else did: among the extensions of the request, and kept by
/// who will log it. Cheap to clone; all clones are about one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclUse(Arc<AtomicBool>);

impl AclUse {
    /// A list was needed.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether one was.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

//! Record of requests that an access control list admitted, for access logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag set when only an access control list permitted a request. It is among the request's
/// extensions, and the access log reads it. Cheap to clone; all clones share one flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclUse(Arc<AtomicBool>);

impl AclUse {
    /// Sets the flag.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if the flag is set.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

//! Record of requests that an access control list admitted, for access logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag set when only an access control list permitted a request. The access log reads it. Cheap to
/// clone; all clones share one flag. The default has no flag, as no reader needs one.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclUse(Option<Arc<AtomicBool>>);

impl AclUse {
    /// A flag that isn't set.
    pub(crate) fn recorded() -> Self {
        Self(Some(Arc::default()))
    }

    /// Sets the flag.
    pub(crate) fn set(&self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// True if the flag is set.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

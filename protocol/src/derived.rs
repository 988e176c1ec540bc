//! Values that are derived from their owner at their first use.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A value that depends on its owner alone, such as the parsed form of a document.
///
/// Invariants:
/// * All values are equal: a derived value is no part of its owner's identity.
/// * A clone is empty, because the owner's clone may be changed.
#[derive(Default)]
pub(crate) struct Derived(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Derived {
    /// Returns the value, computed by `init` at the first call. The slot keeps one value: calls for
    /// another type compute theirs each time.
    pub(crate) fn get_or_init<T: Send + Sync + 'static>(&self, init: impl FnOnce() -> T) -> Arc<T> {
        if let Some(kept) = self.0.get() {
            return kept.clone().downcast().unwrap_or_else(|_| Arc::new(init()));
        }
        let value = Arc::new(init());
        // Of two threads that compute the value at once, one keeps it.
        let _ = self.0.set(value.clone());
        value
    }
}

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Derived {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Derived {}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_is_computed_each_time() {
        let derived = Derived::default();
        assert_eq!(*derived.get_or_init(|| 1_u8), 1);
        assert_eq!(*derived.get_or_init(|| "text"), "text");
        assert_eq!(*derived.get_or_init(|| 2_u8), 1);
    }
}

//! Versions of keys, as heads and as registers beside them.

use std::sync::Arc;

use crate::index::RegisterClient;

/// Versions of keys, as heads and as registers beside them.
pub(crate) struct VersionStore {
    pub(super) registers: Arc<RegisterClient>,
}

impl VersionStore {
    pub(crate) fn new(registers: Arc<RegisterClient>) -> Self {
        Self { registers }
    }
}

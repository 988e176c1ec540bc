//! Effects of operations.

use crate::events::ObjectEvents;
use crate::logging::BatchOutcome;

/// Effects of an operation, for observers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    /// Changes of objects.
    pub(crate) events: ObjectEvents,
    /// Outcome for each key that the request deletes.
    pub(crate) batch: BatchOutcome,
    /// Targets of a new notification configuration.
    pub(crate) configured_targets: Vec<String>,
}

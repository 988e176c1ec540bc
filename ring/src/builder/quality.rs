//! Quality figures of a builder's assignment.

use super::{Builder, no_ring_yet};
use crate::error::Result;
use crate::figures::{Figures, figures};

impl Figures {
    /// Computes the figures of a builder's last assignment over its current devices.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) before the first rebalance.
    pub fn of_builder(builder: &Builder) -> Result<Self> {
        let table = builder.table().ok_or_else(no_ring_yet)?;
        let (devices, removed) = builder.slots();
        Ok(figures(devices, removed, table))
    }
}

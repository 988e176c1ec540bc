//! Steps of operators on ring builders.
//!
//! ```text
//! martlet ring ─ arguments ──▶ RingStep ─┐
//!                                        ├─▶ apply ─▶ Builder, and a sentence with notes
//! POST ring-builder ─ JSON ──▶ RingStep ─┘
//! ```
//!
//! * [`create()`], [`reconstruct`]: a new builder, or that of a ring file.
//! * [`apply`]: one step, such as a new device or another weight.
//! * [`plan`], [`rebalance()`]: the next ring, rehearsed or made, with its cost.
//! * [`record`]: a record in the builder's history.
//! * [`select()`]: devices by id or place.
//! * [`policy`]: names and codes of storage policies.
//! * [`text`]: counts in sentences.
//!
//! Both callers get equal sentences, notes and refusals for equal steps. A step that fails may have
//! changed the builder in part: callers drop the builder then.
//!
//! The crate reads no files and has no clock: times and the lineage of a new builder are arguments.

mod create;
pub mod policy;
mod rebalance;
mod select;
mod step;
#[cfg(test)]
mod tests;
pub mod text;

use martlet_ring::Builder;

pub use create::{create, reconstruct, redundancy_text};
pub use rebalance::{PlanOccasion, Rehearsal, plan, rebalance};
pub use select::{WORDS_MAX, name, select, select_all, select_one};
pub use step::{apply, new_device};

/// Author of steps whose operator has no name.
const UNKNOWN: &str = "unknown";

/// Records an action in the builder's history. An empty `who` is recorded as `unknown`.
pub fn record(builder: &mut Builder, at_ms: u64, who: &str, what: &str) {
    builder.record(at_ms, if who.is_empty() { UNKNOWN } else { who }, what);
}

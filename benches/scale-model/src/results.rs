//! Results of a run: all figures that reports show.

use serde::Serialize;

use crate::changes::{Change, ChangeCost};
use crate::churn::{Month, WorkerLoad};
use crate::cluster::Shape;
use crate::constants::Constant;
use crate::estimate::Estimate;
use crate::memory::NodeMemory;

/// Results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) seed: u64,
    pub(crate) years: u32,
    pub(crate) shape: Shape,
    pub(crate) constants: Vec<Constant>,
    pub(crate) rings: Vec<RingFacts>,
    pub(crate) changes: Vec<ChangeCost>,
    pub(crate) alternatives: Vec<Alternative>,
    pub(crate) durability: Vec<Durability>,
    pub(crate) loads: Vec<WorkerLoad>,
    pub(crate) audit_rate: f64,
    pub(crate) months: Vec<NamedMonth>,
    pub(crate) memory: NodeMemory,
    pub(crate) memory_without_deletes: NodeMemory,
}

/// Facts of a policy's ring.
#[derive(Debug, Serialize)]
pub(crate) struct RingFacts {
    pub(crate) policy: &'static str,
    pub(crate) partitions: u32,
    pub(crate) replicas_a_device: f64,
    /// Worst deviation of a device from its share, in percent.
    pub(crate) balance: f64,
    /// Partitions with two replicas in one rack.
    pub(crate) crowded: usize,
}

/// Durability of a policy.
#[derive(Debug, Serialize)]
pub(crate) struct Durability {
    pub(crate) policy: &'static str,
    pub(crate) partitions: u32,
    /// Lost partitions a year, by the hours in which one more failure would lose them.
    pub(crate) exposed: Estimate,
    /// Lost partitions a year, by losses that were seen at accelerated failures.
    pub(crate) counted: Estimate,
    pub(crate) acceleration: f64,
    pub(crate) losses: u64,
    /// Lost partitions a year by the closed form.
    pub(crate) closed_form: f64,
    /// As above, by the Markov chain with exponential repairs.
    pub(crate) markov: f64,
    /// Mean hours from the loss of a replica to its repair; of them until the repair begins.
    pub(crate) repair_h: f64,
    pub(crate) delay_h: f64,
    /// Lost partitions a year by the closed form, for other hours until the repair begins.
    pub(crate) by_delay: Vec<DelayPoint>,
}

/// Lost partitions a year, for hours until the repair begins.
#[derive(Debug, Serialize)]
pub(crate) struct DelayPoint {
    pub(crate) delay_h: f64,
    pub(crate) losses: f64,
}

/// Repair under other workers.
#[derive(Debug, Serialize)]
pub(crate) struct Alternative {
    pub(crate) name: &'static str,
    pub(crate) costs: Vec<AlternativeCost>,
    /// Lost partitions a year by the closed form.
    pub(crate) losses: f64,
}

/// Hours of a change under other workers.
#[derive(Debug, Serialize)]
pub(crate) struct AlternativeCost {
    pub(crate) change: Change,
    pub(crate) half_hours: f64,
    pub(crate) hours: f64,
}

/// Month under another churn.
#[derive(Debug, Serialize)]
pub(crate) struct NamedMonth {
    pub(crate) churn_day: f64,
    pub(crate) month: Month,
}

//! The [`Worker`] trait: background work, separate from its schedule.

use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::Result;

/// Background work in bounded steps.
///
/// A crash may interrupt a step at any point. The effects up to that point must be correct, and a
/// new worker must be able to continue from the state on disk.
#[async_trait]
pub trait Worker: Send {
    /// A short name for metrics and operators.
    fn name(&self) -> &'static str;

    /// Does one bounded unit of work and returns its progress.
    ///
    /// # Errors
    /// If the step failed; nothing is lost, and a later step tries again.
    async fn step(&mut self) -> Result<StepProgress>;

    /// Pause while no work is left; `usual` is the runner's default.
    fn idle_pause(&self, usual: Duration) -> Duration {
        usual
    }

    /// Pause after a step while work is left; `usual` is the runner's default.
    fn busy_pause(&self, usual: Duration) -> Duration {
        usual
    }

    /// Maximum time for which the worker yields to slow clients before a step; `usual` is the
    /// runner's default.
    fn yield_max(&self, usual: Duration) -> Duration {
        usual
    }
}

#[async_trait]
impl Worker for Box<dyn Worker> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    async fn step(&mut self) -> Result<StepProgress> {
        (**self).step().await
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        (**self).idle_pause(usual)
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        (**self).busy_pause(usual)
    }

    fn yield_max(&self, usual: Duration) -> Duration {
        (**self).yield_max(usual)
    }
}

/// Progress of a step, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepProgress {
    /// Items visited.
    pub items: u64,
    /// Items completed: hints that all primaries hold, devices that got their votes.
    pub done: u64,
    /// Extents deleted.
    pub freed: u64,
    /// Bytes of deleted extents.
    pub freed_bytes: u64,
    /// Copies and fragments of extents written.
    pub copied: u64,
    /// Bytes of these copies and fragments.
    pub copied_bytes: u64,
    /// Bytes read from devices to rebuild lost fragments.
    pub read_bytes: u64,
    /// Registers copied to a replica that lacked them.
    pub repaired: u64,
    /// Items left unchanged, because a device that must agree did not answer.
    pub kept: u64,
    /// Items known to wait, as far as the worker can see.
    pub backlog: u64,
    /// Extents with different bytes on two primaries, as far as the worker can see; at most 1,000.
    pub differing: u64,
    /// Items of this pass that are not visited yet, if the worker knows their number.
    pub ahead: u64,
    /// Waiting time of the oldest waiting item, in milliseconds.
    pub oldest_age_ms: u64,
    /// True if no work is left for now.
    pub idle: bool,
}

impl StepProgress {
    /// Adds a later step: counters are summed; waiting items are taken from the later step.
    pub(crate) fn add(&mut self, step: &Self) {
        self.items += step.items;
        self.done += step.done;
        self.freed += step.freed;
        self.freed_bytes += step.freed_bytes;
        self.copied += step.copied;
        self.copied_bytes += step.copied_bytes;
        self.read_bytes += step.read_bytes;
        self.repaired += step.repaired;
        self.kept += step.kept;
        self.differing = step.differing;
        self.ahead = step.ahead;
        self.backlog = step.backlog;
        self.oldest_age_ms = step.oldest_age_ms;
        self.idle = step.idle;
    }
}

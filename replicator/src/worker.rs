//! The seam between what background work does and when it does it.

use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::Result;

/// Background work in bounded steps.
///
/// A step may be cut off at any point by a crash: whatever it has done until then must be right, and
/// a worker made anew must be able to go on from what is on disk.
#[async_trait]
pub trait Worker: Send {
    /// A short name for metrics and people.
    fn name(&self) -> &'static str;

    /// Does one bounded unit of work and says what came of it.
    ///
    /// # Errors
    /// When the step could not be carried out; nothing is lost, and a later step tries again.
    async fn step(&mut self) -> Result<Progress>;

    /// How long it rests when there is nothing more to do for now; `usual` is what others rest.
    fn idle_pause(&self, usual: Duration) -> Duration {
        usual
    }

    /// How long it rests after a step while there is work; `usual` is what others rest.
    fn busy_pause(&self, usual: Duration) -> Duration {
        usual
    }
}

#[async_trait]
impl Worker for Box<dyn Worker> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    async fn step(&mut self) -> Result<Progress> {
        (**self).step().await
    }

    fn idle_pause(&self, usual: Duration) -> Duration {
        (**self).idle_pause(usual)
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        (**self).busy_pause(usual)
    }
}

/// What came of a step, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Things looked at.
    pub items: u64,
    /// Things brought to their end: hints that all primaries hold, devices that got their votes.
    pub done: u64,
    /// Extents deleted.
    pub freed: u64,
    /// Their bytes.
    pub freed_bytes: u64,
    /// Copies and fragments of extents written.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Bytes read from devices to make what others have lost.
    pub read_bytes: u64,
    /// Registers brought to a replica that lacked them.
    pub repaired: u64,
    /// Things left as they are, because somebody who must agree did not answer.
    pub kept: u64,
    /// Things known to wait, as far as the worker can see.
    pub backlog: u64,
    /// Things of this pass that are still to be looked at, where the worker knows.
    pub ahead: u64,
    /// How long the oldest of those that wait has waited, in milliseconds.
    pub oldest_age_ms: u64,
    /// Whether there is nothing more to do for now.
    pub idle: bool,
}

impl Progress {
    /// Adds a later step: what was done sums up, what waits is what the later one saw.
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
        self.ahead = step.ahead;
        self.backlog = step.backlog;
        self.oldest_age_ms = step.oldest_age_ms;
        self.idle = step.idle;
    }
}

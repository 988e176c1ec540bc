//! Collect: tombstones that nobody needs any more (rule T1).
//!
//! ```text
//! old ──all primaries hold it, nobody else holds anything──▶ marked on all primaries ──▶ let go
//! ```
//!
//! A tombstone stands against copies of what it deleted that may be somewhere still. So it goes only
//! when every device of the index ring has said that it holds no such copy, and every primary that it
//! holds the tombstone itself. Marked, it has left the trees by which devices compare what they hold:
//! one that let it go is not brought it back by another that has not.
//!
//! Silence blocks: while any device of the ring is out, nothing is collected, for however long. So a
//! device that was away for longer than the reclaim age has missed no collection, comes back with its
//! votes, and finds every tombstone that it needs: its absence needs no clock and nobody's memory
//! (rule G1). One that is taken out of the ring never comes back under its id.
//!
//! What was on its way when everybody was asked can't arrive afterwards: clients' writes are refused
//! that are older than ten minutes (rule T2), workers let go of pages that they read minutes ago, and
//! the reclaim age is longer than both.
//!
//! A ballot that finds nothing and decides to write nothing leaves its promise behind, on registers that
//! hold nothing else. It stands against ballots and writes below it, which are refused for their age after
//! ten minutes anyway (rule T2). So it goes a while after that, once every device has said that it holds
//! nothing of the register, and all primaries are there with their votes. Nobody compares promises, so
//! nothing brings one back, and nothing has to be marked first.
//!
//! What is left of buckets that are gone goes too, whether tombstones or not: see [`gone`].

mod cases;
pub(crate) mod gone;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::backend::{LetGo, Walk, Want};
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::tree::Span;
use martlet_protocol::{Clock, DeviceId, Entry, RegisterKey, Result, Stamp};
use martlet_ring::RingHash;

use self::cases::{Cases, check_everyone, let_go, mark};
use self::gone::Buckets;
use self::verdict::Verdict;
use crate::cluster::{Cluster, Rounds, Scope, SharedCluster, in_time};
use crate::copying::PAGE;
use crate::worker::{Progress, Worker};

/// The longest rest between two passes: they go by everything that a device holds.
const REST_MAX: Duration = Duration::from_hours(1);
/// Passes for each reclaim age.
const PASSES: u64 = 16;
/// How old a promise is before it may go: older than anything that it stands against, by a margin for
/// clocks and for what is slow.
const PROMISE_AGE_MS: u64 = 6 * FIRST_HAND_AGE_MS_MAX;
/// How often a pass looks for registers that hold nothing but promises, which a walk leaves out.
const PROMISES_EVERY_MS: u64 = 24 * 60 * 60 * 1000;

/// How it goes about it.
#[derive(Clone, Copy, Debug)]
pub struct CollectOptions {
    /// How old a tombstone is before it may go, in milliseconds: longer than anything can be on its
    /// way.
    pub age_ms: u64,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { age_ms: 7 * 24 * 60 * 60 * 1000 }
    }
}

/// The worker.
pub struct Collect {
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    options: CollectOptions,
    scope: Scope,
    rounds: Rounds,
    after: Option<RegisterKey>,
    /// Whether this pass looks for marked ones and for promises too, which a walk leaves out: the first
    /// over a ring does, each after one that left marked ones behind, and one a day.
    thorough: bool,
    /// When the last such pass began.
    thorough_ms: u64,
    ring: Option<RingHash>,
    /// Which buckets there are, as far as this pass has asked.
    buckets: Buckets,
    /// What this pass has left.
    left: Left,
    /// What the last whole pass left.
    before: Left,
}

/// Tombstones that are old and stay.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    count: u64,
    oldest_ms: Option<u64>,
    /// Whether some of them may be marked.
    marked: bool,
}

impl Collect {
    /// A worker over the tombstones whose first primary `scope` looks after.
    pub fn new(
        cluster: impl Into<SharedCluster>,
        clock: Arc<dyn Clock>,
        scope: Scope,
        options: CollectOptions,
    ) -> Self {
        let cluster = cluster.into();
        let (rounds, after, ring) = (Rounds::default(), None, None);
        let thorough_ms = clock.now_ms();
        let (left, before, buckets) = (Left::default(), Left::default(), Buckets::default());
        Self {
            cluster,
            clock,
            options,
            scope,
            rounds,
            after,
            thorough: true,
            thorough_ms,
            ring,
            buckets,
            left,
            before,
        }
    }

    /// The next registers of a device.
    async fn page(
        &self,
        cluster: &Cluster,
        device: DeviceId,
    ) -> Result<Vec<(RegisterKey, Option<Entry>)>> {
        let (node, after) = (cluster.node(device)?, self.after.as_ref());
        let page = if self.thorough {
            in_time(node.registers(device, after, PAGE)).await?
        } else {
            let walk = Walk { span: Span::ALL, bin: None, want: Want::Entry };
            in_time(node.walk(device, &walk, after, PAGE)).await?
        };
        Ok(page.into_iter().map(|(key, view)| (key, view.entry)).collect())
    }

    /// Takes what is left of buckets that are gone from all devices: what stays of a page, and how
    /// many registers of it went.
    async fn purge(
        &mut self,
        cluster: &Cluster,
        page: Vec<(RegisterKey, Option<Entry>)>,
    ) -> (Vec<(RegisterKey, Option<Entry>)>, u64) {
        let (now_ms, everyone) = (self.clock.now_ms(), cluster.index_devices());
        let of = |(key, entry): &(RegisterKey, Option<Entry>)| {
            entry.as_ref().map(|entry| (key.bucket, entry.order))
        };
        self.buckets.purge(cluster, now_ms, &everyone, page, of).await
    }

    /// Those of a page that are old tombstones, and this device's to collect.
    fn due(
        &self,
        cluster: &Cluster,
        device: DeviceId,
        page: &[(RegisterKey, Option<Entry>)],
    ) -> Vec<(RegisterKey, Stamp)> {
        let before_ms = self.clock.now_ms().saturating_sub(self.options.age_ms);
        let tombstones = page.iter().filter_map(|(key, entry)| {
            let entry = entry.as_ref().filter(|entry| entry.value.is_tombstone())?;
            (entry.order.time_ms() < before_ms).then(|| (key.clone(), entry.order))
        });
        // Of marked ones the first primary may know nothing.
        let is_mine = |(key, _): &(RegisterKey, Stamp)| {
            self.thorough || cluster.holders(key.placement()).primaries.first() == Some(&device)
        };
        tombstones.filter(is_mine).collect()
    }

    /// Marks and lets go what may be: how many went.
    async fn collect(
        &mut self,
        cluster: &Cluster,
        device: DeviceId,
        due: Vec<(RegisterKey, Stamp)>,
    ) -> Result<u64> {
        check_everyone(cluster).await?;
        let marked_before = self.left.marked;
        let before = Stamp::at_ms(self.clock.now_ms().saturating_sub(self.options.age_ms));
        let mut cases = Cases::ask(cluster, due).await?;
        let marks = cases.verdicts(cluster, before);
        let marks: Vec<(RegisterKey, Stamp)> = marks
            .into_iter()
            .filter(|(_, _, verdict)| *verdict == Verdict::Mark)
            .map(|(key, order, _)| (key, order))
            .collect();
        if !marks.is_empty() {
            self.left.marked = true;
            mark(cluster, &marks).await?;
            cases = Cases::ask(cluster, cases.keys).await?;
        }
        let drops = cases.verdicts(cluster, before).into_iter().filter_map(|(key, _, verdict)| {
            let Verdict::Drop { up_to } = verdict else { return None };
            Some(LetGo { key, up_to, collectable: true })
        });
        let drops: Vec<LetGo> = drops.collect();
        self.left.marked |= !drops.is_empty();
        let_go(cluster, device, &drops).await?;
        if drops.len() >= marks.len() {
            self.left.marked = marked_before;
        }
        Ok(drops.len() as u64)
    }

    /// Lets registers of a page go that hold nothing but promises of which nobody can make use any
    /// more: how many went.
    async fn collect_promises(
        &self,
        cluster: &Cluster,
        device: DeviceId,
        page: &[(RegisterKey, Option<Entry>)],
    ) -> Result<u64> {
        let empty = page.iter().filter(|(_, entry)| entry.is_none());
        let empty: Vec<_> = empty.map(|(key, _)| (key.clone(), Stamp::ZERO)).collect();
        if empty.is_empty() {
            return Ok(0);
        }
        check_everyone(cluster).await?;
        let before = Stamp::at_ms(self.clock.now_ms().saturating_sub(PROMISE_AGE_MS));
        let drops = Cases::ask(cluster, empty).await?.spent_promises(cluster, before);
        let_go(cluster, device, &drops).await?;
        Ok(drops.len() as u64)
    }

    /// Whether that ended a pass.
    fn advance(&mut self, cluster: &Cluster) -> bool {
        self.after = None;
        let ended = self.rounds.advance(&cluster.index_devices_of(&self.scope));
        if ended {
            self.before = std::mem::take(&mut self.left);
            self.buckets = Buckets::default();
            let now_ms = self.clock.now_ms();
            self.thorough = self.before.marked
                || self.ring != Some(cluster.index.hash())
                || self.thorough_ms.saturating_add(PROMISES_EVERY_MS) <= now_ms;
            if self.thorough {
                self.thorough_ms = now_ms;
            }
            self.ring = Some(cluster.index.hash());
        }
        ended
    }

    fn leave(&mut self, due: &[(RegisterKey, Stamp)], went: u64) {
        let oldest_ms = due.iter().map(|(_, order)| order.time_ms()).min();
        let count = due.len() as u64 - went;
        if count > 0 {
            self.left.count += count;
            self.left.oldest_ms = self.left.oldest_ms.into_iter().chain(oldest_ms).min();
        }
    }
}

#[async_trait]
impl Worker for Collect {
    fn name(&self) -> &'static str {
        "collect"
    }

    /// A pass goes by all registers, and finds what became old since the last: some passes in each
    /// reclaim age are enough.
    fn idle_pause(&self, usual: Duration) -> Duration {
        let wanted = Duration::from_millis(self.options.age_ms / PASSES);
        wanted.clamp(usual.min(REST_MAX), REST_MAX)
    }

    async fn step(&mut self) -> Result<Progress> {
        let cluster = self.cluster.get();
        let mut progress = Progress::default();
        let Some(device) = self.rounds.at(&cluster.index_devices_of(&self.scope)) else {
            return Ok(Progress { idle: true, ..progress });
        };
        match self.page(&cluster, device).await {
            Ok(page) => {
                progress.items = page.len() as u64;
                self.after = page.last().map(|(key, _)| key.clone());
                let (page, purged) = self.purge(&cluster, page).await;
                let due = self.due(&cluster, device, &page);
                progress.done = purged;
                let promises = self.collect_promises(&cluster, device, &page).await;
                progress.done += promises.unwrap_or_else(|error| {
                    tracing::debug!(%device, %error, "promises are kept");
                    0
                });
                if !due.is_empty() {
                    let went = self.collect(&cluster, device, due.clone()).await;
                    let went = went.unwrap_or_else(|error| {
                        tracing::debug!(%device, %error, "tombstones are kept");
                        0
                    });
                    self.leave(&due, went);
                    progress.done += went;
                    progress.kept = due.len() as u64 - went;
                }
                if self.after.is_none() {
                    progress.idle = self.advance(&cluster);
                }
            }
            Err(error) => {
                // Whoever is out keeps what it has until it returns; and so do all others.
                tracing::debug!(%device, %error, "a device does not say what it holds");
                self.left.marked = true;
                progress.idle = self.advance(&cluster);
            }
        }
        let left = if progress.idle { self.before } else { self.left };
        progress.backlog = left.count;
        let now_ms = self.clock.now_ms();
        progress.oldest_age_ms = left.oldest_ms.map_or(0, |since| now_ms.saturating_sub(since));
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

//! Extents: every primary of an extent gets its copy, and whoever else has one lets it go.
//!
//! ```text
//! a page of a device's extents ──presence──▶ every primary
//!    some lack it     copy, a few at a time, so many bytes a step
//!    all have it      a device that is no primary asks once more, then lets go
//!    one deleted it   gone here too, if nobody wants it (rule X4)
//!    silence          kept
//! ```
//!
//! Previous holders and handoffs are those who have an extent and are no primaries of it: one rule
//! serves moves, drains, returns and wiped devices. Extents that were written just now are left to
//! whoever writes them: a copy would stand in the way of the writer's own.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Clock, DeviceId, ErrorKind, ExtentId, Result};
use martlet_ring::RingHash;

use super::copy::copy;
use super::judge::judge;
use super::places::Places;
use super::plan::{Deed, plan};
use super::presence::{let_go, presence};
use crate::cluster::{Cluster, Rounds, Scope, SharedCluster, in_time};
use crate::cursors::{Cursors, MemoryCursors};
use crate::worker::{Progress, Worker};

/// Extents that are looked at at a time.
const PAGE: usize = 500;
/// Copies that are on their way at once.
const COPY_AT_ONCE: usize = 4;
/// A step ends after so many bytes, or so many copies.
const STEP_BYTES: u64 = 32 * 1024 * 1024;
const STEP_COPIES: usize = 64;

/// How extents are replicated.
#[derive(Clone, Copy, Debug)]
pub struct ReplicateOptions {
    /// Extents younger than this are left to their writers, in milliseconds.
    pub young_ms: u64,
    /// Bytes copied in a second, at most; none lets clients' latency alone set the pace.
    pub bytes_per_second_max: Option<u64>,
}

impl Default for ReplicateOptions {
    fn default() -> Self {
        Self { young_ms: 30_000, bytes_per_second_max: None }
    }
}

/// The worker.
pub struct ReplicateExtents {
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    scope: Scope,
    options: ReplicateOptions,
    cursors: Arc<dyn Cursors>,
    rounds: Rounds,
    after: Option<ExtentId>,
    page: Option<Page>,
    /// Counts passes: whose turn it is to copy (see [`plan`]).
    turn: u64,
    pass: Pass,
    /// What the last whole pass left undone, and since when something is.
    left: u64,
    since_ms: Option<u64>,
    /// Bytes of the last step.
    step_bytes: u64,
}

/// What one pass has met.
#[derive(Default)]
struct Pass {
    left: u64,
    seen: u64,
    /// Devices that took no more bytes.
    full: HashSet<DeviceId>,
}

/// A page that was looked at, and what is still to be done about it.
struct Page {
    device: DeviceId,
    rings: Vec<RingHash>,
    deeds: VecDeque<(ExtentRecord, Deed)>,
    /// Where the next begins; none at the end of the device.
    next: Option<ExtentId>,
}

impl ReplicateExtents {
    const NAME: &str = "replicate-data";

    /// A worker over the data devices that `scope` looks after.
    pub fn new(cluster: impl Into<SharedCluster>, clock: Arc<dyn Clock>, scope: Scope) -> Self {
        Self {
            cluster: cluster.into(),
            clock,
            scope,
            options: ReplicateOptions::default(),
            cursors: Arc::new(MemoryCursors::default()),
            rounds: Rounds::default(),
            after: None,
            page: None,
            turn: 0,
            pass: Pass::default(),
            left: 0,
            since_ms: None,
            step_bytes: 0,
        }
    }

    /// The same with other options.
    #[must_use]
    pub fn with_options(self, options: ReplicateOptions) -> Self {
        Self { options, ..self }
    }

    /// The same, going on where `cursors` say.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<dyn Cursors>) -> Self {
        let saved = cursors.load(Self::NAME);
        let place = saved.as_deref().and_then(|text| {
            let (device, after) = text.split_once(' ')?;
            Some((DeviceId(device.parse().ok()?), after.parse().ok()))
        });
        if let Some((device, after)) = place {
            self.rounds = Rounds::from(device);
            self.after = after;
        }
        self.cursors = cursors;
        self
    }

    /// Looks at the next page of a device.
    async fn look(&mut self, cluster: &Cluster, device: DeviceId) -> Result<(Page, Progress)> {
        let node = cluster.node(device)?;
        let records = in_time(node.list_extents(device, self.after, PAGE)).await?;
        let next = records.last().map(|record| record.extent.id);
        let next = next.filter(|_| records.len() >= PAGE);
        let items = records.len() as u64;
        let now_ms = self.clock.now_ms();
        let is_young = |it: &ExtentRecord| it.birth_ms + self.options.young_ms > now_ms;
        let places = Places::of(cluster);
        let said = presence(&places, device, &records).await?;
        let mut deeds = VecDeque::new();
        let mut kept = 0;
        for (record, said) in records.into_iter().zip(said) {
            match plan(device, &said, self.turn) {
                Deed::Nothing | Deed::Leave => {}
                Deed::Wait => kept += 1,
                _ if is_young(&record) => kept += 1,
                deed => deeds.push_back((record, deed)),
            }
        }
        self.pass.seen += items;
        let page = Page { device, rings: rings(cluster), deeds, next };
        Ok((page, Progress { items, kept, ..Progress::default() }))
    }

    /// Does as much of a page as fits into a step.
    async fn work(&mut self, cluster: &Cluster, page: &mut Page) -> Result<Progress> {
        let mut progress = Progress::default();
        let (mut copies, mut judged, mut strays) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        while bytes < STEP_BYTES && copies.len() < STEP_COPIES {
            let Some((record, deed)) = page.deeds.pop_front() else { break };
            match deed {
                Deed::Copy(to) => {
                    bytes += u64::from(record.extent.length) * to.len() as u64;
                    copies.push((record, to));
                }
                Deed::LetGo => strays.push(record),
                Deed::Judge => judged.push(record),
                Deed::Nothing | Deed::Leave | Deed::Wait => {}
            }
        }
        let whole = self.copy_all(cluster, page.device, copies, &mut progress).await;
        let places = Places::of(cluster);
        strays.extend(whole.into_iter().filter(|it| !places.primaries(it).contains(&page.device)));
        let_go(&places, page.device, &strays, &mut progress).await?;
        judge(cluster, page.device, judged, &mut progress).await?;
        self.step_bytes = progress.copied_bytes;
        Ok(progress)
    }

    /// Makes copies, a few at a time; those that nobody lacks any more, as far as was known.
    async fn copy_all(
        &mut self,
        cluster: &Cluster,
        device: DeviceId,
        copies: Vec<(ExtentRecord, Vec<DeviceId>)>,
        progress: &mut Progress,
    ) -> Vec<ExtentRecord> {
        let full = &self.pass.full;
        let mut ways = Vec::with_capacity(copies.len());
        for (record, to) in copies {
            ways.push(async move {
                let mut outcomes = Vec::with_capacity(to.len());
                for to in to {
                    let outcome = if full.contains(&to) {
                        Err(ErrorKind::Full)
                    } else {
                        copy_and_tell(cluster, &record, device, to).await
                    };
                    outcomes.push((to, outcome));
                }
                (record, outcomes)
            });
        }
        let done: Vec<_> =
            futures::stream::iter(ways).buffer_unordered(COPY_AT_ONCE).collect().await;
        let mut whole = Vec::new();
        for (record, outcomes) in done {
            let mut all = true;
            for (to, outcome) in outcomes {
                match outcome {
                    Ok(bytes) => {
                        progress.copied += u64::from(bytes > 0);
                        progress.copied_bytes += bytes;
                        continue;
                    }
                    Err(ErrorKind::Full) => _ = self.pass.full.insert(to),
                    Err(_) => {}
                }
                all = false;
            }
            progress.done += u64::from(all);
            progress.kept += u64::from(!all);
            if all {
                whole.push(record);
            }
        }
        whole
    }

    /// Goes on to the next device; whether that ended a pass.
    fn advance(&mut self, cluster: &Cluster) -> bool {
        self.after = None;
        let ended = self.rounds.advance(&cluster.data_devices_of(&self.scope));
        if ended {
            self.turn += 1;
            self.left = std::mem::take(&mut self.pass).left;
            if self.left == 0 {
                self.since_ms = None;
            }
        }
        ended
    }

    fn save(&self, cluster: &Cluster) {
        if let Some(device) = self.rounds.at(&cluster.data_devices_of(&self.scope)) {
            let after = self.after.map_or_else(|| "-".to_owned(), |id| id.to_string());
            self.cursors.save(Self::NAME, &format!("{} {after}", device.0));
        }
    }

    /// One page, or a part of one that has much to be done about.
    async fn go_on(&mut self, cluster: &Cluster, device: DeviceId) -> Result<Progress> {
        let stands = |page: &Page| page.device == device && page.rings == rings(cluster);
        let (mut page, mut progress) = match self.page.take().filter(stands) {
            Some(page) => (page, Progress::default()),
            None => self.look(cluster, device).await?,
        };
        let done = self.work(cluster, &mut page).await?;
        progress.add(&done);
        self.pass.left += progress.kept;
        if page.deeds.is_empty() {
            self.after = page.next;
            progress.idle = page.next.is_none() && self.advance(cluster);
            self.save(cluster);
        } else {
            progress.backlog = page.deeds.len() as u64;
            self.page = Some(page);
        }
        Ok(progress)
    }
}

/// The rings by which a page was looked at.
fn rings(cluster: &Cluster) -> Vec<RingHash> {
    let policies: BTreeMap<_, _> =
        cluster.data.iter().map(|(policy, ring)| (policy.0, ring.hash())).collect();
    policies.into_values().collect()
}

async fn copy_and_tell(
    cluster: &Cluster,
    record: &ExtentRecord,
    from: DeviceId,
    to: DeviceId,
) -> Result<u64, ErrorKind> {
    copy(cluster, record, from, to).await.map_err(|error| {
        tracing::debug!(extent = %record.extent.id, %from, %to, %error, "an extent was not copied");
        error.kind()
    })
}

#[async_trait]
impl Worker for ReplicateExtents {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn busy_pause(&self, usual: Duration) -> Duration {
        let Some(rate) = self.options.bytes_per_second_max else { return usual };
        usual.max(Duration::from_millis(self.step_bytes.saturating_mul(1000) / rate.max(1)))
    }

    async fn step(&mut self) -> Result<Progress> {
        let cluster = self.cluster.get();
        self.step_bytes = 0;
        let devices = cluster.data_devices_of(&self.scope);
        let Some(device) = self.rounds.at(&devices) else {
            return Ok(Progress { idle: true, ..Progress::default() });
        };
        let mut progress = match self.go_on(&cluster, device).await {
            Ok(progress) => progress,
            Err(error) => {
                // Whoever is out keeps its extents until it returns.
                tracing::debug!(%device, %error, "a device's extents are left for a later pass");
                self.pass.left += 1;
                let idle = self.advance(&cluster);
                Progress { kept: 1, idle, ..Progress::default() }
            }
        };
        let left = if progress.idle { self.left } else { self.pass.left };
        progress.backlog += left;
        let now_ms = self.clock.now_ms();
        if progress.backlog > 0 {
            self.since_ms.get_or_insert(now_ms);
        }
        progress.oldest_age_ms = self.since_ms.map_or(0, |since| now_ms.saturating_sub(since));
        if !progress.idle {
            progress.ahead = cluster.extents_on(&devices).await.saturating_sub(self.pass.seen);
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

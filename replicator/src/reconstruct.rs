//! Reconstruct: fragments that are lost are made of others.
//!
//! ```text
//! a page of a device's fragments ──presence──▶ the homes of their siblings
//!    one was deleted         gone here too, if nobody wants the extent (rule X4)
//!    one is missing at home  everybody else is asked; who has it brings it home (replicate-data)
//!    nobody has it           made of any d others, written home, compared
//!    fewer than d are left   left as they are, and told
//!    silence                 left
//! ```
//!
//! Whoever holds a fragment watches over the next m of its extent; one of those who see something lost
//! makes all that is, in turn. Two that do so at once make the same bytes under the same id. Extents that were written just now are left
//! to whoever writes them; so is what no entry names yet and too few fragments are there of: a write
//! that is on its way, or has died, which the sweep tells apart (rule X2).

mod build;
mod find;
mod look;
mod plan;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use martlet_protocol::{Clock, DeviceId, ErrorKind, ExtentId, Result};
use martlet_ring::RingHash;

use self::build::Built;
pub(crate) use self::build::Job;
use self::look::Look;
use crate::cluster::{Cluster, Rounds, Scope, SharedCluster, in_time};
use crate::coded::code_of;
use crate::cursors::{Cursors, MemoryCursors};
use crate::replicate::ReplicateOptions;
use crate::worker::{Progress, Worker};

/// Fragments that are looked at at a time.
const PAGE: usize = 500;
/// Extents that are worked on at once.
const AT_ONCE: usize = 2;
/// Those whom homes are taking over from are waited for when they are silent, but no longer than this
/// since something was first left undone: one that is drained may be dead.
const PATIENCE_MS: u64 = 15 * 60 * 1000;
/// A step ends after so many bytes read and written, or so many extents.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
const STEP_EXTENTS: usize = 32;

/// The worker.
pub struct Reconstruct {
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    scope: Scope,
    options: ReplicateOptions,
    cursors: Arc<dyn Cursors>,
    rounds: Rounds,
    after: Option<ExtentId>,
    page: Option<Page>,
    /// Counts passes: whose turn it is.
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

/// A page that was looked at, and what is still to be made.
struct Page {
    device: DeviceId,
    rings: Vec<RingHash>,
    jobs: VecDeque<Job>,
    /// Where the next begins; none at the end of the device.
    next: Option<ExtentId>,
}

impl Reconstruct {
    const NAME: &str = "reconstruct";

    /// A worker over the devices of coded policies that `scope` looks after.
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

    /// Those of the devices looked after that a ring of fragments names.
    fn devices(&self, cluster: &Cluster) -> BTreeSet<DeviceId> {
        let mut devices = cluster.data_devices_of(&self.scope);
        let coded = || cluster.data.values().filter(|ring| code_of(ring).is_some());
        devices.retain(|device| coded().any(|ring| ring.device(*device).is_some()));
        devices
    }

    /// What was born then or later is left to its writer.
    fn young_ms(&self) -> u64 {
        (self.clock.now_ms() + 1).saturating_sub(self.options.young_ms)
    }

    /// Looks at the next page of a device.
    async fn look(&mut self, cluster: &Cluster, device: DeviceId) -> Result<(Page, Progress)> {
        let records = in_time(cluster.node(device)?.list_extents(device, self.after, PAGE)).await?;
        let next = records.last().map(|record| record.extent.id);
        let next = next.filter(|_| records.len() >= PAGE);
        let count = records.len() as u64;
        self.pass.seen += count;
        let mut progress = Progress { items: count, ..Progress::default() };
        let left_ms = self.since_ms.map_or(0, |since| self.clock.now_ms().saturating_sub(since));
        let is_patient = left_ms < PATIENCE_MS;
        let (turn, young_ms) = (self.turn, self.young_ms());
        let look = Look { cluster, device, turn, young_ms, is_patient };
        let jobs = look.jobs(records, &mut progress).await?;
        Ok((Page { device, rings: rings(cluster), jobs, next }, progress))
    }

    /// Does as much of a page as fits into a step.
    async fn work(&mut self, cluster: &Cluster, page: &mut Page) -> Progress {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while bytes < STEP_BYTES && jobs.len() < STEP_EXTENTS {
            let Some(job) = page.jobs.pop_front() else { break };
            bytes += job.traffic_bytes();
            jobs.push(job);
        }
        let (full, young_ms) = (&self.pass.full, self.young_ms());
        let ways = jobs.into_iter().map(|job| async move {
            let whole = job.coded.whole;
            job.build(cluster, full, young_ms).await.inspect_err(|error| {
                tracing::debug!(extent = %whole, %error, "lost fragments are not made for now");
            })
        });
        let ways: Vec<_> = ways.collect();
        let outcomes: Vec<_> =
            futures::stream::iter(ways).buffer_unordered(AT_ONCE).collect().await;
        let mut progress = Progress::default();
        for outcome in outcomes {
            match outcome {
                Ok(Some(built)) => self.note(built, &mut progress),
                Ok(None) | Err(_) => progress.kept += 1,
            }
        }
        self.step_bytes = progress.copied_bytes + progress.read_bytes;
        progress
    }

    fn note(&mut self, built: Built, progress: &mut Progress) {
        progress.copied += built.made;
        progress.copied_bytes += built.made_bytes;
        progress.read_bytes += built.read_bytes;
        progress.done += u64::from(built.failed.is_empty());
        progress.kept += u64::from(!built.failed.is_empty());
        let full = built.failed.into_iter().filter(|(_, kind)| *kind == ErrorKind::Full);
        self.pass.full.extend(full.map(|(home, _)| home));
    }

    /// Goes on to the next device; whether that ended a pass.
    fn advance(&mut self, cluster: &Cluster) -> bool {
        self.after = None;
        let ended = self.rounds.advance(&self.devices(cluster));
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
        if let Some(device) = self.rounds.at(&self.devices(cluster)) {
            let after = self.after.map_or_else(|| "-".to_owned(), |id| id.to_string());
            self.cursors.save(Self::NAME, &format!("{} {after}", device.0));
        }
    }

    /// One page, or a part of one of which much is lost.
    async fn go_on(&mut self, cluster: &Cluster, device: DeviceId) -> Result<Progress> {
        let stands = |page: &Page| page.device == device && page.rings == rings(cluster);
        let (mut page, mut progress) = match self.page.take().filter(stands) {
            Some(page) => (page, Progress::default()),
            None => self.look(cluster, device).await?,
        };
        let done = self.work(cluster, &mut page).await;
        progress.add(&done);
        self.pass.left += progress.kept;
        if page.jobs.is_empty() {
            self.after = page.next;
            progress.idle = page.next.is_none() && self.advance(cluster);
            self.save(cluster);
        } else {
            progress.backlog = page.jobs.len() as u64;
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

#[async_trait]
impl Worker for Reconstruct {
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
        let devices = self.devices(&cluster);
        let Some(device) = self.rounds.at(&devices) else {
            return Ok(Progress { idle: true, ..Progress::default() });
        };
        let mut progress = match self.go_on(&cluster, device).await {
            Ok(progress) => progress,
            Err(error) => {
                tracing::debug!(%device, %error, "a device's fragments are left for a later pass");
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

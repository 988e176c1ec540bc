//! Sweep: deletes extents that no entry ever came to own (rule X3).
//!
//! A crash, a client that hung up or a failed node leaves extents behind whose entry was never
//! written. The sweep walks every extent of every device and asks the index whether anyone wants it.
//! It deletes one only when all of this holds:
//!
//! * its commit window is over: nobody can still write an entry that names it (rule X2);
//! * all primaries of its owner's register have answered, with votes and none of them moving, and know
//!   no object, upload, or part of an upload that has not ended, that names it; and every device of
//!   the index ring has said that it keeps no hint that does;
//! * it was found so twice, a grace time apart: a reader may have been sent to it just before the
//!   entry went away.
//!
//! An error anywhere means keep. Where it stands and whom it suspects, the sweep knows only while the
//! process lives: begun again, it looks at everything twice once more, which costs time and can't
//! delete too much.

mod buckets;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{BucketId, Clock, DeviceId, ExtentId, Result};

pub(crate) use self::buckets::{Known, list_buckets};
use crate::cluster::{Cluster, Rounds, Scope, SharedCluster, in_time};
use crate::replicate::judge::is_wanted;
use crate::wanted::Wanted;
use crate::worker::{Progress, Worker};

/// Extents that one step looks at.
const BATCH: usize = 256;
/// Extents under suspicion that are remembered; what is beyond waits for a later pass.
const SUSPECTS_MAX: usize = 100_000;

/// How the sweep goes about it.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions {
    /// Between two looks at an extent that nobody wants, in milliseconds.
    pub grace_ms: u64,
    /// Every writer of extents born before this is gone, in milliseconds since 1970: the start of
    /// the process, where one process is the whole cluster; zero where other proxies may write.
    pub writers_gone_before_ms: u64,
}

impl SweepOptions {
    /// Where other processes may be writing: nothing goes before its commit window is over.
    pub fn among_others(grace_ms: u64) -> Self {
        Self { grace_ms, writers_gone_before_ms: 0 }
    }

    /// Where this process is the whole cluster, since it started at `started_ms`.
    pub fn alone(grace_ms: u64, started_ms: u64) -> Self {
        Self { grace_ms, writers_gone_before_ms: started_ms }
    }
}

/// The worker.
pub struct Sweep {
    cluster: SharedCluster,
    clock: Arc<dyn Clock>,
    options: SweepOptions,
    scope: Scope,
    /// The device being walked, and the last extent that was looked at.
    rounds: Rounds,
    after: Option<ExtentId>,
    /// The shards of each bucket, as of the beginning of this pass.
    buckets: Option<Arc<HashMap<BucketId, Known>>>,
    /// Extents that nobody wanted when they were looked at.
    suspects: HashMap<(DeviceId, ExtentId), Suspect>,
    pass: u64,
}

/// When an extent was first found unwanted, and in which pass it last was.
struct Suspect {
    since_ms: u64,
    pass: u64,
}

impl Sweep {
    /// A worker over all devices that may hold extents.
    pub fn new(
        cluster: impl Into<SharedCluster>,
        clock: Arc<dyn Clock>,
        options: SweepOptions,
    ) -> Self {
        Self {
            cluster: cluster.into(),
            clock,
            options,
            scope: Scope::All,
            rounds: Rounds::default(),
            after: None,
            buckets: None,
            suspects: HashMap::new(),
            pass: 0,
        }
    }

    /// The same over those devices that `scope` looks after.
    #[must_use]
    pub fn looking_after(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Whether nobody can commit an extent any more.
    fn is_window_over(&self, birth_ms: u64, now_ms: u64) -> bool {
        let window = COMMIT_WINDOW_MS + self.options.grace_ms;
        birth_ms < self.options.writers_gone_before_ms || birth_ms.saturating_add(window) < now_ms
    }

    /// The buckets, read afresh at the beginning of a pass: whoever made a later one made its
    /// extents later still, and those are not looked at.
    async fn buckets(&mut self, cluster: &Cluster) -> Result<Arc<HashMap<BucketId, Known>>> {
        if let Some(buckets) = &self.buckets {
            return Ok(buckets.clone());
        }
        let buckets = Arc::new(list_buckets(cluster).await?);
        self.buckets = Some(buckets.clone());
        Ok(buckets)
    }

    /// Of a page of extents, those that nobody wants; and how many nobody could tell about.
    async fn unwanted(
        &mut self,
        cluster: &Cluster,
        page: &[ExtentRecord],
        now_ms: u64,
    ) -> Result<(Vec<ExtentRecord>, u64)> {
        let buckets = self.buckets(cluster).await?;
        let mut wanted = Wanted::new(cluster);
        let mut unwanted = Vec::new();
        let mut unknown = 0;
        for record in page.iter().filter(|record| self.is_window_over(record.birth_ms, now_ms)) {
            match is_wanted(&buckets, &mut wanted, record).await {
                Ok(true) => {}
                Ok(false) => unwanted.push(record.clone()),
                Err(error) => {
                    tracing::debug!(extent = %record.extent.id, %error, "an extent is kept: nobody can tell");
                    unknown += 1;
                }
            }
        }
        Ok((unwanted, unknown))
    }

    /// Of unwanted extents, those that were unwanted a grace time ago already; notes the others.
    fn convict(
        &mut self,
        device: DeviceId,
        unwanted: &[ExtentRecord],
        now_ms: u64,
    ) -> Vec<ExtentRecord> {
        let mut convicted = Vec::new();
        for record in unwanted {
            let id = (device, record.extent.id);
            if self.suspects.len() >= SUSPECTS_MAX && !self.suspects.contains_key(&id) {
                continue;
            }
            let pass = self.pass;
            let suspect = self.suspects.entry(id).or_insert(Suspect { since_ms: now_ms, pass });
            suspect.pass = pass;
            let is_new = suspect.since_ms == now_ms;
            if !is_new && suspect.since_ms.saturating_add(self.options.grace_ms) <= now_ms {
                convicted.push(record.clone());
            }
        }
        convicted
    }

    /// Goes on to the next device; whether that ended a pass.
    fn advance(&mut self, cluster: &Cluster) -> bool {
        self.after = None;
        let ended = self.rounds.advance(&cluster.data_devices_of(&self.scope));
        if ended {
            self.buckets = None;
            // Those that this pass did not meet are gone, or wanted after all.
            let pass = self.pass;
            self.suspects.retain(|_, suspect| suspect.pass == pass);
            self.pass += 1;
        }
        ended
    }

    async fn sweep(
        &mut self,
        cluster: &Cluster,
        device: DeviceId,
        page: &[ExtentRecord],
    ) -> Result<Progress> {
        let now_ms = self.clock.now_ms();
        if now_ms < self.options.writers_gone_before_ms {
            // The clock stepped back: what is born now looks as if its writer were gone.
            self.options.writers_gone_before_ms = 0;
        }
        let (unwanted, kept) = self.unwanted(cluster, page, now_ms).await?;
        let convicted = self.convict(device, &unwanted, now_ms);
        let ids: Vec<ExtentId> = convicted.iter().map(|record| record.extent.id).collect();
        if !ids.is_empty() {
            in_time(cluster.node(device)?.delete_extents(device, &ids)).await?;
            tracing::info!(%device, extents = ids.len(), "swept extents that nobody owns");
        }
        for id in &ids {
            self.suspects.remove(&(device, *id));
        }
        let oldest = self.suspects.values().map(|suspect| suspect.since_ms).min();
        Ok(Progress {
            items: page.len() as u64,
            done: ids.len() as u64,
            freed: ids.len() as u64,
            freed_bytes: convicted.iter().map(|record| u64::from(record.extent.length)).sum(),
            kept,
            backlog: self.suspects.len() as u64,
            oldest_age_ms: oldest.map_or(0, |since_ms| now_ms.saturating_sub(since_ms)),
            ..Progress::default()
        })
    }
}

#[async_trait]
impl Worker for Sweep {
    fn name(&self) -> &'static str {
        "sweep"
    }

    /// A pass asks the index about every extent, and finds nothing to delete that it has not found a
    /// grace time before: passes that follow one another faster are for nothing.
    fn idle_pause(&self, usual: Duration) -> Duration {
        usual.max(Duration::from_millis(self.options.grace_ms))
    }

    async fn step(&mut self) -> Result<Progress> {
        let cluster = self.cluster.get();
        let Some(device) = self.rounds.at(&cluster.data_devices_of(&self.scope)) else {
            return Ok(Progress { idle: true, ..Progress::default() });
        };
        let step = async {
            let node = cluster.node(device)?;
            let page = in_time(node.list_extents(device, self.after, BATCH)).await?;
            let progress = self.sweep(&cluster, device, &page).await?;
            Ok((page, progress))
        };
        let (page, mut progress) = match step.await {
            Ok(done) => done,
            Err(error) => {
                self.advance(&cluster);
                return Err(error);
            }
        };
        self.after = page.last().map(|record| record.extent.id);
        if page.len() < BATCH {
            progress.idle = self.advance(&cluster);
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;

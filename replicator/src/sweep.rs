//! Sweep: deletes extents that no entry ever came to own (rule X3).
//!
//! A crash, a client that hung up or a failed node leaves extents behind whose entry was never
//! written. The sweep walks every extent of every device and asks the index whether anyone wants it.
//! It deletes one only when all of this holds:
//!
//! * its commit window is over: nobody can still write an entry that names it (rule X2);
//! * every device of the index ring has answered, and none knows an object, an upload or a part of an
//!   upload that has not ended, of its owner, that names it;
//! * it was found so twice, a grace time apart: a reader may have been sent to it just before the
//!   entry went away.
//!
//! An error anywhere means keep. Where it stands and whom it suspects, the sweep knows only while the
//! process lives: begun again, it looks at everything twice once more, which costs time and can't
//! delete too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use martlet_protocol::backend::{ListRequest, ListStart};
use martlet_protocol::entry::Value;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INDEX_SHARDS_DEFAULT};
use martlet_protocol::{
    BucketId, Clock, DeviceId, ExtentId, RegisterKind, Result, Shard, key::shard_of,
};

use crate::cluster::Cluster;
use crate::wanted::{Claim, Wanted};
use crate::worker::{Progress, Worker};

/// Extents that one step looks at.
const BATCH: usize = 256;
/// Buckets of a listing asked for at a time.
const PAGE: usize = 1000;
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

/// The worker.
pub struct Sweep {
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    options: SweepOptions,
    devices: Vec<DeviceId>,
    /// The device being walked, and the last extent that was looked at.
    at: usize,
    after: Option<ExtentId>,
    /// The shards of each bucket, as of the beginning of this pass.
    buckets: Option<Arc<HashMap<BucketId, u16>>>,
    /// Extents that nobody wanted when they were looked at.
    suspects: HashMap<ExtentId, Suspect>,
    pass: u64,
}

/// When an extent was first found unwanted, and in which pass it last was.
struct Suspect {
    since_ms: u64,
    pass: u64,
}

impl Sweep {
    /// A worker over all devices that may hold extents.
    pub fn new(cluster: Cluster, clock: Arc<dyn Clock>, options: SweepOptions) -> Self {
        let devices = cluster.all_data_devices();
        Self {
            cluster,
            clock,
            options,
            devices,
            at: 0,
            after: None,
            buckets: None,
            suspects: HashMap::new(),
            pass: 0,
        }
    }

    /// Whether nobody can commit an extent any more.
    fn is_window_over(&self, birth_ms: u64, now_ms: u64) -> bool {
        let window = COMMIT_WINDOW_MS + self.options.grace_ms;
        birth_ms < self.options.writers_gone_before_ms || birth_ms.saturating_add(window) < now_ms
    }

    /// The buckets, read afresh at the beginning of a pass: whoever made a later one made its
    /// extents later still, and those are not looked at.
    async fn buckets(&mut self) -> Result<Arc<HashMap<BucketId, u16>>> {
        if let Some(buckets) = &self.buckets {
            return Ok(buckets.clone());
        }
        let mut buckets = HashMap::new();
        for device in self.cluster.index_devices() {
            list_buckets(&self.cluster, device, &mut buckets).await?;
        }
        let buckets = Arc::new(buckets);
        self.buckets = Some(buckets.clone());
        Ok(buckets)
    }

    /// Of a page of extents, those that nobody wants; and how many nobody could tell about.
    async fn unwanted(
        &mut self,
        page: &[ExtentRecord],
        now_ms: u64,
    ) -> Result<(Vec<ExtentRecord>, u64)> {
        let buckets = self.buckets().await?;
        let mut wanted = Wanted::new(&self.cluster);
        let mut unwanted = Vec::new();
        let mut unknown = 0;
        for record in page.iter().filter(|record| self.is_window_over(record.birth_ms, now_ms)) {
            let owner = &record.owner;
            let Some(shards) = buckets.get(&owner.bucket) else {
                unwanted.push(record.clone());
                continue;
            };
            let claim = Claim {
                bucket: owner.bucket,
                shard: shard_of(owner.key.as_bytes(), *shards),
                key: owner.key.clone(),
                upload: owner.upload,
            };
            match wanted.extents(&claim).await {
                Ok(extents) if extents.contains(&record.extent.id) => {}
                Ok(_) => unwanted.push(record.clone()),
                Err(error) => {
                    tracing::debug!(extent = %record.extent.id, %error, "an extent is kept: nobody can tell");
                    unknown += 1;
                }
            }
        }
        Ok((unwanted, unknown))
    }

    /// Of unwanted extents, those that were unwanted a grace time ago already; notes the others.
    fn convict(&mut self, unwanted: &[ExtentRecord], now_ms: u64) -> Vec<ExtentRecord> {
        let mut convicted = Vec::new();
        for record in unwanted {
            let id = record.extent.id;
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
    fn advance(&mut self) -> bool {
        self.after = None;
        self.at = (self.at + 1) % self.devices.len().max(1);
        if self.at == 0 {
            self.buckets = None;
            // Those that this pass did not meet are gone, or wanted after all.
            let pass = self.pass;
            self.suspects.retain(|_, suspect| suspect.pass == pass);
            self.pass += 1;
        }
        self.at == 0
    }

    async fn sweep(&mut self, device: DeviceId, page: &[ExtentRecord]) -> Result<Progress> {
        let now_ms = self.clock.now_ms();
        if now_ms < self.options.writers_gone_before_ms {
            // The clock stepped back: what is born now looks as if its writer were gone.
            self.options.writers_gone_before_ms = 0;
        }
        let (unwanted, kept) = self.unwanted(page, now_ms).await?;
        let convicted = self.convict(&unwanted, now_ms);
        let ids: Vec<ExtentId> = convicted.iter().map(|record| record.extent.id).collect();
        if !ids.is_empty() {
            self.cluster.node(device)?.delete_extents(device, &ids).await?;
            tracing::info!(%device, extents = ids.len(), "swept extents that nobody owns");
        }
        for id in &ids {
            self.suspects.remove(id);
        }
        let oldest = self.suspects.values().map(|suspect| suspect.since_ms).min();
        Ok(Progress {
            items: page.len() as u64,
            freed: ids.len() as u64,
            freed_bytes: convicted.iter().map(|record| u64::from(record.extent.length)).sum(),
            kept,
            backlog: self.suspects.len() as u64,
            oldest_age_ms: oldest.map_or(0, |since_ms| now_ms.saturating_sub(since_ms)),
            idle: false,
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
        let device = self.devices[self.at];
        let step = async {
            let node = self.cluster.node(device)?;
            let page = node.list_extents(device, self.after, BATCH).await?;
            let progress = self.sweep(device, &page).await?;
            Ok((page, progress))
        };
        let (page, mut progress) = match step.await {
            Ok(done) => done,
            Err(error) => {
                self.advance();
                return Err(error);
            }
        };
        self.after = page.last().map(|record| record.extent.id);
        if page.len() < BATCH {
            progress.idle = self.advance();
        }
        Ok(progress)
    }
}

async fn list_buckets(
    cluster: &Cluster,
    device: DeviceId,
    into: &mut HashMap<BucketId, u16>,
) -> Result<()> {
    let mut request = ListRequest {
        bucket: BucketId::ROOT,
        shards: (0..INDEX_SHARDS_DEFAULT).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: PAGE,
        fold: None,
    };
    loop {
        let page = cluster.node(device)?.list(device, &request).await?;
        let last = page.entries.last().map(|(name, _)| name.clone());
        for (_, entry) in page.entries {
            if let Value::Bucket(bucket) = entry.value {
                into.insert(bucket.id, bucket.index_shards);
            }
        }
        match last {
            Some(last) if page.truncated => request.start = ListStart::After(last),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

//! Rebuild of lost index partitions as a job.
//!
//! A slice of keys at a time is scanned, and handed to the object layer. Keys are independent, so a
//! run that ends early loses nothing but the time of its scan.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use martlet_admin_api::index::{RebuildLine, UnknownBucketLine};
use martlet_admin_api::jobs::{self, JobProgress, RebuildRequest};
use martlet_protocol::lost::LostKey;
use martlet_protocol::{BucketId, Clock, Partition};
use martlet_proxy::{ClientsWait, KeyOutcome, ObjectStore, Rebuild, RebuildConsent};
use martlet_replicator::{HOLD_SETTLES_MS, IndexLoss, LostKeys, ScanFigures, ScanScope};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::table::{JobOutcome, JobWork};

/// Keys under way at a time. Each reads one object's bytes.
const KEYS_AT_ONCE: usize = 4;
/// Buckets listed at a time.
const BUCKETS_PAGE: usize = 1000;
/// Findings that are reported individually.
const FINDINGS_MAX: usize = 1000;
/// Pause while clients wait, and while the hold settles; number of pauses before a key goes on.
const REST: Duration = Duration::from_millis(50);
const RESTS_MAX: u32 = 40;

/// Rebuild of lost index partitions.
pub(super) struct RebuildWork {
    store: ObjectStore,
    clock: Arc<dyn Clock>,
    request: RebuildRequest,
    clients_wait: Arc<ClientsWait>,
    line: Mutex<RebuildLine>,
    passes: Mutex<(u64, u64)>,
    cancelled: watch::Sender<bool>,
}

impl RebuildWork {
    pub(super) fn new(
        store: ObjectStore,
        clock: Arc<dyn Clock>,
        request: RebuildRequest,
        clients_wait: Arc<ClientsWait>,
    ) -> Self {
        let line = RebuildLine { applied: request.apply, ..RebuildLine::default() };
        Self {
            store,
            clock,
            request,
            clients_wait,
            line: Mutex::new(line),
            passes: Mutex::default(),
            cancelled: watch::Sender::new(false),
        }
    }

    async fn rebuild(&self) -> JobOutcome {
        let mut cancelled = self.cancelled.subscribe();
        tokio::select! {
            outcome = self.all_slices() => outcome,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                Err("the rebuild was cancelled: objects that are back stay".to_owned())
            }
        }
    }

    async fn all_slices(&self) -> JobOutcome {
        let scope = self.scope().await?;
        let names = self.bucket_names().await?;
        let topology = self.store.topology().clone();
        let RebuildRequest { apply, without_facts, uploads, .. } = self.request;
        let rebuild =
            Rebuild::new(self.store.clone(), RebuildConsent { without_facts, uploads }, apply);
        let mut lost = LostKeys::new(topology, self.clock.clone(), scope);
        loop {
            let mut observe = |figures: &ScanFigures| self.note_scan(figures);
            let slice = lost.next_slice(&mut observe).await.map_err(|error| error.to_string())?;
            let Some(keys) = slice else { break };
            stream::iter(keys)
                .for_each_concurrent(KEYS_AT_ONCE, |key| self.key(&rebuild, &names, key))
                .await;
        }
        match self.line.lock().failure.clone() {
            Some(failure) => Err(format!("some keys failed, run the rebuild again: {failure}")),
            None => Ok(()),
        }
    }

    /// Returns the scope. Entries are written only under a hold that is in force: collection could
    /// delete an extent after it was found.
    async fn scope(&self) -> Result<ScanScope, String> {
        let refused = |error: martlet_protocol::Error| error.to_string();
        let loss = IndexLoss::read(self.store.topology()).await.map_err(refused)?;
        let Some(held_ms) = loss.held_since_ms else {
            return Err(
                "collection is not held: run martlet admin index accept-loss, or index hold \
                        if no device has lost its votes"
                    .to_owned(),
            );
        };
        if loss.lost.is_empty() && self.request.partition.is_none() {
            return Err("no loss was accepted: name a partition of the index ring".to_owned());
        }
        while self.clock.now_ms() < held_ms.saturating_add(HOLD_SETTLES_MS) {
            sleep(REST).await;
        }
        let bucket = match &self.request.bucket {
            Some(name) => {
                let bucket = self.store.bucket(name).await.map_err(|error| error.to_string())?;
                Some(bucket.id)
            }
            None => None,
        };
        let partition = self.request.partition.map(Partition);
        Ok(ScanScope { bucket, partition, lost: loss.lost, born_before_ms: held_ms })
    }

    async fn bucket_names(&self) -> Result<HashMap<BucketId, String>, String> {
        let (mut names, mut after) = (HashMap::new(), None::<String>);
        loop {
            let listed = self.store.buckets().list("", after.as_deref(), BUCKETS_PAGE).await;
            let (page, has_more) = listed.map_err(|error| error.to_string())?;
            after = page.last().map(|last| last.name.clone());
            names.extend(page.into_iter().map(|it| (it.bucket.id, it.name)));
            if !has_more {
                return Ok(names);
            }
        }
    }

    fn note_scan(&self, figures: &ScanFigures) {
        let mut line = self.line.lock();
        (line.listed, line.unowned) = (figures.listed, figures.unowned);
        (line.uncertain, line.deleted) = (figures.uncertain, figures.deleted);
        let unknown = figures.unknown.iter().map(|(id, of)| UnknownBucketLine {
            id: id.to_string(),
            copies: of.copies,
            key: of.key.clone(),
        });
        if line.unknown_buckets.len() != figures.unknown.len() || figures.passes_left == 0 {
            line.unknown_buckets = unknown.collect();
        }
        *self.passes.lock() = (figures.passes, figures.passes_left);
    }

    async fn key(&self, rebuild: &Rebuild, names: &HashMap<BucketId, String>, key: LostKey) {
        for _ in 0..RESTS_MAX {
            if !(self.clients_wait)() {
                break;
            }
            sleep(REST).await;
        }
        let Some(bucket) = names.get(&key.bucket) else { return };
        match rebuild.key(bucket, &key).await {
            Ok(outcome) => self.note_key(bucket, &key.key, outcome),
            Err(error) => {
                let mut line = self.line.lock();
                line.keys += 1;
                line.failed += 1;
                line.failure = Some(format!("{bucket}/{}: {error}", key.key));
            }
        }
    }

    fn note_key(&self, bucket: &str, key: &str, outcome: KeyOutcome) {
        let mut line = self.line.lock();
        line.keys += 1;
        line.taken += u64::from(outcome.is_taken);
        line.objects += outcome.objects;
        line.bytes += outcome.bytes;
        line.older += outcome.older;
        let mut found = Vec::new();
        if outcome.is_taken {
            found.push(format!("{bucket}/{key}: has an entry, which stays"));
        }
        if outcome.objects > 0 {
            let verb = if self.request.apply { "is back" } else { "would come back" };
            let versions = match outcome.objects {
                1 => String::new(),
                count => format!(" with {count} versions"),
            };
            found.push(format!("{bucket}/{key}: {verb}{versions}, {} bytes", outcome.bytes));
        }
        if outcome.older > 0 {
            found.push(format!("{bucket}/{key}: {} older bodies stay away", outcome.older));
        }
        for refusal in outcome.refused {
            *line.refused.entry(refusal.name().to_owned()).or_default() += 1;
            found.push(format!("{bucket}/{key}: {refusal}"));
        }
        let room = FINDINGS_MAX.saturating_sub(line.findings.len());
        line.findings.extend(found.into_iter().take(room));
    }
}

impl JobWork for RebuildWork {
    fn kind(&self) -> &'static str {
        jobs::REBUILD
    }

    fn subject(&self) -> String {
        let RebuildRequest { bucket, partition, apply, without_facts, uploads } = &self.request;
        let mut words = vec![if *apply { "apply" } else { "dry run" }.to_owned()];
        words.extend(bucket.as_ref().map(|name| format!("bucket {name}")));
        words.extend(partition.map(|number| format!("partition {number}")));
        words.extend(without_facts.then(|| "without facts".to_owned()));
        words.extend(uploads.then(|| "uploads".to_owned()));
        words.join(", ")
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        let runtime = Handle::current();
        // Bytes are hashed where they are read, so a rebuild gets a blocking thread.
        let rebuilding = move || runtime.block_on(self.rebuild());
        let rebuilt = tokio::task::spawn_blocking(rebuilding);
        rebuilt.map(|ended| ended.unwrap_or_else(|error| Err(error.to_string()))).boxed()
    }

    fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn progress(&self) -> JobProgress {
        let line = self.line.lock();
        let (passes, left) = *self.passes.lock();
        let RebuildLine { listed, objects, keys, .. } = &*line;
        let verb = if line.applied { "are back" } else { "would come back" };
        JobProgress {
            done: *listed,
            total: None,
            unit: "copies".to_owned(),
            text: format!(
                "pass {} of at least {}: {listed} copies listed, {keys} keys without an entry, \
                 {objects} objects {verb}",
                passes + u64::from(left > 0),
                (passes + left).max(1)
            ),
        }
    }

    fn eta_s(&self) -> Option<u64> {
        None
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        serde_json::to_value(&*self.line.lock()).ok()
    }
}

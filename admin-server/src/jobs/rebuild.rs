//! Rebuild of lost index partitions as a job.
//!
//! A slice of keys at a time is scanned, and handed to the object layer. Keys are independent, so a
//! run that ends early loses nothing but the time of its scan.
//!
//! The hold is read before each slice, and before each entry unless it was read in the last
//! [`HOLD_KEPT`]. Another process may end it: this one writes nothing more then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt, stream};
use martlet_admin_api::index::{RebuildLine, UnknownBucketLine};
use martlet_admin_api::jobs::{self, JobProgress, RebuildRequest};
use martlet_protocol::lost::LostKey;
use martlet_protocol::{BootInstant, BucketId, Clock, Error, ErrorKind, Partition};
use martlet_proxy::{ClientsWait, HoldCheck, KeyOutcome, ObjectStore, Rebuild, RebuildConsent};
use martlet_replicator::{IndexLoss, LostKeys, ScanFigures, ScanScope};
use martlet_topology::Topology;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::rebuild_pace::RebuildPace;
use super::table::{JobOutcome, JobWork};
use crate::index::RebuildState;

/// Keys under way at a time. Each reads one object's bytes.
const KEYS_AT_ONCE: usize = 4;
/// Buckets listed at a time.
const BUCKETS_PAGE: usize = 1000;
/// Findings that are reported individually.
const FINDINGS_MAX: usize = 1000;
/// Time for which the hold counts as read. Collection of an extent takes longer than this: a delete
/// comes a grace time of minutes after the extent was found.
const HOLD_KEPT: Duration = Duration::from_secs(10);
/// Time for which the hold may be unknown before a slice: a run takes days, and nodes restart.
const HOLD_UNKNOWN_MAX: Duration = Duration::from_mins(10);
/// Pause between two attempts to read it.
const HOLD_PAUSE: Duration = Duration::from_secs(1);
/// Attempts at a key that fails although all devices answer.
const TRIES: u32 = 3;
/// Pause while clients wait; number of pauses before a key goes on.
const REST: Duration = Duration::from_millis(50);
const RESTS_MAX: u32 = 40;

/// Rebuild of lost index partitions.
pub(super) struct RebuildWork {
    store: ObjectStore,
    clock: Arc<dyn Clock>,
    request: RebuildRequest,
    clients_wait: Arc<ClientsWait>,
    state: Arc<RebuildState>,
    line: Mutex<RebuildLine>,
    pace: Mutex<RebuildPace>,
    cancelled: watch::Sender<bool>,
}

impl RebuildWork {
    pub(super) fn new(
        store: ObjectStore,
        clock: Arc<dyn Clock>,
        request: RebuildRequest,
        clients_wait: Arc<ClientsWait>,
        state: Arc<RebuildState>,
    ) -> Self {
        let scope = subject_of(&request);
        let line = RebuildLine { applied: request.apply, scope, ..RebuildLine::default() };
        Self {
            store,
            clock,
            request,
            clients_wait,
            state,
            line: Mutex::new(line),
            pace: Mutex::default(),
            cancelled: watch::Sender::new(false),
        }
    }

    async fn rebuild(&self) -> JobOutcome {
        let mut cancelled = self.cancelled.subscribe();
        let _running = self.state.begin();
        let outcome = tokio::select! {
            outcome = self.all_slices() => outcome,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                Err("the rebuild was cancelled: objects that are back stay".to_owned())
            }
        };
        self.state.end_with(self.line.lock().clone());
        outcome
    }

    async fn all_slices(&self) -> JobOutcome {
        let topology = self.store.topology().clone();
        let loss = IndexLoss::read(&topology).await.map_err(|error| error.to_string())?;
        let scope = self.scope(loss).await?;
        let hold = Arc::new(HoldWatch::new(topology.clone(), scope.born_before_ms));
        let names = self.bucket_names().await?;
        let RebuildRequest { apply, without_facts, uploads, latest, over_older, .. } = self.request;
        let consent = RebuildConsent { without_facts, uploads, latest, over_older };
        let (store, since_ms) = (self.store.clone(), scope.born_before_ms);
        let rebuild = if apply {
            Rebuild::applied(store, consent, since_ms, hold.clone().into_check())
        } else {
            Rebuild::dry(store, consent, since_ms)
        };
        let mut lost = LostKeys::new(topology, self.clock.clone(), scope);
        loop {
            patiently(async || hold.read().await).await.map_err(|error| error.to_string())?;
            self.pace.lock().begin_listing(StdInstant::now());
            let mut observe = |figures: &ScanFigures| self.note_scan(figures);
            let slice = lost.next_slice(&mut observe).await.map_err(|error| error.to_string())?;
            let Some(keys) = slice else { break };
            self.pace.lock().begin_keys(keys.len(), StdInstant::now());
            let of_slice =
                SliceRebuild { work: self, rebuild: &rebuild, hold: &hold, names: &names };
            stream::iter(keys.into_iter().map(Ok))
                .try_for_each_concurrent(KEYS_AT_ONCE, |key| of_slice.key(key))
                .await?;
        }
        match self.line.lock().failure.clone() {
            Some(failure) => Err(format!("some keys failed, run the rebuild again: {failure}")),
            None => Ok(()),
        }
    }

    /// Returns the scope. Entries are written only under a hold that is in force: collection could
    /// delete an extent after it was found.
    async fn scope(&self, loss: IndexLoss) -> Result<ScanScope, String> {
        let Some(held_ms) = loss.held_since_ms else {
            return Err(
                "collection is not held: run martlet admin index accept-loss, or index hold \
                        if no device has lost its votes"
                    .to_owned(),
            );
        };
        if loss.partitions.is_empty() && self.request.partition.is_none() {
            return Err("no loss was accepted: name a partition of the index ring".to_owned());
        }
        let settled = self.state.settles_at(held_ms);
        if self.request.apply {
            sleep_until(settled).await;
        }
        let bucket = match &self.request.bucket {
            Some(name) => {
                let bucket = self.store.bucket(name).await.map_err(|error| error.to_string())?;
                Some(bucket.id)
            }
            None => None,
        };
        let partition = self.request.partition.map(Partition);
        Ok(ScanScope { bucket, partition, lost: loss.partitions, born_before_ms: held_ms })
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
        self.pace.lock().note_scan(figures);
    }

    fn note_failure(&self, bucket: &str, key: &str, reason: &str) {
        self.pace.lock().note_key();
        let mut line = self.line.lock();
        line.keys += 1;
        line.failed += 1;
        line.failure = Some(format!("{bucket}/{key}: {reason}"));
    }

    fn note_key(&self, bucket: &str, key: &str, outcome: KeyOutcome) {
        self.pace.lock().note_key();
        let mut line = self.line.lock();
        line.keys += 1;
        line.taken += u64::from(outcome.is_taken);
        line.objects += outcome.objects;
        line.bytes += outcome.bytes;
        line.older += outcome.older;
        line.newer += outcome.newer;
        let mut found = Vec::new();
        if outcome.newer > 0 {
            let newer = outcome.newer;
            found.push(format!(
                "{bucket}/{key}: has an entry that is older than {newer} of its bodies: --over-older \
                 takes them instead"
            ));
        } else if outcome.is_taken {
            found.push(format!(
                "{bucket}/{key}: has an entry, which stays; its other extents stay away"
            ));
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
        for refused in outcome.refused {
            let (reason, bytes, born_ms) = (refused.reason, refused.bytes, refused.born_ms);
            *line.refused.entry(reason.name().to_owned()).or_default() += 1;
            found.push(format!(
                "{bucket}/{key}: {bytes} bytes of {born_ms} (ms since 1970) stay away, {reason}"
            ));
        }
        let room = FINDINGS_MAX.saturating_sub(line.findings.len());
        line.findings.extend(found.into_iter().take(room));
    }
}

fn subject_of(request: &RebuildRequest) -> String {
    let RebuildRequest { bucket, partition, .. } = request;
    let RebuildRequest { apply, without_facts, uploads, latest, over_older, .. } = request;
    let mut words = vec![if *apply { "apply" } else { "dry run" }.to_owned()];
    words.extend(bucket.as_ref().map(|name| format!("bucket {name}")));
    words.extend(partition.map(|number| format!("partition {number}")));
    words.extend(without_facts.then(|| "without facts".to_owned()));
    words.extend(uploads.then(|| "uploads".to_owned()));
    words.extend(latest.then(|| "latest".to_owned()));
    words.extend(over_older.then(|| "over older".to_owned()));
    words.join(", ")
}

impl JobWork for RebuildWork {
    fn kind(&self) -> &'static str {
        jobs::REBUILD
    }

    fn subject(&self) -> String {
        subject_of(&self.request)
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
        let RebuildLine { objects, keys, .. } = &*line;
        let verb = if line.applied { "are back" } else { "would come back" };
        let rest = format!("{keys} keys without an entry, {objects} objects {verb}");
        self.pace.lock().progress(&rest)
    }

    fn eta_s(&self) -> Option<u64> {
        self.pace.lock().left(StdInstant::now()).map(|left| left.as_secs())
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        serde_json::to_value(&*self.line.lock()).ok()
    }
}

/// Rebuild of the keys of a slice.
struct SliceRebuild<'a> {
    work: &'a RebuildWork,
    rebuild: &'a Rebuild,
    hold: &'a HoldWatch,
    names: &'a HashMap<BucketId, String>,
}

impl SliceRebuild<'_> {
    /// Rebuilds a key, and notes the outcome. An error ends the job: the hold has ended, or a device is
    /// out for too long.
    async fn key(&self, key: LostKey) -> Result<(), String> {
        let work = self.work;
        for _ in 0..RESTS_MAX {
            if !(work.clients_wait)() {
                break;
            }
            sleep(REST).await;
        }
        let Some(bucket) = self.names.get(&key.bucket) else {
            let reason = "its bucket was not listed when the rebuild began";
            work.note_failure(&key.bucket.to_string(), &key.key, reason);
            return Ok(());
        };
        match self.attempt(bucket, &key).await? {
            Ok(outcome) => {
                if outcome.is_taken {
                    work.line.lock().taken_extents += key.extents.len() as u64;
                }
                work.note_key(bucket, &key.key, outcome);
            }
            // The bucket of that name is gone, or another one: it was renamed, deleted or made anew.
            Err(error) => work.note_failure(bucket, &key.key, &error.to_string()),
        }
        Ok(())
    }

    /// Tries a key again while too few nodes answer: a restart of a node must not fail all keys of its
    /// time.
    async fn attempt(
        &self,
        bucket: &str,
        key: &LostKey,
    ) -> Result<Result<KeyOutcome, martlet_proxy::Error>, String> {
        let mut tries = 0;
        loop {
            patiently(async || self.rebuild.check_ready().await.map_err(in_backend))
                .await
                .map_err(|error| format!("a device of the index does not answer: {error}"))?;
            let outcome = self.rebuild.key(bucket, key).await;
            tries += 1;
            let Err(martlet_proxy::Error::Backend(error)) = &outcome else { return Ok(outcome) };
            match error.kind() {
                ErrorKind::Conflict => {
                    // The hold has ended, or the key has a conflict of its own.
                    self.hold.check().await.map_err(|error| error.to_string())?;
                    return Ok(outcome);
                }
                ErrorKind::Unavailable if tries < TRIES => sleep(HOLD_PAUSE).await,
                _ => return Ok(outcome),
            }
        }
    }
}

fn in_backend(error: martlet_proxy::Error) -> Error {
    match error {
        martlet_proxy::Error::Backend(error) => error,
        other => Error::unavailable(other.to_string()),
    }
}

/// Hold under which a rebuild began.
struct HoldWatch {
    topology: Topology,
    /// Start of the hold. A later start is that of another hold.
    since_ms: u64,
    /// Time before the last read that found the hold. Sleep of the host counts: the hold may end in it.
    read_at: Mutex<Option<BootInstant>>,
}

impl HoldWatch {
    fn new(topology: Topology, since_ms: u64) -> Self {
        Self { topology, since_ms, read_at: Mutex::default() }
    }

    fn into_check(self: Arc<Self>) -> Arc<HoldCheck> {
        Arc::new(move || {
            let hold = self.clone();
            async move { hold.check().await }.boxed()
        })
    }

    /// Reads the hold, unless it was read in the last [`HOLD_KEPT`].
    async fn check(&self) -> Result<(), Error> {
        let read_at = *self.read_at.lock();
        if read_at.is_some_and(|at| at.elapsed() < HOLD_KEPT) {
            return Ok(());
        }
        self.read().await
    }

    /// Reads the hold. Its end is [`ErrorKind::Conflict`].
    async fn read(&self) -> Result<(), Error> {
        let asked = BootInstant::now();
        let loss = IndexLoss::read(&self.topology).await?;
        if loss.held_since_ms != Some(self.since_ms) {
            *self.read_at.lock() = None;
            return Err(Error::conflict(
                "the hold on collection ended or began anew: hold collection, and start the rebuild \
                 again",
            ));
        }
        *self.read_at.lock() = Some(asked);
        Ok(())
    }
}

/// Reads the hold again while too few devices answer.
async fn patiently(read: impl AsyncFn() -> Result<(), Error>) -> Result<(), Error> {
    let until = Instant::now() + HOLD_UNKNOWN_MAX;
    loop {
        let held = read().await;
        let is_unknown = held.as_ref().is_err_and(|error| error.kind() != ErrorKind::Conflict);
        if !is_unknown || Instant::now() >= until {
            return held;
        }
        sleep(HOLD_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unknown_hold_is_read_again_for_a_while_and_an_end_counts_at_once() {
        let (began, reads) = (Instant::now(), AtomicUsize::new(0));
        let restarting = async || match reads.fetch_add(1, Ordering::Relaxed) {
            0..9 => Err(Error::unavailable("a node restarts")),
            _ => Ok(()),
        };
        patiently(restarting).await.unwrap();
        assert_eq!(began.elapsed(), HOLD_PAUSE * 9);
        let ended = patiently(async || Err(Error::conflict("it ended"))).await;
        assert_eq!(
            (ended.unwrap_err().kind(), began.elapsed()),
            (ErrorKind::Conflict, HOLD_PAUSE * 9)
        );
        let silent = patiently(async || Err(Error::unavailable("nothing answers"))).await;
        assert_eq!(silent.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(began.elapsed(), HOLD_UNKNOWN_MAX + HOLD_PAUSE * 9);
    }
}

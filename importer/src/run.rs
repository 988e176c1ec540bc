//! A run: ranges are listed and merged, objects are copied beside each other, progress is saved.
//!
//! ```text
//! ranges ─▶ merged listings ─▶ decisions ─▶ queue of 1,000 ─▶ copies ─▶ counters, report, state
//! ```
//!
//! Bounds: [`LISTERS`] ranges are listed at once, with three pages of each bucket; the queue has
//! [`QUEUE`] objects; `concurrency` objects or parts are in transfer, with about 1 MiB each.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::client::S3Client;
use crate::copy::{Copier, CopyJob, CopyOutcome};
use crate::decide::{Decision, Rules};
use crate::deep_compare::Stores;
use crate::error::{Error, ErrorKind, Result};
use crate::listing::{Listed, Listing, Pair, PairedListing};
use crate::plan::{ImportPlan, Passes};
use crate::progress::Counters;
use crate::report::{Fate, Report, ReportLine};
use crate::shards::divide;
use crate::state::{ImportState, OpenRange};
use crate::summary::{RunFacts, Summary};
use crate::verify::Verifier;

/// Ranges that are listed at once.
const LISTERS: usize = 8;
/// Ranges that are counted ahead at once.
const COUNTERS: usize = 4;
/// Objects that wait for their copy.
const QUEUE: usize = 1000;
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// Failures in a row after which a run ends.
const FAILURES_IN_A_ROW_MAX: u64 = 1000;
/// Time for aborting uploads when a run is stopped.
const FAREWELL: Duration = Duration::from_secs(10);

/// An import that is ready to run.
pub struct Import {
    plan: Arc<ImportPlan>,
    stores: Stores,
    counters: Arc<Counters>,
    report: Arc<Report>,
}

/// Object that waits for its copy.
struct Work {
    range: usize,
    number: u64,
    job: CopyJob,
}

/// Finished copy.
struct Finished {
    work: Work,
    outcome: CopyOutcome,
}

impl Import {
    /// Reads the credentials and creates the report. Blocks.
    ///
    /// # Errors
    /// An endpoint, a certificate, credentials or the report can't be used.
    pub fn prepare(plan: ImportPlan) -> Result<Self> {
        let source = Arc::new(S3Client::new("source", &plan.source, plan.attempts)?);
        let target = Arc::new(S3Client::new("target", &plan.target, plan.attempts)?);
        let stores = Stores { source, target, has_opaque_etags: plan.has_opaque_etags };
        let report = Arc::new(Report::create(plan.report_file.as_deref())?);
        Ok(Self { plan: Arc::new(plan), stores, counters: Arc::default(), report })
    }

    /// Returns the counters, for a display beside the run.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Runs all passes, until their end or until `stop`.
    ///
    /// # Errors
    /// A bucket can't be listed, the state file can't be used, or all requests are refused. Objects
    /// that can't be copied are no error: the summary counts them.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<Summary> {
        let begun = Instant::now();
        let mut stop = pin!(stop);
        self.prepare_target().await?;
        let mut is_interrupted = false;
        if self.plan.passes != Passes::Verify {
            is_interrupted = self.copy_pass(&mut stop).await?;
        }
        if self.plan.verifies() && !is_interrupted {
            self.counters.is_verifying.store(true, Ordering::Relaxed);
            is_interrupted = tokio::select! {
                outcome = self.verify_pass() => outcome.map(|()| false)?,
                () = &mut stop => true,
            };
        }
        self.report.flush()?;
        let facts = RunFacts {
            passes: self.plan.passes,
            is_interrupted,
            throttled: [self.stores.source.throttled(), self.stores.target.throttled()],
            seconds: begun.elapsed().as_secs_f64(),
        };
        Ok(Summary::new(&self.counters, facts))
    }

    /// Creates the target's bucket if it is missing and the plan permits that.
    async fn prepare_target(&self) -> Result<()> {
        let target = &self.stores.target;
        match target.has_bucket().await {
            Ok(true) => Ok(()),
            Ok(false) if self.plan.creates_bucket && self.plan.copies() => {
                target.create_bucket().await
            }
            Ok(false) => Err(Error::fatal(format!(
                "the target has no bucket {}: create it, or add --create-bucket",
                self.plan.target.bucket
            ))),
            // A key may write to a bucket that it may not look up.
            Err(error) if error.kind() == ErrorKind::Refused => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Copies all objects. Returns true if `stop` ended the pass.
    async fn copy_pass(&self, stop: &mut (impl Future<Output = ()> + Unpin)) -> Result<bool> {
        let state = if self.plan.copies() { Some(self.open_state().await?) } else { None };
        let ranges = match &state {
            Some(state) => state.open_ranges(),
            None => self.fresh_ranges().await?,
        };
        let counting = self.count_ahead(CountPurpose::Copy, &ranges);
        let outcome = self.copy_ranges(ranges, state.as_ref(), stop).await;
        drop(counting);
        let Some(state) = state else { return outcome };
        self.report.flush()?;
        let is_interrupted = match outcome {
            Ok(is_interrupted) => is_interrupted,
            Err(error) => {
                state.save()?;
                return Err(error);
            }
        };
        if is_interrupted {
            // The next run aborts the uploads that are left.
            let _ = timeout(FAREWELL, self.abort_uploads(&state)).await;
        }
        state.save()?;
        if !is_interrupted && self.counters.failed.amount().objects == 0 {
            state.remove()?;
        }
        Ok(is_interrupted)
    }

    async fn fresh_ranges(&self) -> Result<Vec<OpenRange>> {
        let ranges = divide(&self.stores.source, &self.plan.prefix).await?;
        let numbered = ranges.into_iter().enumerate();
        Ok(numbered.map(|(number, keys)| OpenRange { number, keys }).collect())
    }

    /// Opens the state, aborts the uploads of an earlier run, and divides the keys of a new import.
    async fn open_state(&self) -> Result<Arc<ImportState>> {
        let state = ImportState::open(&self.plan.state_file, &self.plan.identity())?;
        self.abort_uploads(&state).await?;
        if state.is_new() {
            self.counters.is_whole_pass.store(true, Ordering::Relaxed);
            state.divide(divide(&self.stores.source, &self.plan.prefix).await?)?;
        }
        Ok(Arc::new(state))
    }

    async fn abort_uploads(&self, state: &ImportState) -> Result<()> {
        for upload in state.uploads() {
            self.stores.target.abort_upload(&upload.key, &upload.id).await?;
            state.end_upload(&upload.id);
        }
        Ok(())
    }

    async fn copy_ranges(
        &self,
        ranges: Vec<OpenRange>,
        state: Option<&Arc<ImportState>>,
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<bool> {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        let mut listers = self.spawn_listers(ranges, state, &sender);
        // The queue ends with the last lister.
        drop(sender);
        let copier = state.map(|state| self.copier(state.clone()));
        let mut copies: JoinSet<Finished> = JoinSet::new();
        let mut ticks = interval(SAVE_EVERY);
        let mut failures_in_a_row = 0;
        let mut is_listed = false;
        while !is_listed || !copies.is_empty() || !listers.is_empty() {
            tokio::select! {
                () = &mut *stop => return Ok(true),
                Some(listed) = listers.join_next() => listed.expect("listers do not panic")?,
                Some(finished) = copies.join_next() => {
                    let finished = finished.expect("copies do not panic");
                    let is_done = self.settle(&finished, state)?;
                    failures_in_a_row = if is_done { 0 } else { failures_in_a_row + 1 };
                    if failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                        return Err(too_many_failures(finished.outcome));
                    }
                }
                work = queue.recv(), if copies.len() < self.plan.concurrency && !is_listed => {
                    match (work, &copier) {
                        (Some(work), Some(copier)) => {
                            copies.spawn(copied(copier.clone(), work));
                        }
                        _ => is_listed = true,
                    }
                }
                _ = ticks.tick() => {
                    state.map_or(Ok(()), |state| state.save())?;
                    self.report.flush()?;
                }
            }
        }
        Ok(false)
    }

    fn copier(&self, state: Arc<ImportState>) -> Arc<Copier> {
        let plan = &self.plan;
        Arc::new(Copier {
            stores: self.stores.clone(),
            state,
            counters: self.counters.clone(),
            streams: Semaphore::new(plan.concurrency),
            concurrency: plan.concurrency,
            part_bytes: plan.part_bytes,
            attempts: plan.attempts,
            with_tags: plan.with_tags,
        })
    }

    fn spawn_listers(
        &self,
        ranges: Vec<OpenRange>,
        state: Option<&Arc<ImportState>>,
        queue: &mpsc::Sender<Work>,
    ) -> JoinSet<Result<()>> {
        let permits = Arc::new(Semaphore::new(LISTERS));
        let mut listers = JoinSet::new();
        for range in ranges {
            let lister = Lister {
                plan: self.plan.clone(),
                stores: self.stores.clone(),
                counters: self.counters.clone(),
                report: self.report.clone(),
                state: state.cloned(),
                queue: queue.clone(),
            };
            let permits = permits.clone();
            listers.spawn(async move {
                let _permit = permits.acquire().await.expect("the semaphore is never closed");
                lister.list(range).await
            });
        }
        listers
    }

    /// Takes note of a finished copy. Returns true unless the copy failed.
    fn settle(&self, finished: &Finished, state: Option<&Arc<ImportState>>) -> Result<bool> {
        let Finished { work, outcome } = finished;
        let object = &work.job.object;
        let is_done = !matches!(outcome, CopyOutcome::Failed(_));
        if let Some(state) = state {
            state.finish(work.range, work.number, is_done);
        }
        let counters = &self.counters;
        counters.done.add(object.size);
        let report = |fate, reason: &str| {
            self.report.add(&ReportLine { key: &object.key, fate, bytes: object.size, reason })
        };
        match outcome {
            CopyOutcome::Copied(facts) => {
                counters.copied.add(facts.bytes);
                let add = |counter: &std::sync::atomic::AtomicU64, is_so: bool| {
                    counter.fetch_add(u64::from(is_so), Ordering::Relaxed);
                };
                add(&counters.other_etags, !facts.keeps_etag);
                add(&counters.unclaimed, !facts.is_claimed);
                add(&counters.other_classes, facts.has_other_class);
            }
            CopyOutcome::Present => counters.present.add(object.size),
            CopyOutcome::Kept => {
                counters.kept.add(object.size);
                report(Fate::Kept, "the target has another object, written during the import")?;
            }
            CopyOutcome::Vanished => {
                counters.vanished.add(object.size);
                report(Fate::Vanished, "")?;
            }
            CopyOutcome::Failed(error) => {
                counters.failed.add(object.size);
                report(Fate::Failed, &error.to_string())?;
                if error.kind() == ErrorKind::Fatal {
                    return Err(error.clone());
                }
            }
        }
        Ok(is_done)
    }

    async fn verify_pass(&self) -> Result<()> {
        let verifier = Verifier {
            stores: self.stores.clone(),
            prefix: self.plan.prefix.clone(),
            filter: self.plan.filter.clone(),
            counters: self.counters.clone(),
            report: self.report.clone(),
            ranges: LISTERS,
            keys: self.plan.concurrency.div_ceil(LISTERS),
        };
        let ranges = self.fresh_ranges().await?;
        // A copy of all objects has counted them.
        let is_known = self.counters.to_compare().is_some();
        let _counting =
            if is_known { None } else { self.count_ahead(CountPurpose::Compare, &ranges) };
        verifier.run(ranges.into_iter().map(|range| range.keys).collect()).await
    }

    /// Counts objects beside the run, unless the plan forbids that.
    fn count_ahead(&self, purpose: CountPurpose, ranges: &[OpenRange]) -> Option<AbortOnDrop> {
        let count = ObjectCount {
            plan: self.plan.clone(),
            stores: self.stores.clone(),
            counters: self.counters.clone(),
            purpose,
        };
        let ranges = ranges.to_vec();
        self.plan.counts_ahead.then(|| AbortOnDrop(tokio::spawn(count.run(ranges))))
    }
}

async fn copied(copier: Arc<Copier>, work: Work) -> Finished {
    let outcome = copier.copy(&work.job).await;
    Finished { work, outcome }
}

fn too_many_failures(last: CopyOutcome) -> Error {
    let reason = match last {
        CopyOutcome::Failed(error) => error.to_string(),
        other => format!("{other:?}"),
    };
    Error::fatal(format!("{FAILURES_IN_A_ROW_MAX} objects in a row failed, the last one: {reason}"))
}

/// Lister of one range.
struct Lister {
    plan: Arc<ImportPlan>,
    stores: Stores,
    counters: Arc<Counters>,
    report: Arc<Report>,
    /// State of a copy; `None` for a dry run.
    state: Option<Arc<ImportState>>,
    queue: mpsc::Sender<Work>,
}

impl Lister {
    /// Merges both listings of a range, and queues the objects to copy.
    async fn list(&self, range: OpenRange) -> Result<()> {
        let open = |client| Listing::open(client, &self.plan.prefix, range.keys.clone());
        let mut pairs = PairedListing {
            source: open(self.stores.source.clone()),
            target: open(self.stores.target.clone()),
        };
        while let Some(pair) = pairs.next().await? {
            let (source, target) = match pair {
                Pair::Target(_) => continue,
                Pair::Source(source) => (source, None),
                Pair::Both { source, target } => (source, Some(target)),
            };
            self.handle(range.number, source, target.as_ref()).await?;
        }
        if let Some(state) = &self.state {
            state.listed(range.number);
        }
        Ok(())
    }

    async fn handle(&self, range: usize, source: Listed, target: Option<&Listed>) -> Result<()> {
        let pass = |key| self.state.iter().for_each(|state| state.pass(range, key));
        if !self.plan.filter.selects(&source.key) {
            pass(&source.key);
            return Ok(());
        }
        match (self.rules().decide(&source, target), &self.state) {
            (Decision::Copy(condition), Some(state)) => {
                let number = state.issue(range, &source.key);
                let job = CopyJob { object: source, condition };
                // The queue closes only when the run ends.
                let _ = self.queue.send(Work { range, number, job }).await;
                return Ok(());
            }
            (Decision::Copy(_), None) => self.counters.copied.add(source.size),
            (Decision::Present, _) => self.counters.present.add(source.size),
            (Decision::Keep, _) => {
                self.counters.kept.add(source.size);
                self.report.add(&ReportLine {
                    key: &source.key,
                    fate: Fate::Kept,
                    bytes: source.size,
                    reason: "the target has another object",
                })?;
            }
        }
        self.counters.done.add(source.size);
        pass(&source.key);
        Ok(())
    }

    fn rules(&self) -> Rules {
        Rules {
            overwrite: self.plan.overwrite,
            has_opaque_etags: self.plan.has_opaque_etags,
            skew_ms: self.stores.source.skew_ms() - self.stores.target.skew_ms(),
        }
    }
}

/// Pass that a count is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountPurpose {
    Copy,
    Compare,
}

/// Count of objects ahead of a pass. A count that fails leaves the pass without an ETA.
struct ObjectCount {
    plan: Arc<ImportPlan>,
    stores: Stores,
    counters: Arc<Counters>,
    purpose: CountPurpose,
}

impl ObjectCount {
    async fn run(self, ranges: Vec<OpenRange>) {
        let Self { plan, stores, counters, purpose } = &self;
        let (total, is_counted) = match purpose {
            CountPurpose::Copy => (&counters.total, &counters.is_counted),
            CountPurpose::Compare => (&counters.to_compare, &counters.is_counted_to_compare),
        };
        let counted = stream::iter(ranges)
            .map(|range| async move {
                let mut listing = Listing::open(stores.source.clone(), &plan.prefix, range.keys);
                while let Some(object) = listing.next().await? {
                    if plan.filter.selects(&object.key) {
                        total.add(object.size);
                    }
                }
                Ok::<_, Error>(())
            })
            .buffer_unordered(COUNTERS)
            .all(|outcome| async move { outcome.is_ok() })
            .await;
        is_counted.store(counted, Ordering::Relaxed);
    }
}

/// Task that ends with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

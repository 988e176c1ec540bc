//! Limits, progress and end of a rewrap.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use martlet_protocol::ErrorKind;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::error::{Error, Result};
use crate::rewrite::ClientsWait;

/// Versions on one page, small enough to be done within seconds.
const PAGE: usize = 200;
/// Wait before the second attempt at a version; twice as long before the third.
const REST: Duration = Duration::from_millis(300);
/// Pause while clients wait; number of pauses before a page is read although they do.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 40;
/// Time for which too few devices may answer to a read: nodes restart during a long run.
const SILENCE_MAX: Duration = Duration::from_mins(2);
/// Pause between two attempts to read.
const SILENCE_PAUSE: Duration = Duration::from_secs(1);
/// Number of consecutive versions without an answer after which a run gives up.
const FAILURES_IN_A_ROW_MAX: u32 = 16;

/// Limits of a rewrap.
#[derive(Clone, Default)]
pub struct RewrapOptions {
    /// Maximum number of versions examined in a second; none for no limit.
    pub versions_per_s: Option<u32>,
    /// Called before each page. While it returns true, the page is delayed, by at most two seconds.
    pub clients_wait: Option<Arc<ClientsWait>>,
}

impl fmt::Debug for RewrapOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RewrapOptions")
            .field("versions_per_s", &self.versions_per_s)
            .field("gives_way", &self.clients_wait.is_some())
            .finish()
    }
}

/// Progress of a rewrap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewrapProgress {
    /// Number of versions at the last count of the bucket, an estimate. None before a count.
    pub expected: Option<u64>,
    /// Number of the current pass, from 1. 0 before the first one.
    pub pass: u32,
    /// Versions and delete markers examined in this pass.
    pub seen: u64,
    /// Versions rewrapped in all passes.
    pub rewrapped: u64,
    /// Versions that could not be rewrapped in this pass.
    pub failed: u64,
    /// Key and error of the last failure.
    pub failure: Option<String>,
    /// Open uploads whose key another master key wraps, at the last count of them.
    pub uploads: u64,
    /// Time since the begin of this pass.
    pub running_for: Duration,
}

/// A rewrap of one bucket. Runs once; its progress may be read concurrently.
#[derive(Debug)]
pub struct Rewrap {
    bucket: String,
    options: RewrapOptions,
    page: usize,
    progress: Mutex<RewrapProgress>,
    /// Begin of the current pass, and its end.
    span: Mutex<(Option<Instant>, Option<Instant>)>,
    failures_in_a_row: AtomicU32,
    stopped: watch::Sender<bool>,
}

impl Rewrap {
    /// A rewrap of a bucket, not started yet.
    pub fn new(bucket: impl Into<String>, options: RewrapOptions) -> Self {
        Self {
            bucket: bucket.into(),
            options,
            page: PAGE,
            progress: Mutex::default(),
            span: Mutex::default(),
            failures_in_a_row: AtomicU32::new(0),
            stopped: watch::Sender::new(false),
        }
    }

    /// This rewrap with pages of so many versions.
    #[cfg(test)]
    pub(crate) fn with_page(self, page: usize) -> Self {
        Self { page, ..self }
    }

    /// Name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Current progress.
    pub fn progress(&self) -> RewrapProgress {
        let (began, ended) = *self.span.lock();
        let running_for = began.map(|began| match ended {
            Some(ended) => ended - began,
            None => began.elapsed(),
        });
        let running_for = running_for.unwrap_or_default();
        RewrapProgress { running_for, ..self.progress.lock().clone() }
    }

    /// Stops the run soon, after the versions under way. Versions rewrapped by then stay so.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// Notes the outcome of a version: true if it was changed.
    pub(super) fn note(&self, key: &str, outcome: Result<bool>) {
        let mut progress = self.progress.lock();
        match outcome {
            Ok(is_changed) => {
                self.failures_in_a_row.store(0, Ordering::Relaxed);
                progress.rewrapped += u64::from(is_changed);
            }
            // Versions under way at a stop have not failed.
            Err(_) if *self.stopped.borrow() => {}
            Err(error) => {
                if is_unavailable(&error) {
                    self.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
                }
                progress.failed += 1;
                progress.failure = Some(format!("{key}: {error}"));
            }
        }
    }

    pub(super) fn note_expected(&self, expected: Option<u64>) {
        self.progress.lock().expected = expected;
    }

    pub(super) fn note_uploads(&self, uploads: u64) {
        self.progress.lock().uploads = uploads;
    }

    pub(super) fn note_page(&self, seen: u64) {
        self.progress.lock().seen += seen;
    }

    fn check_not_stopped(&self) -> Result<()> {
        if *self.stopped.borrow() {
            return Err(ended("the rewrap was stopped".to_owned()));
        }
        Ok(())
    }

    /// Fails if the run was stopped, or too many consecutive versions had no answer.
    pub(super) fn check(&self) -> Result<()> {
        self.check_not_stopped()?;
        if self.failures_in_a_row.load(Ordering::Relaxed) < FAILURES_IN_A_ROW_MAX {
            return Ok(());
        }
        let last = self.progress.lock().failure.clone().unwrap_or_default();
        Err(ended(format!(
            "{FAILURES_IN_A_ROW_MAX} versions in a row could not be rewrapped, as {last}"
        )))
    }

    /// Waits for a span, or until a stop.
    pub(super) async fn rest(&self, span: Duration) -> Result<()> {
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            () = sleep(span) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        self.check_not_stopped()
    }

    /// Waits after a failed attempt at a version, of so many.
    pub(super) async fn rest_after(&self, tries: u32) -> Result<()> {
        self.rest(REST * tries).await
    }

    /// Waits before another attempt at a read, the first of which was at `began`.
    ///
    /// # Errors
    /// `error`, unless it passes: too few devices answer, and not for too long. A stop.
    pub(super) async fn wait_after(&self, began: Instant, error: Error) -> Result<()> {
        if !is_unavailable(&error) || began.elapsed() >= SILENCE_MAX {
            return Err(error);
        }
        self.rest(SILENCE_PAUSE).await
    }

    /// Waits while clients do, for a bounded time.
    pub(super) async fn give_way_to_clients(&self) -> Result<()> {
        let Some(clients_wait) = &self.options.clients_wait else { return self.check() };
        for _ in 0..LOOKS_MAX {
            if !clients_wait() {
                break;
            }
            self.rest(LOOK).await?;
        }
        self.check()
    }

    /// Minimum duration of a page with this many versions.
    pub(super) fn span_of(&self, seen: u64) -> Duration {
        let rate = self.options.versions_per_s;
        rate.map_or(Duration::ZERO, |rate| Duration::from_secs(seen) / rate.max(1))
    }

    pub(super) fn begin_pass(&self) {
        *self.span.lock() = (Some(Instant::now()), None);
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        let mut progress = self.progress.lock();
        progress.pass += 1;
        (progress.seen, progress.failed, progress.failure) = (0, 0, None);
    }

    /// Ends the time of the current pass.
    pub(super) fn end(&self) {
        let mut span = self.span.lock();
        span.1 = span.0.map(|_| Instant::now());
    }

    /// Fails while a data key needs another master key than the first.
    pub(super) fn check_nothing_left(&self) -> Result<()> {
        let RewrapProgress { failed, uploads, .. } = *self.progress.lock();
        match (failed, uploads) {
            (0, 0) => Ok(()),
            (0, uploads) => Err(ended(format!(
                "{uploads} open uploads need the old master key: rewrap again after they end"
            ))),
            (failed, _) => Err(ended(format!(
                "{failed} versions still need the old master key: rewrap again later"
            ))),
        }
    }
}

/// Returns true if too few devices answered.
pub(super) fn is_unavailable(error: &Error) -> bool {
    matches!(error, Error::Backend(error) if error.kind() == ErrorKind::Unavailable)
}

/// Early end of a run.
pub(super) fn ended(reason: String) -> Error {
    martlet_protocol::Error::unavailable(reason).into()
}

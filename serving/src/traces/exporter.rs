//! Task that sends spans in batches.
//!
//! ```text
//! queue ─ up to 512 spans, or those of one second ─ encode ─ send ─┬─ accepted
//!           ▲                                                     ├─ refused: drop
//!           └─ fills meanwhile; full: spans are dropped           └─ passing: pause, send again
//! ```
//!
//! One batch is under way at a time, so that memory is bounded by the queue and one batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::trace::FinishedSpan;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::collector_client::{CollectorClient, ExportError};
use super::encode::Resource;
use super::metrics::TraceCounts;
use crate::stop::wait_for_stop;

/// Longest time of the flush at the stop of a process.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// Most spans of a batch.
pub(super) const BATCH_SPANS_MAX: usize = 512;
/// Longest time for which the first span of a batch waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// Attempts to send a batch.
const ATTEMPTS_MAX: u32 = 6;
/// Pause after the first failure. It doubles after each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause, also of those that the collector asks for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The task's state.
pub(super) struct Exporter {
    pub(super) spans: mpsc::Receiver<FinishedSpan>,
    pub(super) client: CollectorClient,
    pub(super) resource: Resource,
    pub(super) counts: Arc<TraceCounts>,
    pub(super) stopped: watch::Receiver<bool>,
}

impl Exporter {
    /// Sends batches until the process stops, then those that wait.
    pub(super) async fn run(mut self) {
        let mut is_away = false;
        loop {
            let mut batch = Vec::new();
            let is_stopped = self.gather(&mut batch).await;
            if is_stopped {
                return self.flush(batch).await;
            }
            let count = batch.len() as u64;
            let body = Bytes::from(self.resource.encode(batch));
            let outcome = self.send(body).await;
            let is_lost = matches!(outcome, Err(ExportError::Passing(..)));
            if let Err(error) = &outcome
                && !is_away
            {
                tracing::warn!(%error, spans = count, "the collector doesn't take spans");
            } else if outcome.is_ok() && is_away {
                tracing::info!("the collector takes spans again");
            }
            is_away = outcome.is_err();
            self.count(count, &outcome);
            if is_lost && *self.stopped.borrow() {
                // Another attempt would fail too.
                return self.give_up();
            }
        }
    }

    /// Waits for a batch. Returns true if the process stops.
    async fn gather(&mut self, batch: &mut Vec<FinishedSpan>) -> bool {
        tokio::select! {
            first = self.spans.recv() => match first {
                Some(first) => batch.push(first),
                None => return true,
            },
            () = wait_for_stop(&mut self.stopped) => return true,
        }
        let deadline = Instant::now() + BATCH_WAIT;
        while batch.len() < BATCH_SPANS_MAX {
            let room = BATCH_SPANS_MAX - batch.len();
            tokio::select! {
                received = timeout_at(deadline, self.spans.recv_many(batch, room)) => {
                    if !matches!(received, Ok(1..)) {
                        break;
                    }
                }
                () = wait_for_stop(&mut self.stopped) => return true,
            }
        }
        false
    }

    /// Sends a batch, again after passing failures. A stop ends the pauses, and soon the request that
    /// is under way.
    async fn send(&mut self, body: Bytes) -> Result<u64, ExportError> {
        let mut pause = PAUSE_MIN;
        let mut attempts = 0;
        loop {
            let stopped = &mut self.stopped;
            let cut = async {
                wait_for_stop(stopped).await;
                sleep(PAUSE_MIN).await;
            };
            let outcome = tokio::select! {
                outcome = self.client.send(body.clone()) => outcome,
                () = cut => Err(ExportError::Passing("the process stops".to_owned(), None)),
            };
            let Err(ExportError::Passing(_, asked)) = &outcome else { return outcome };
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            attempts += 1;
            if attempts >= ATTEMPTS_MAX || *self.stopped.borrow() {
                return outcome;
            }
            tokio::select! {
                () = sleep(asked.unwrap_or_else(|| jittered(pause)).min(PAUSE_MAX)) => {}
                () = wait_for_stop(&mut self.stopped) => {}
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn count(&self, spans: u64, outcome: &Result<u64, ExportError>) {
        let add = |count: &AtomicU64, spans| count.fetch_add(spans, Ordering::Relaxed);
        match outcome {
            Ok(refused) => {
                let refused = *refused.min(&spans);
                add(&self.counts.exported, spans - refused);
                add(&self.counts.dropped_refused, refused);
            }
            Err(ExportError::Refused(_)) => {
                add(&self.counts.dropped_refused, spans);
            }
            Err(ExportError::Passing(..)) => {
                add(&self.counts.dropped_unsent, spans);
            }
        }
    }

    /// Sends the spans that wait, each batch once, within the time for the stop.
    async fn flush(&mut self, mut batch: Vec<FinishedSpan>) {
        let deadline = Instant::now() + FLUSH_MAX;
        loop {
            while batch.len() < BATCH_SPANS_MAX
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            let count = batch.len() as u64;
            let body = Bytes::from(self.resource.encode(std::mem::take(&mut batch)));
            let sent = timeout_at(deadline, self.client.send(body)).await;
            let late = || Err(ExportError::Passing("the process stops".to_owned(), None));
            let outcome = sent.unwrap_or_else(|_| late());
            self.count(count, &outcome);
            if outcome.is_err() {
                return self.give_up();
            }
        }
    }

    /// Drops the spans that wait.
    fn give_up(&mut self) {
        let mut dropped = 0;
        while self.spans.try_recv().is_ok() {
            dropped += 1;
        }
        self.counts.dropped_unsent.fetch_add(dropped, Ordering::Relaxed);
    }
}

/// Returns a time between half of a pause and all of it, so that processes don't come back together.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 1];
    // Without random bytes all of the pause is right too.
    let _ = getrandom::fill(&mut random);
    pause.saturating_sub(pause / 2 * u32::from(random[0]) / 256)
}

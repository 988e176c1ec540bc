//! When background work runs: pace, yielding, stopping, and what is told of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use martlet_protocol::Result;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::foreground::Foreground;
use crate::worker::{Progress, Worker};

/// How fast workers go.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two steps while there is work.
    pub busy_pause: Duration,
    /// Until the next look when there is none.
    pub idle_pause: Duration,
    /// Rest after a step while there are clients, in durations of that step: beside clients a worker
    /// has a share of 1 / (1 + rest) of the time.
    pub rest_beside_clients: u32,
    /// Workers yield while clients wait longer than this for their first byte.
    pub latency_budget: Duration,
    /// The longest that a worker yields before it takes a step all the same: yielding for ever
    /// would fill the disks.
    pub yield_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            busy_pause: Duration::from_millis(20),
            idle_pause: Duration::from_secs(30),
            rest_beside_clients: 2,
            latency_budget: Duration::from_millis(100),
            yield_max: Duration::from_secs(2),
        }
    }
}

/// Between two looks at how clients fare.
const YIELD_STEP: Duration = Duration::from_millis(50);
/// After a failed step; doubled with each failure in a row.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// How many seconds the rate looks back, roughly.
const RATE_SECONDS: f64 = 30.0;

/// What is told of a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// Its name.
    pub name: &'static str,
    /// What it has done since it was started, and what it last saw waiting.
    pub totals: Progress,
    /// Steps taken.
    pub steps: u64,
    /// Steps that failed.
    pub failures: u64,
    /// Things looked at in a second, lately.
    pub rate: f64,
    /// How long what is known to be left will take at that rate; none when that can't be told.
    pub eta: Option<Duration>,
    /// Times that it stepped back for clients.
    pub yields: u64,
    /// Times that it panicked and was made anew.
    pub panics: u64,
    /// Why the last step failed, if it did.
    pub error: Option<String>,
}

/// Runs workers until it is told to stop.
pub struct Runner {
    pace: Pace,
    foreground: Arc<Foreground>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    statuses: Vec<Arc<Mutex<WorkerStatus>>>,
}

impl Runner {
    /// A runner without workers.
    pub fn new(pace: Pace, foreground: Arc<Foreground>) -> Self {
        let (stop, _) = watch::channel(false);
        Self { pace, foreground, stop, tasks: JoinSet::new(), statuses: Vec::new() }
    }

    /// Starts the worker that `make` returns. One that panics is made anew after a pause, which
    /// doubles while panics follow each other: what it was about is still on disk.
    pub fn start(&mut self, make: impl Fn() -> Box<dyn Worker> + Send + 'static) {
        let worker = make();
        let status =
            Arc::new(Mutex::new(WorkerStatus { name: worker.name(), ..WorkerStatus::default() }));
        self.statuses.push(status.clone());
        let run = Run {
            worker,
            pace: self.pace,
            foreground: self.foreground.clone(),
            stop: self.stop.subscribe(),
            status,
            last_step: Instant::now(),
            warned: false,
        };
        self.tasks.spawn(run.keep_up(make));
    }

    /// How to ask after the workers, now and later.
    pub fn statuses(&self) -> impl Fn() -> Vec<WorkerStatus> + Send + Sync + use<> {
        let statuses = self.statuses.clone();
        move || statuses.iter().map(|status| status.lock().clone()).collect()
    }

    /// Lets every worker finish its step and ends.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One worker on its way.
struct Run {
    worker: Box<dyn Worker>,
    pace: Pace,
    foreground: Arc<Foreground>,
    stop: watch::Receiver<bool>,
    status: Arc<Mutex<WorkerStatus>>,
    last_step: Instant,
    /// Whether the failures in a row that it is in the middle of were told as a warning.
    warned: bool,
}

impl Run {
    /// Runs the worker, made anew after each panic, until it is told to stop.
    async fn keep_up(mut self, make: impl Fn() -> Box<dyn Worker> + Send) {
        let mut retry = RETRY_MIN;
        loop {
            let began = Instant::now();
            if AssertUnwindSafe(self.run()).catch_unwind().await.is_ok() {
                return;
            }
            if began.elapsed() > RETRY_MAX {
                retry = RETRY_MIN;
            }
            self.note_panic();
            if self.pause(retry).await {
                return;
            }
            retry = (retry * 2).min(RETRY_MAX);
            self.worker = make();
        }
    }

    async fn run(&mut self) {
        let mut retry = RETRY_MIN;
        while !*self.stop.borrow() {
            self.give_way().await;
            let began = tokio::time::Instant::now();
            let outcome = self.worker.step().await;
            let rest = self.rest_after(began.elapsed());
            let pause = match outcome {
                Ok(progress) => {
                    retry = RETRY_MIN;
                    self.note(&progress);
                    if progress.idle {
                        self.worker.idle_pause(self.pace.idle_pause)
                    } else {
                        self.worker.busy_pause(self.pace.busy_pause).max(rest)
                    }
                }
                Err(error) => {
                    let pause = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    self.note_failure(&error);
                    pause
                }
            };
            self.pause(pause).await;
        }
    }

    /// Returns the rest after a step that `took` so long: none while there are no clients.
    fn rest_after(&self, took: Duration) -> Duration {
        if self.foreground.latency().is_zero() {
            return Duration::ZERO;
        }
        took.saturating_mul(self.pace.rest_beside_clients).min(self.pace.yield_max)
    }

    /// Waits while clients do, up to a limit.
    async fn give_way(&mut self) {
        let mut waited = Duration::ZERO;
        while self.foreground.latency() > self.pace.latency_budget && waited < self.pace.yield_max {
            if waited.is_zero() {
                self.status.lock().yields += 1;
            }
            waited += YIELD_STEP;
            if self.pause(YIELD_STEP).await {
                return;
            }
        }
    }

    /// Waits; whether it was told to stop meanwhile.
    async fn pause(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => false,
            _ = self.stop.wait_for(|stop| *stop) => true,
        }
    }

    fn note(&mut self, progress: &Progress) {
        let elapsed = self.last_step.elapsed().as_secs_f64().max(1e-6);
        self.last_step = Instant::now();
        let mut status = self.status.lock();
        status.steps += 1;
        status.totals.add(progress);
        status.error = None;
        self.warned = false;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let now = progress.items as f64 / elapsed;
        let weight = 1.0 - (-elapsed / RATE_SECONDS).exp();
        status.rate += (now - status.rate) * weight;
        status.eta = eta(progress, status.rate);
    }

    fn note_panic(&mut self) {
        let mut status = self.status.lock();
        tracing::error!(worker = status.name, "a background worker panicked and is made anew");
        status.failures += 1;
        status.panics += 1;
        status.error = Some("it panicked, and is made anew".into());
    }

    fn note_failure(&mut self, error: &martlet_protocol::Error) {
        let mut status = self.status.lock();
        status.failures += 1;
        // Whoever met a newer term knows it from then on, and goes by it when it tries again.
        let is_behind = error.newer_term().is_some() && status.error.is_none();
        if is_behind {
            tracing::info!(worker = status.name, %error, "a background step is taken again");
        } else if !self.warned {
            tracing::warn!(worker = status.name, %error, "a background step failed and is tried again");
            self.warned = true;
        }
        status.error = Some(error.to_string());
    }
}

/// How long what is left takes at `rate` things a second; what waits for others waits for ever.
fn eta(left: &Progress, rate: f64) -> Option<Duration> {
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let things = left.ahead.max(left.backlog) as f64;
    if things == 0.0 {
        return Some(Duration::ZERO);
    }
    let seconds = things / rate;
    (!left.idle).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Takes steps until there is nothing more to do for now.
///
/// # Errors
/// Those of the first step that fails.
pub async fn run_once(worker: &mut dyn Worker) -> Result<Progress> {
    let mut totals = Progress::default();
    loop {
        let progress = worker.step().await?;
        totals.add(&progress);
        if progress.idle {
            return Ok(totals);
        }
    }
}

#[cfg(test)]
mod tests;

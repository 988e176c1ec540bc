//! Schedule of background work: pace, yielding to clients, stopping, and status.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use martlet_protocol::Result;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::foreground::Foreground;
use crate::worker::{StepProgress, Worker};

/// Pace of the workers.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPace {
    /// Pause between two steps while work is left.
    pub busy_pause: Duration,
    /// Pause until the next step while no work is left.
    pub idle_pause: Duration,
    /// Rest after a step while clients are active, as a multiple of the step's duration. A worker
    /// then uses 1 / (1 + rest) of the time.
    pub rest_beside_clients: u32,
    /// Workers yield while clients' time to first byte exceeds this.
    pub latency_budget: Duration,
    /// Maximum time that a worker yields before its next step. Without a maximum the disks would
    /// fill up.
    pub yield_max: Duration,
}

impl Default for WorkerPace {
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

/// Interval of checks of the clients' latency while a worker yields.
const YIELD_STEP: Duration = Duration::from_millis(50);
/// Pause after a failed step; doubled with each consecutive failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// Time constant of the rate's average, in seconds.
const RATE_SECONDS: f64 = 30.0;

/// Status of a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// Name of the worker.
    pub name: &'static str,
    /// Sum of its progress since its start, with the last waiting items.
    pub totals: StepProgress,
    /// Steps taken.
    pub steps: u64,
    /// Steps that failed.
    pub failures: u64,
    /// Recent rate, in items a second.
    pub rate: f64,
    /// Estimated time for the remaining items at this rate; none if it can't be estimated.
    pub eta: Option<Duration>,
    /// Number of times that it yielded to clients.
    pub yields: u64,
    /// Number of panics; the worker was created anew after each.
    pub panics: u64,
    /// Error of the last step, if it failed.
    pub error: Option<String>,
}

/// Runs workers until it is stopped.
pub struct Runner {
    pace: WorkerPace,
    foreground: Arc<Foreground>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    statuses: Vec<Arc<Mutex<WorkerStatus>>>,
}

impl Runner {
    /// Creates a runner without workers.
    pub fn new(pace: WorkerPace, foreground: Arc<Foreground>) -> Self {
        let (stop, _) = watch::channel(false);
        Self { pace, foreground, stop, tasks: JoinSet::new(), statuses: Vec::new() }
    }

    /// Starts the worker that `make` returns. A worker that panics is created anew after a pause,
    /// which doubles with consecutive panics: its work is still on disk.
    pub fn start(&mut self, make: impl Fn() -> Box<dyn Worker> + Send + 'static) {
        let worker = make();
        let status =
            Arc::new(Mutex::new(WorkerStatus { name: worker.name(), ..WorkerStatus::default() }));
        self.statuses.push(status.clone());
        let run = RunningWorker {
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

    /// Returns a function that reads the statuses of the workers.
    pub fn statuses(&self) -> impl Fn() -> Vec<WorkerStatus> + Send + Sync + use<> {
        let statuses = self.statuses.clone();
        move || statuses.iter().map(|status| status.lock().clone()).collect()
    }

    /// Waits until every worker has finished its step, and ends all workers.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One running worker.
struct RunningWorker {
    worker: Box<dyn Worker>,
    pace: WorkerPace,
    foreground: Arc<Foreground>,
    stop: watch::Receiver<bool>,
    status: Arc<Mutex<WorkerStatus>>,
    last_step: Instant,
    /// True if a warning was logged for the current series of failures.
    warned: bool,
}

impl RunningWorker {
    /// Runs the worker, created anew after each panic, until it is stopped.
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
            self.yield_to_clients().await;
            let began = tokio::time::Instant::now();
            let outcome = self.worker.step().await;
            let rest = self.rest_after(began.elapsed());
            let pause = match outcome {
                Ok(progress) => {
                    retry = RETRY_MIN;
                    self.record(&progress);
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

    /// Returns the rest after a step of duration `took`; zero without clients.
    fn rest_after(&self, took: Duration) -> Duration {
        if self.foreground.latency().is_zero() {
            return Duration::ZERO;
        }
        took.saturating_mul(self.pace.rest_beside_clients).min(self.pace.yield_max)
    }

    /// Waits while clients' latency exceeds the budget, up to `yield_max`.
    async fn yield_to_clients(&mut self) {
        let (mut waited, most) = (Duration::ZERO, self.worker.yield_max(self.pace.yield_max));
        while self.foreground.latency() > self.pace.latency_budget && waited < most {
            if waited.is_zero() {
                self.status.lock().yields += 1;
            }
            waited += YIELD_STEP;
            if self.pause(YIELD_STEP).await {
                return;
            }
        }
    }

    /// Waits; returns true if the worker was stopped meanwhile.
    async fn pause(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => false,
            _ = self.stop.wait_for(|stop| *stop) => true,
        }
    }

    fn record(&mut self, progress: &StepProgress) {
        let elapsed = self.last_step.elapsed().as_secs_f64().max(1e-6);
        self.last_step = Instant::now();
        let mut status = self.status.lock();
        status.steps += 1;
        status.totals.add(progress);
        status.error = None;
        self.warned = false;
        #[expect(clippy::cast_precision_loss, reason = "an approximate rate")]
        let now = progress.items as f64 / elapsed;
        let weight = 1.0 - (-elapsed / RATE_SECONDS).exp();
        status.rate += (now - status.rate) * weight;
        status.eta = eta(progress, status.rate);
    }

    fn note_panic(&mut self) {
        let mut status = self.status.lock();
        status.failures += 1;
        status.panics += 1;
        status.error = Some("the worker panicked and was restarted".into());
        tracing::error!(worker = status.name, "a background worker panicked, restarting it");
    }

    fn note_failure(&mut self, error: &martlet_protocol::Error) {
        let mut status = self.status.lock();
        status.failures += 1;
        // A worker that met a newer term has recorded it, and uses it in the next try.
        let is_behind = error.newer_term().is_some() && status.error.is_none();
        if is_behind {
            tracing::info!(worker = status.name, %error, "retrying a background step");
        } else if !self.warned {
            tracing::warn!(worker = status.name, %error, "a background step failed, retrying");
            self.warned = true;
        }
        status.error = Some(error.to_string());
    }
}

/// Estimates the time for the remaining items at `rate` items a second; none for items that wait on
/// other devices.
fn eta(left: &StepProgress, rate: f64) -> Option<Duration> {
    #[expect(clippy::cast_precision_loss, reason = "an approximate time")]
    let things = left.ahead.max(left.backlog) as f64;
    if things == 0.0 {
        return Some(Duration::ZERO);
    }
    let seconds = things / rate;
    (!left.idle).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Runs steps until no work is left for now.
///
/// # Errors
/// The error of the first step that fails.
pub async fn run_once(worker: &mut dyn Worker) -> Result<StepProgress> {
    let mut totals = StepProgress::default();
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

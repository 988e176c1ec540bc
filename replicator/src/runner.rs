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

    /// Starts a worker.
    pub fn start(&mut self, worker: impl Worker + 'static) {
        let status =
            Arc::new(Mutex::new(WorkerStatus { name: worker.name(), ..WorkerStatus::default() }));
        self.statuses.push(status.clone());
        let run = Run {
            worker: Box::new(worker),
            pace: self.pace,
            foreground: self.foreground.clone(),
            stop: self.stop.subscribe(),
            status,
            last_step: Instant::now(),
            warned: false,
        };
        let told = self.statuses[self.statuses.len() - 1].clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(run.run()).catch_unwind().await.is_err() {
                let mut status = told.lock();
                tracing::error!(worker = status.name, "a background worker panicked and is gone");
                status.failures += 1;
                status.error = Some("it panicked and is gone until the next start".into());
            }
        });
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
    async fn run(mut self) {
        let mut retry = RETRY_MIN;
        while !*self.stop.borrow() {
            self.give_way().await;
            let pause = match self.worker.step().await {
                Ok(progress) => {
                    retry = RETRY_MIN;
                    self.note(&progress);
                    if progress.idle {
                        self.worker.idle_pause(self.pace.idle_pause)
                    } else {
                        self.worker.busy_pause(self.pace.busy_pause)
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
mod tests {
    use super::*;
    use async_trait::async_trait;
    use martlet_protocol::Error;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Counting {
        steps: Arc<AtomicU64>,
        idle_every: u64,
        fails: bool,
    }

    #[async_trait]
    impl Worker for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        async fn step(&mut self) -> Result<Progress> {
            let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
            if self.fails {
                return Err(Error::unavailable("not today"));
            }
            let idle = step.is_multiple_of(self.idle_every);
            Ok(Progress { items: 2, idle, ..Progress::default() })
        }
    }

    fn fast() -> Pace {
        Pace { busy_pause: Duration::from_millis(1), ..Pace::default() }
    }

    async fn run_for(pace: Pace, foreground: Arc<Foreground>, worker: Counting) -> WorkerStatus {
        let mut runner = Runner::new(pace, foreground);
        runner.start(worker);
        let statuses = runner.statuses();
        tokio::time::sleep(Duration::from_millis(200)).await;
        runner.stop().await;
        statuses().remove(0)
    }

    #[tokio::test]
    async fn a_worker_is_run_until_it_is_idle_and_stops_when_told() {
        let steps = Arc::new(AtomicU64::new(0));
        let worker = Counting { steps: steps.clone(), idle_every: 5, fails: false };
        let status = run_for(fast(), Arc::default(), worker).await;
        assert_eq!(steps.load(Ordering::SeqCst), 5);
        assert_eq!((status.steps, status.totals.items, status.totals.idle), (5, 10, true));
        assert!(status.rate > 0.0);
    }

    #[tokio::test]
    async fn a_worker_steps_back_while_clients_wait() {
        let foreground = Arc::new(Foreground::default());
        for _ in 0..200 {
            foreground.observe(Duration::from_secs(1));
        }
        let steps = Arc::new(AtomicU64::new(0));
        let worker = Counting { steps: steps.clone(), idle_every: 100, fails: false };
        let status = run_for(fast(), foreground, worker).await;
        // Told to stop while it yields, it still takes the step that it was about to take.
        assert!(steps.load(Ordering::SeqCst) <= 1);
        assert_eq!(status.yields, 1);
    }

    #[tokio::test]
    async fn yielding_has_an_end() {
        let foreground = Arc::new(Foreground::default());
        for _ in 0..200 {
            foreground.observe(Duration::from_secs(1));
        }
        let pace = Pace { yield_max: Duration::from_millis(20), ..fast() };
        let steps = Arc::new(AtomicU64::new(0));
        let worker = Counting { steps: steps.clone(), idle_every: 1, fails: false };
        let status = run_for(pace, foreground, worker).await;
        assert_eq!((status.steps, status.yields), (1, 1));
    }

    #[tokio::test]
    async fn a_failed_step_is_told_and_tried_again_later() {
        let steps = Arc::new(AtomicU64::new(0));
        let worker = Counting { steps: steps.clone(), idle_every: 1, fails: true };
        let status = run_for(fast(), Arc::default(), worker).await;
        assert_eq!((status.steps, status.failures), (0, 1));
        assert_eq!(status.error.as_deref(), Some("not today"));
    }

    #[test]
    fn meeting_a_newer_term_is_told_only_when_it_is_met_again() {
        let mut run = Run {
            worker: Box::new(Panicking),
            pace: fast(),
            foreground: Arc::default(),
            stop: watch::channel(false).1,
            status: Arc::default(),
            last_step: Instant::now(),
            warned: false,
        };
        let behind = Error::outdated(martlet_protocol::Term(4));
        run.note_failure(&behind);
        assert!(!run.warned, "it goes by the newer term in its next step");
        run.note_failure(&behind);
        assert!(run.warned, "it did not learn");
        run.note(&Progress::default());
        assert!(!run.warned);
        run.note_failure(&Error::unavailable("not today"));
        assert!(run.warned);
        assert_eq!(run.status.lock().failures, 3);
    }

    #[test]
    fn what_is_left_takes_as_long_as_its_rate_says() {
        let left = |ahead, backlog, idle| Progress { backlog, ahead, idle, ..Progress::default() };
        assert_eq!(eta(&left(0, 0, true), 0.0), Some(Duration::ZERO));
        assert_eq!(eta(&left(100, 20, false), 10.0), Some(Duration::from_secs(10)));
        assert_eq!(eta(&left(0, 20, false), 10.0), Some(Duration::from_secs(2)));
        assert_eq!(eta(&left(0, 20, false), 0.0), None, "nothing moves");
        assert_eq!(eta(&left(0, 20, true), 10.0), None, "the rest waits for others");
    }

    struct Panicking;

    #[async_trait]
    impl Worker for Panicking {
        fn name(&self) -> &'static str {
            "panicking"
        }

        async fn step(&mut self) -> Result<Progress> {
            panic!("as this test wants it")
        }
    }

    #[tokio::test]
    async fn a_worker_that_panics_is_told_and_takes_nobody_with_it() {
        let mut runner = Runner::new(fast(), Arc::default());
        let steps = Arc::new(AtomicU64::new(0));
        runner.start(Panicking);
        runner.start(Counting { steps: steps.clone(), idle_every: 5, fails: false });
        let statuses = runner.statuses();
        let told = || statuses()[0].error.is_some();
        for _ in 0..2000 {
            if told() && steps.load(Ordering::SeqCst) >= 5 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        runner.stop().await;
        assert!(statuses()[0].error.as_deref().is_some_and(|error| error.contains("panicked")));
        assert_eq!(steps.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn running_once_ends_with_the_first_idle_step() {
        let steps = Arc::new(AtomicU64::new(0));
        let mut worker = Counting { steps, idle_every: 3, fails: false };
        let totals = run_once(&mut worker).await.unwrap();
        assert_eq!((totals.items, totals.idle), (6, true));
    }
}

//! Pace, yielding, panics, stopping, and status.

use super::*;
use async_trait::async_trait;
use martlet_protocol::Error;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone)]
struct CountingWorker {
    steps: Arc<AtomicU64>,
    idle_every: u64,
    fails: bool,
}

#[async_trait]
impl Worker for CountingWorker {
    fn name(&self) -> &'static str {
        "counting"
    }

    async fn step(&mut self) -> Result<StepProgress> {
        let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
        if self.fails {
            return Err(Error::unavailable("not today"));
        }
        let idle = step.is_multiple_of(self.idle_every);
        Ok(StepProgress { items: 2, idle, ..StepProgress::default() })
    }
}

fn fast() -> WorkerPace {
    WorkerPace { busy_pause: Duration::from_millis(1), ..WorkerPace::default() }
}

async fn run_for(
    pace: WorkerPace,
    foreground: Arc<Foreground>,
    worker: CountingWorker,
) -> WorkerStatus {
    let mut runner = Runner::new(pace, foreground);
    runner.start(move || Box::new(worker.clone()));
    let statuses = runner.statuses();
    tokio::time::sleep(Duration::from_millis(200)).await;
    runner.stop().await;
    statuses().remove(0)
}

#[tokio::test]
async fn a_worker_runs_until_idle_and_stops_on_request() {
    let steps = Arc::new(AtomicU64::new(0));
    let worker = CountingWorker { steps: steps.clone(), idle_every: 5, fails: false };
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
    let worker = CountingWorker { steps: steps.clone(), idle_every: 100, fails: false };
    let status = run_for(fast(), foreground, worker).await;
    // Stopped while it yields, the worker still takes its next step.
    assert!(steps.load(Ordering::SeqCst) <= 1);
    assert_eq!(status.yields, 1);
}

#[tokio::test(start_paused = true)]
async fn while_clients_elsewhere_wait_yields_rise_and_steps_become_rare() {
    let waits = Arc::new(AtomicU64::new(0));
    let latency_ms = waits.clone();
    let wait = move || Duration::from_millis(latency_ms.load(Ordering::SeqCst));
    let mut runner = Runner::new(WorkerPace::default(), Arc::new(Foreground::elsewhere(wait)));
    let steps = Arc::new(AtomicU64::new(0));
    let counting = CountingWorker { steps: steps.clone(), idle_every: u64::MAX, fails: false };
    runner.start(move || Box::new(counting.clone()));
    let statuses = runner.statuses();
    let of_ten_seconds = async || {
        let before = (steps.load(Ordering::SeqCst), statuses()[0].yields);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let after = (steps.load(Ordering::SeqCst), statuses()[0].yields);
        (after.0 - before.0, after.1 - before.1)
    };
    let (free, yields) = of_ten_seconds().await;
    assert!(free > 300 && yields == 0, "{free} steps, {yields} yields");
    waits.store(150, Ordering::SeqCst);
    let (slow, yields) = of_ten_seconds().await;
    assert!((3..=7).contains(&slow) && yields >= 3, "{slow} steps, {yields} yields");
    waits.store(20, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (free, yields) = of_ten_seconds().await;
    assert!(free > 300 && yields == 0, "{free} steps, {yields} yields");
    runner.stop().await;
}

/// A worker whose steps take a tenth of a second.
struct SlowWorker(Arc<AtomicU64>);

#[async_trait]
impl Worker for SlowWorker {
    fn name(&self) -> &'static str {
        "slow"
    }

    async fn step(&mut self) -> Result<StepProgress> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(StepProgress { items: 1, ..StepProgress::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn beside_clients_a_worker_rests_twice_as_long_as_it_works() {
    let waits = Arc::new(AtomicU64::new(0));
    let latency_ms = waits.clone();
    let wait = move || Duration::from_millis(latency_ms.load(Ordering::SeqCst));
    let pace = WorkerPace { busy_pause: Duration::ZERO, ..WorkerPace::default() };
    let mut runner = Runner::new(pace, Arc::new(Foreground::elsewhere(wait)));
    let steps = Arc::new(AtomicU64::new(0));
    let counted = steps.clone();
    runner.start(move || Box::new(SlowWorker(counted.clone())));
    let of_thirty_seconds = async || {
        let before = steps.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(30)).await;
        steps.load(Ordering::SeqCst) - before
    };
    let alone = of_thirty_seconds().await;
    assert!((290..=301).contains(&alone), "{alone} steps without clients");
    waits.store(1, Ordering::SeqCst);
    let beside = of_thirty_seconds().await;
    assert!((95..=105).contains(&beside), "{beside} steps beside clients");
    runner.stop().await;
}

#[tokio::test]
async fn yielding_has_an_end() {
    let foreground = Arc::new(Foreground::default());
    for _ in 0..200 {
        foreground.observe(Duration::from_secs(1));
    }
    let pace = WorkerPace { yield_max: Duration::from_millis(20), ..fast() };
    let steps = Arc::new(AtomicU64::new(0));
    let worker = CountingWorker { steps: steps.clone(), idle_every: 1, fails: false };
    let status = run_for(pace, foreground, worker).await;
    assert_eq!((status.steps, status.yields), (1, 1));
}

#[tokio::test]
async fn a_failed_step_is_reported_and_retried_later() {
    let steps = Arc::new(AtomicU64::new(0));
    let worker = CountingWorker { steps: steps.clone(), idle_every: 1, fails: true };
    let status = run_for(fast(), Arc::default(), worker).await;
    assert_eq!((status.steps, status.failures), (0, 1));
    assert_eq!(status.error.as_deref(), Some("not today"));
}

#[test]
fn a_newer_term_is_reported_from_its_second_occurrence() {
    let mut run = RunningWorker {
        worker: PanickingWorker::at(1),
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
    run.record(&StepProgress::default());
    assert!(!run.warned);
    run.note_failure(&Error::unavailable("not today"));
    assert!(run.warned);
    assert_eq!(run.status.lock().failures, 3);
}

#[test]
fn the_time_left_follows_the_rate() {
    let left =
        |ahead, backlog, idle| StepProgress { backlog, ahead, idle, ..StepProgress::default() };
    assert_eq!(eta(&left(0, 0, true), 0.0), Some(Duration::ZERO));
    assert_eq!(eta(&left(100, 20, false), 10.0), Some(Duration::from_secs(10)));
    assert_eq!(eta(&left(0, 20, false), 10.0), Some(Duration::from_secs(2)));
    assert_eq!(eta(&left(0, 20, false), 0.0), None, "nothing moves");
    assert_eq!(eta(&left(0, 20, true), 10.0), None, "the rest waits for others");
}

/// A worker that panics in its first step, and the workers created after it.
struct PanickingWorker {
    at_step: u64,
    steps: u64,
}

impl PanickingWorker {
    fn at(at_step: u64) -> Box<dyn Worker> {
        Box::new(Self { at_step, steps: 0 })
    }
}

#[async_trait]
impl Worker for PanickingWorker {
    fn name(&self) -> &'static str {
        "panicking"
    }

    async fn step(&mut self) -> Result<StepProgress> {
        self.steps += 1;
        assert_ne!(self.steps, self.at_step, "as this test wants it");
        Ok(StepProgress { items: 1, ..StepProgress::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicked_worker_restarts_after_a_pause_and_others_continue() {
    let mut runner = Runner::new(fast(), Arc::default());
    let (made, steps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let count = made.clone();
    // The first three panic at once; the fourth runs.
    runner.start(move || match count.fetch_add(1, Ordering::SeqCst) {
        0..3 => PanickingWorker::at(1),
        _ => PanickingWorker::at(0),
    });
    let counting = CountingWorker { steps: steps.clone(), idle_every: 5, fails: false };
    runner.start(move || Box::new(counting.clone()));
    let statuses = runner.statuses();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let first = statuses().remove(0);
    assert_eq!((first.panics, first.steps), (1, 0));
    assert!(first.error.is_some_and(|error| error.contains("panicked")));
    assert_eq!(steps.load(Ordering::SeqCst), 5);
    // Pauses of one, two and four seconds.
    tokio::time::sleep(Duration::from_secs(7)).await;
    runner.stop().await;
    let first = statuses().remove(0);
    assert_eq!((first.panics, first.failures, first.error), (3, 3, None));
    assert!(first.steps > 5 && made.load(Ordering::SeqCst) == 4);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_its_restart_stops_on_request() {
    let mut runner = Runner::new(fast(), Arc::default());
    runner.start(|| PanickingWorker::at(1));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = tokio::time::Instant::now();
    runner.stop().await;
    assert!(began.elapsed() < RETRY_MIN);
}

#[tokio::test]
async fn running_once_ends_with_the_first_idle_step() {
    let steps = Arc::new(AtomicU64::new(0));
    let mut worker = CountingWorker { steps, idle_every: 3, fails: false };
    let totals = run_once(&mut worker).await.unwrap();
    assert_eq!((totals.items, totals.idle), (6, true));
}

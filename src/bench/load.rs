//! Load of a run: threads with a single-threaded runtime each, workers with a connection each, and
//! a common deadline.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::Barrier;

use super::args::BenchArgs;
use super::connection::{Connection, RequestOutcome};
use super::cpu;
use super::error::{BenchError, BenchResult};
use super::plan::WorkerPlan;
use super::requests::Requests;
use super::slices::Samples;
use super::tally::BenchTally;

/// Interval between two updates of the progress bar.
const TICK: Duration = Duration::from_millis(200);
/// Pause of a worker after a failed request, so that a dead server is not flooded.
const PAUSE: Duration = Duration::from_millis(20);

/// Result of a run.
pub(super) struct RunResult {
    pub(super) tally: BenchTally,
    /// Time from the first request to the last reply.
    pub(super) elapsed: Duration,
    /// CPU seconds of the `--pid` processes during the run, by role; empty without `--pid`.
    pub(super) cpu_s: BTreeMap<String, f64>,
    /// Samples of all requests, if `--every` is given.
    pub(super) samples: Samples,
    /// Names of objects that the run made and left.
    pub(super) made: Vec<String>,
}

/// State that all workers share.
struct LoadState {
    args: BenchArgs,
    requests: Requests,
    deletes: Arc<AtomicU64>,
    /// Opens when every worker has its connection.
    start: Barrier,
    answered: AtomicU64,
    finished: AtomicBool,
}

/// Runs the load that `args` describes.
pub(super) async fn run(args: &BenchArgs, requests: &Requests) -> BenchResult<RunResult> {
    let shared = Arc::new(LoadState {
        args: args.clone(),
        requests: requests.clone(),
        deletes: Arc::default(),
        start: Barrier::new(args.concurrency + 1),
        answered: AtomicU64::new(0),
        finished: AtomicBool::new(false),
    });
    let threads = args.threads.min(args.concurrency);
    let handles: Vec<_> = (0..threads)
        .map(|thread| {
            let shared = shared.clone();
            thread::spawn(move || serve(&shared, thread, threads))
        })
        .collect();
    shared.start.wait().await;
    let cpu_before = cpu::seconds(&args.pid)?;
    let begun = Instant::now();
    let progress = tokio::spawn(show_progress(shared.clone(), begun));
    let joined = tokio::task::spawn_blocking(move || collect(handles)).await;
    let elapsed = begun.elapsed();
    shared.finished.store(true, Ordering::Relaxed);
    let cpu_s = cpu::seconds_since(&cpu_before, &args.pid)?;
    progress.await.map_err(BenchError::new)?;
    let WorkerResult { tally, samples, made } = joined.map_err(BenchError::new)??;
    Ok(RunResult { tally, elapsed, cpu_s, samples, made })
}

/// Result of one worker, or of several.
#[derive(Default)]
struct WorkerResult {
    tally: BenchTally,
    samples: Samples,
    made: Vec<String>,
}

type ThreadHandle = thread::JoinHandle<std::io::Result<Vec<WorkerResult>>>;

fn collect(handles: Vec<ThreadHandle>) -> BenchResult<WorkerResult> {
    let mut sum = WorkerResult::default();
    for handle in handles {
        let workers = handle.join().map_err(|_| BenchError::new("a worker panicked"))?;
        for WorkerResult { tally, samples, made } in workers.map_err(BenchError::new)? {
            sum.tally.merge(&tally);
            sum.samples.merge(samples);
            sum.made.extend(made);
        }
    }
    Ok(sum)
}

/// Runs one thread: every `threads`-th worker, beginning with number `thread`.
fn serve(shared: &LoadState, thread: usize, threads: usize) -> std::io::Result<Vec<WorkerResult>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workers = (thread..shared.args.concurrency).step_by(threads);
    Ok(runtime.block_on(join_all(workers.map(|worker| work(shared, worker)))))
}

/// Runs one worker: it sends a request, waits for its reply, and repeats.
async fn work(shared: &LoadState, worker: usize) -> WorkerResult {
    let (mut tally, mut samples) = (BenchTally::default(), Samples::default());
    let mut plan = WorkerPlan::new(&shared.args, worker, shared.deletes.clone());
    let mut requests = shared.requests.clone();
    let mut connection = Connection::new(&requests.endpoint);
    // If opening fails, the first request reports the error.
    drop(connection.open().await);
    shared.start.wait().await;
    let start = Instant::now();
    let deadline = start + shared.args.duration;
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            break;
        }
        let Some(call) = plan.next() else { break };
        let reply = connection.send(requests.request(&call)).await;
        if shared.args.every.is_some() {
            let is_answered = matches!(reply, RequestOutcome::Answered(_));
            samples.push(start.elapsed(), begun.elapsed(), is_answered);
        }
        match reply {
            RequestOutcome::Answered(bytes) => {
                tally.answered(begun.elapsed(), bytes + requests.bytes_sent(&call));
                shared.answered.fetch_add(1, Ordering::Relaxed);
            }
            RequestOutcome::Refused(code) => {
                tally.failed(&code);
                tokio::time::sleep(PAUSE).await;
            }
            RequestOutcome::Broken(error) => {
                tally.failed(&format!("no reply: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    WorkerResult { tally, samples, made: plan.made() }
}

async fn show_progress(shared: Arc<LoadState>, begun: Instant) {
    if shared.args.json || !std::io::stderr().is_terminal() {
        return;
    }
    let total_ms = u64::try_from(shared.args.duration.as_millis()).unwrap_or(u64::MAX);
    let style = ProgressStyle::with_template("{bar:40} {msg}").expect("the template is valid");
    let bar = ProgressBar::new(total_ms).with_style(style);
    let mut before = 0;
    while !shared.finished.load(Ordering::Relaxed) {
        tokio::time::sleep(TICK).await;
        let answered = shared.answered.load(Ordering::Relaxed);
        let ticks_per_s = 1000 / TICK.as_millis().max(1);
        bar.set_message(format!("{} req/s", u128::from(answered - before) * ticks_per_s));
        bar.set_position(u64::try_from(begun.elapsed().as_millis()).unwrap_or(total_ms));
        before = answered;
    }
    bar.finish_and_clear();
}

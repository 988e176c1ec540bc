//! One run of the sampling profiler, by the crate `pprof`.
//!
//! The kernel sends SIGPROF to the process for each interval of its processor time, and the thread
//! that runs records its stack. So sleeping threads cost nothing and are not seen.
//!
//! The signal is safe for this process:
//! * The handler is installed with `SA_RESTART`, so that calls of the disk go on. Waits that the
//!   kernel doesn't restart (`epoll_wait`, timed waits of locks) are repeated by tokio and
//!   `parking_lot`.
//! * The profiler's end leaves SIGPROF ignored, so that a signal which is still pending is discarded.
//!   The default action would end the process.
//! * Samples within the C library and the unwinder are left out: a stack can't be walked safely
//!   from there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use martlet_protocol::{Clock, SystemClock};
use pprof::{Frames, ProfilerGuard, ProfilerGuardBuilder, Symbol};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::pprof_file::{PprofContent, PprofRow};
use super::stack::{FrameFunction, SampledStack};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Parts of the names of libraries whose code isn't sampled.
const UNSAMPLED: [&str; 5] = ["libc.so", "libc-2", "libgcc_s", "libpthread", "linux-vdso"];

/// The profiler is one for the whole process.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Parameters of a run, within their bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuRun {
    /// Duration.
    pub(super) seconds: u64,
    /// Samples for each second of processor time.
    pub(super) frequency: u32,
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct CpuProfile {
    pub(super) stacks: Vec<SampledStack>,
    pub(super) frequency: u32,
    /// Begin, in milliseconds since 1970.
    pub(super) begin_ms: u64,
    pub(super) took: Duration,
}

/// Reason for a run without a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProfileError {
    /// Another run is under way.
    Busy,
    /// The profiler doesn't start or has no result.
    Failed(String),
}

impl CpuProfile {
    /// Returns the number of samples.
    pub(super) fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }

    /// Returns the content of a file of pprof. A stack has its count, and its share of processor time.
    pub(super) fn content(&self) -> PprofContent<'_> {
        let period = NANOS_PER_SECOND / u64::from(self.frequency.max(1));
        let row = |stack| row(stack, period);
        PprofContent {
            types: &[("samples", "count"), ("cpu", "nanoseconds")],
            period,
            begin_ms: self.begin_ms,
            took: self.took,
            rows: self.stacks.iter().map(row).collect(),
            comment: None,
        }
    }
}

fn row(stack: &SampledStack, period: u64) -> PprofRow<'_> {
    let values = vec![stack.samples, stack.samples.saturating_mul(period)];
    PprofRow { frames: &stack.frames, thread: Some(&stack.thread), values }
}

/// Mark of the run that is under way.
struct RunningMark;

impl RunningMark {
    fn set() -> Result<Self, ProfileError> {
        let was_running = IS_RUNNING.swap(true, Ordering::AcqRel);
        if was_running { Err(ProfileError::Busy) } else { Ok(Self) }
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Ordering::Release);
    }
}

/// Profiler that samples, and the mark of its run.
struct RunningProfiler {
    /// Both are there until the drop.
    parts: Option<(ProfilerGuard<'static>, RunningMark)>,
}

impl RunningProfiler {
    /// Ends the profiler, and then removes the mark. Makes large tables anew, so that the thread must
    /// be one that may block.
    fn end(mut self) {
        drop(self.parts.take());
    }
}

impl Drop for RunningProfiler {
    /// Ends the profiler of a client that has left: on another thread, for this one serves requests.
    fn drop(&mut self) {
        let parts = self.parts.take();
        if let Ok(runtime) = Handle::try_current()
            && parts.is_some()
        {
            runtime.spawn_blocking(move || drop(parts));
        }
    }
}

impl CpuRun {
    /// Samples for the duration of the run. Returns `Busy` at once if another run is under way.
    pub(super) async fn take(self) -> Result<CpuProfile, ProfileError> {
        let mark = RunningMark::set()?;
        let frequency = i32::try_from(self.frequency).unwrap_or(i32::MAX);
        let begin_ms = SystemClock.now_ms();
        let begin = move || {
            let builder = ProfilerGuardBuilder::default().frequency(frequency);
            let guard = builder.blocklist(&UNSAMPLED).build()?;
            pprof::Result::Ok(RunningProfiler { parts: Some((guard, mark)) })
        };
        let running = spawn_blocking(begin).await.map_err(failed)?.map_err(failed)?;
        let began = Instant::now();
        sleep(Duration::from_secs(self.seconds)).await;
        let took = began.elapsed();
        let stacks = spawn_blocking(move || {
            let stacks = stacks_of(&running);
            running.end();
            stacks
        })
        .await
        .map_err(failed)??;
        Ok(CpuProfile { stacks, frequency: self.frequency, begin_ms, took })
    }
}

/// Reads the stacks of a profiler, with names from the symbol table.
fn stacks_of(running: &RunningProfiler) -> Result<Vec<SampledStack>, ProfileError> {
    let (guard, _) = running.parts.as_ref().expect("the parts are there until the drop");
    let report = guard.report().build().map_err(failed)?;
    let stack = |(frames, count): (Frames, isize)| SampledStack {
        thread: frames.thread_name_or_id(),
        frames: frames.frames.iter().map(|frame| frame.iter().map(function).collect()).collect(),
        samples: u64::try_from(count).unwrap_or_default(),
    };
    Ok(report.data.into_iter().map(stack).collect())
}

fn function(symbol: &Symbol) -> FrameFunction {
    let file = symbol.filename.as_ref().map(|file| file.to_string_lossy().into_owned());
    FrameFunction {
        name: symbol.name(),
        symbol: symbol.sys_name().into_owned(),
        file: file.unwrap_or_default(),
        line: symbol.lineno(),
    }
}

fn failed(error: impl std::fmt::Display) -> ProfileError {
    ProfileError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[inline(never)]
    fn work_that_a_profile_finds(until: Instant) -> u64 {
        let mut sum = 0_u64;
        while Instant::now() < until {
            for number in 0..black_box(10_000_u64) {
                sum = sum.wrapping_mul(31).wrapping_add(black_box(number));
            }
        }
        sum
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_profile_finds_the_function_that_works_and_runs_alone() {
        let until = Instant::now() + Duration::from_millis(2500);
        let work = spawn_blocking(move || work_that_a_profile_finds(until));
        let run = CpuRun { seconds: 1, frequency: 200 };
        let first = tokio::spawn(run.take());
        while !IS_RUNNING.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        assert_eq!(run.take().await.unwrap_err(), ProfileError::Busy);
        let profile = first.await.unwrap().unwrap();
        let is_found = |stack: &SampledStack| {
            let mut functions = stack.frames.iter().flatten();
            functions.any(|function| function.name.contains("work_that_a_profile_finds"))
        };
        let found: u64 = profile.stacks.iter().filter(|it| is_found(it)).map(|it| it.samples).sum();
        assert!(found >= 10, "{found} of {} samples", profile.samples());
        assert!(profile.took >= Duration::from_secs(1));
        work.await.unwrap();
        let again = CpuRun { seconds: 1, frequency: 1 }.take().await;
        assert!(again.is_ok(), "the next run begins after the end of the first: {again:?}");
        // A client that leaves ends its run.
        let left = tokio::spawn(CpuRun { seconds: 3600, frequency: 1 }.take());
        sleep(Duration::from_millis(200)).await;
        assert!(IS_RUNNING.load(Ordering::Acquire));
        left.abort();
        while IS_RUNNING.load(Ordering::Acquire) {
            sleep(Duration::from_millis(10)).await;
        }
        let again = CpuRun { seconds: 1, frequency: 1 }.take().await;
        assert!(again.is_ok(), "{again:?}");
    }
}

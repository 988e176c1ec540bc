//! One window of the sampling allocator, with the names of functions.

use std::collections::HashMap;
use std::ptr;
use std::time::Duration;

use backtrace::Symbol;
use martlet_heap_profile::{HeapRefusal, HeapSamples, HeapStack, HeapWindow};
use martlet_protocol::{Clock, SystemClock};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::cpu::ProfileError;
use super::pprof_file::{PprofContent, PprofRow};
use super::program::ProgramFiles;
use super::stack::{FrameFunction, SampledStack};

/// Beginnings of the names of functions of the profiler itself, which begin each stack.
const OWN: [&str; 5] =
    ["martlet_heap_profile::", "<martlet_heap_profile::", "backtrace::", "__rust", "__rustc"];
/// Part of the names of all hooks.
const HOOKS: &str = "martlet_heap_profile::allocator::";
/// Values of a row, as the heap profiles of Go have them.
const TYPES: &[(&str, &str)] = &[
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
/// Roots of the lines of text.
const IN_USE: &str = "in use";
const FREED: &str = "freed";

/// Parameters of a window, within their bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeapRun {
    /// Duration.
    pub(super) seconds: u64,
    /// Mean number of allocated bytes between two samples.
    pub(super) interval: u64,
}

/// Result of a window.
#[derive(Debug)]
pub(super) struct HeapProfile {
    pub(super) samples: u64,
    stacks: Vec<NamedStack>,
    dropped: u64,
    /// Reason for functions without a name.
    remark: Option<&'static str>,
    interval: u64,
    begin_ms: u64,
    took: Duration,
}

/// Stack with names.
#[derive(Debug)]
struct NamedStack {
    frames: Vec<Vec<FrameFunction>>,
    values: HeapStack,
}

impl HeapRun {
    /// Samples for the duration of the run. Returns `Busy` at once if another window is open. A drop of the
    /// future ends the window. A request's future isn't dropped when its client leaves: it is a recorded
    /// change, which runs to its end.
    pub(super) async fn take(self) -> Result<HeapProfile, ProfileError> {
        let window = HeapWindow::begin(self.interval).map_err(|refusal| match refusal {
            HeapRefusal::Busy => ProfileError::Busy,
            HeapRefusal::NotInstalled => {
                ProfileError::Failed("the allocator of this program samples nothing".to_owned())
            }
        })?;
        let (begin_ms, began) = (SystemClock.now_ms(), Instant::now());
        sleep(Duration::from_secs(self.seconds)).await;
        let (samples, took) = (window.end(), began.elapsed());
        let HeapSamples { stacks, samples, dropped } = samples;
        let named = spawn_blocking(move || {
            let files = ProgramFiles::read();
            (named(stacks, &files), files.remark())
        });
        let named = named.await.map_err(|error| ProfileError::Failed(error.to_string()))?;
        let ((stacks, remark), interval) = (named, self.interval);
        Ok(HeapProfile { samples, stacks, dropped, remark, interval, begin_ms, took })
    }
}

impl HeapProfile {
    /// Returns the content of a file of pprof.
    pub(super) fn content(&self) -> PprofContent<'_> {
        let dropped = (self.dropped > 0)
            .then(|| format!("{} samples are missing: the tables were full", self.dropped));
        let remarks: Vec<String> =
            dropped.into_iter().chain(self.remark.map(str::to_owned)).collect();
        PprofContent {
            types: TYPES,
            period: self.interval,
            begin_ms: self.begin_ms,
            took: self.took,
            rows: self.stacks.iter().map(row).collect(),
            comment: (!remarks.is_empty()).then(|| remarks.join("; ")),
        }
    }

    /// Returns stacks of bytes below two roots: those in use at the end, and those that were freed.
    pub(super) fn lines(&self) -> Vec<SampledStack> {
        let line = |root: &str, stack: &NamedStack, samples| SampledStack {
            thread: root.to_owned(),
            frames: stack.frames.clone(),
            samples,
        };
        let mut lines = Vec::new();
        for stack in &self.stacks {
            let HeapStack { allocated_bytes, live_bytes, .. } = stack.values;
            lines.push(line(IN_USE, stack, live_bytes));
            lines.push(line(FREED, stack, allocated_bytes.saturating_sub(live_bytes)));
        }
        lines.retain(|line| line.samples > 0);
        lines
    }
}

fn row(stack: &NamedStack) -> PprofRow<'_> {
    let HeapStack { allocated_objects, allocated_bytes, live_objects, live_bytes, .. } =
        stack.values;
    let values = vec![allocated_objects, allocated_bytes, live_objects, live_bytes];
    PprofRow { frames: &stack.frames, thread: None, values }
}

/// Names the functions of stacks. Reads the symbols of the program: a second or more at the first time.
fn named(stacks: Vec<HeapStack>, files: &ProgramFiles) -> Vec<NamedStack> {
    let mut known = HashMap::new();
    let mut name = |stack: HeapStack| {
        let functions =
            |ip: &usize| known.entry(*ip).or_insert_with(|| functions(*ip, files)).clone();
        let mut frames: Vec<Vec<FrameFunction>> = stack.frames.iter().map(functions).collect();
        remove_own(&mut frames);
        NamedStack { frames, values: stack }
    };
    stacks.into_iter().map(&mut name).collect()
}

/// Removes the functions of the profiler from the innermost end of a stack. Functions of the library that
/// were inlined into its hooks lie between them.
fn remove_own(frames: &mut Vec<Vec<FrameFunction>>) {
    let is_hook = |function: &FrameFunction| function.name.contains(HOOKS);
    if let Some(last) = frames.iter().rposition(|frame| frame.iter().any(is_hook)) {
        let functions = frames[last].iter().rposition(is_hook).map_or(0, |at| at + 1);
        frames[last].drain(..functions);
        frames.drain(..last);
    }
    let is_own = |function: &FrameFunction| OWN.iter().any(|own| function.name.starts_with(own));
    while let Some(innermost) = frames.first_mut() {
        let own = innermost.iter().take_while(|function| is_own(function)).count();
        innermost.drain(..own);
        if !innermost.is_empty() {
            return;
        }
        frames.remove(0);
    }
}

/// Returns the functions of a frame, the innermost first.
fn functions(ip: usize, files: &ProgramFiles) -> Vec<FrameFunction> {
    let mut functions = Vec::new();
    backtrace::resolve(ptr::without_provenance_mut(ip), |symbol| functions.push(function(symbol)));
    if functions.is_empty() {
        let name = files.place(ip);
        functions.push(FrameFunction { symbol: name.clone(), name, file: String::new(), line: 0 });
    }
    functions
}

fn function(symbol: &Symbol) -> FrameFunction {
    let name = symbol.name();
    let file = symbol.filename().map(|file| file.to_string_lossy().into_owned());
    FrameFunction {
        name: name.as_ref().map(|name| format!("{name:#}")).unwrap_or_default(),
        symbol: name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default(),
        file: file.unwrap_or_default(),
        line: symbol.lineno().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::hint::black_box;

    use martlet_heap_profile::SampledAllocator;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: SampledAllocator<System> = SampledAllocator::new(System);

    #[inline(never)]
    fn blocks_of_a_leak(bytes: usize) -> Vec<Vec<u8>> {
        (0..bytes / 10_000).map(|_| black_box(vec![3; 10_000])).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_profile_names_functions_and_runs_alone() {
        let run = HeapRun { seconds: 1, interval: 32 << 10 };
        let first = tokio::spawn(run.take());
        sleep(Duration::from_millis(200)).await;
        assert_eq!(run.take().await.unwrap_err(), ProfileError::Busy);
        let kept = spawn_blocking(|| blocks_of_a_leak(24 << 20)).await.unwrap();
        drop(spawn_blocking(|| blocks_of_a_leak(8 << 20)).await.unwrap());
        let profile = first.await.unwrap().unwrap();
        drop(kept);
        let is_leak = |line: &&SampledStack| {
            let mut functions = line.frames.iter().flatten();
            functions.any(|function| function.name.contains("blocks_of_a_leak"))
        };
        let lines = profile.lines();
        let of = |root: &str| -> u64 {
            let lines = lines.iter().filter(is_leak).filter(|line| line.thread == root);
            lines.map(|line| line.samples).sum()
        };
        assert!((19 << 20..29 << 20).contains(&of(IN_USE)), "{}", of(IN_USE));
        assert!((5 << 20..11 << 20).contains(&of(FREED)), "{}", of(FREED));
        let content = profile.content();
        assert_eq!(
            (content.types.last(), content.period),
            (Some(&("inuse_space", "bytes")), 32 << 10)
        );
        let innermost =
            |stack: &NamedStack| stack.frames.first()?.first().map(|it| it.name.clone());
        let own =
            profile.stacks.iter().filter_map(innermost).find(|name| name.contains("heap_profile"));
        assert_eq!(own, None, "the profiler itself is in no stack");
        // A drop of the future ends its window.
        let left = tokio::spawn(HeapRun { seconds: 3600, interval: 1 << 30 }.take());
        sleep(Duration::from_millis(200)).await;
        assert_eq!(HeapWindow::begin(1).unwrap_err(), HeapRefusal::Busy);
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
        assert!(HeapWindow::begin(1 << 30).is_ok());
    }
}

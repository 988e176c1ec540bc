//! `martlet admin profile`: processor time and heap of a process by functions, and its memory.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use martlet_admin_api::profile::{
    CPU_PROFILE, FOLDED, FREQUENCY_DEFAULT, FREQUENCY_MAX, HEAP_INTERVAL_DEFAULT,
    HEAP_INTERVAL_MAX, HEAP_INTERVAL_MIN, HEAP_PROFILE, MEMORY_PROFILE, MappingLine, MemoryProfile,
    PPROF, SECONDS_MAX,
};
use martlet_admin_api::{self as wire, MemoryLine, ServerStatus};
use martlet_serving::Failure;
use serde::Serialize;

use super::address::AdminAddress;
use super::client::AdminEndpoint;
use super::connection::AdminConnection;
use super::print::{memory_split, show, size};
use crate::columns::table;

/// Time for the names of functions and for the reply, beyond the duration of a profile.
const REST: Duration = Duration::from_mins(2);
/// Interval between two steps of the progress.
const TICK: Duration = Duration::from_millis(200);

/// Subcommands of `martlet admin profile`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
All need the role operator. A profile of processor time samples the threads that run, and one of the heap \
the allocations. They name functions of the program, and contain nothing of requests. One of each kind runs \
at a time in a process, and the audit log has it.

Examples:
  martlet admin profile cpu --seconds 30 --output cpu.pb.gz      # then: go tool pprof cpu.pb.gz
  martlet admin profile cpu --format folded --output cpu.folded  # then: flamegraph.pl cpu.folded
  martlet admin profile heap --seconds 60 --output heap.pb.gz    # then: go tool pprof heap.pb.gz
  martlet admin --cluster-key-file cluster.key profile memory --url http://127.0.0.1:6201")]
pub(super) enum ProfileCommand {
    /// Sample the processor time of a process by functions
    Cpu(CpuArgs),
    /// Sample the allocations of a process by functions; earlier ones are not in the profile
    Heap(HeapArgs),
    /// Show the memory of a process by mappings
    Memory(MemoryArgs),
}

/// Arguments of `martlet admin profile cpu`.
#[derive(Args, Debug)]
pub(super) struct CpuArgs {
    /// Samples for each second of processor time
    #[arg(long, value_name = "NUMBER", default_value_t = FREQUENCY_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(FREQUENCY_MAX)))]
    frequency: u32,
    #[command(flatten)]
    run: ProfileRun,
}

/// Arguments of `martlet admin profile heap`.
#[derive(Args, Debug)]
pub(super) struct HeapArgs {
    /// Mean number of allocated bytes between two samples
    #[arg(long, value_name = "BYTES", default_value_t = HEAP_INTERVAL_DEFAULT,
          value_parser = clap::value_parser!(u64).range(HEAP_INTERVAL_MIN..=HEAP_INTERVAL_MAX))]
    interval: u64,
    #[command(flatten)]
    run: ProfileRun,
}

/// A profile that a process samples for some seconds.
#[derive(Args, Debug)]
struct ProfileRun {
    /// Duration in seconds
    #[arg(long, value_name = "NUMBER", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Format of the file
    #[arg(long, value_enum, default_value_t)]
    format: ProfileFormat,
    /// File to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Arguments of `martlet admin profile memory`.
#[derive(Args, Debug)]
pub(super) struct MemoryArgs {
    #[command(flatten)]
    process: ProcessArgs,
}

/// The process of a profile.
#[derive(Args, Debug)]
struct ProcessArgs {
    /// Admin address of the process, such as `<https://n1:6201>` [default: --admin-address]
    #[arg(long = "url", value_name = "URL")]
    url: Option<AdminAddress>,
}

/// Format of a profile.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ProfileFormat {
    /// Protobuf of pprof, compressed by gzip
    #[default]
    Pprof,
    /// A line of text for each stack, for flame graphs
    Folded,
}

impl ProfileFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Pprof => PPROF,
            Self::Folded => FOLDED,
        }
    }
}

/// Memory of a process by the kernel, and by the process's own settings.
#[derive(Debug, Serialize)]
struct MemoryReport {
    #[serde(flatten)]
    profile: MemoryProfile,
    /// Split of the memory of a process with devices.
    split: Option<MemoryLine>,
}

/// File that was written.
#[derive(Debug, Serialize)]
struct WrittenProfile<'a> {
    file: &'a Path,
    bytes: usize,
}

impl ProcessArgs {
    fn endpoint(&self, connection: &AdminConnection) -> Result<AdminEndpoint, Failure> {
        match &self.url {
            Some(url) => connection.endpoint_at(url),
            None => connection.endpoint(),
        }
    }
}

impl ProfileCommand {
    /// Sends the command's request, and writes or prints the answer.
    pub(super) fn run(&self, connection: &AdminConnection, json: bool) -> Result<(), Failure> {
        match self {
            Self::Cpu(CpuArgs { frequency, run }) => {
                run.take(connection, CPU_PROFILE, ("frequency", &frequency.to_string()), json)
            }
            Self::Heap(HeapArgs { interval, run }) => {
                run.take(connection, HEAP_PROFILE, ("interval", &interval.to_string()), json)
            }
            Self::Memory(args) => {
                let server = args.process.endpoint(connection)?;
                let profile = server.request_json(MEMORY_PROFILE, &[])?;
                let status: ServerStatus = server.request_json(wire::STATUS, &[])?;
                let report = MemoryReport { profile, split: status.own.memory };
                show(&report, json, memory);
                Ok(())
            }
        }
    }
}

impl ProfileRun {
    /// Requests the profile of a route, and writes it. `rate` is the parameter of the distance of samples.
    fn take(
        &self,
        connection: &AdminConnection,
        path: &str,
        rate: (&str, &str),
        json: bool,
    ) -> Result<(), Failure> {
        let server = self.process.endpoint(connection)?;
        let duration = Duration::from_secs(self.seconds);
        let seconds = self.seconds.to_string();
        let query = [("seconds", seconds.as_str()), rate, ("format", self.format.name())];
        let progress = Progress::start(duration, json);
        let taken = server.patient(duration + REST).post_for_bytes(path, &query);
        progress.end();
        let bytes = taken?;
        fs::write(&self.output, &bytes).map_err(|error| {
            let path = self.output.display();
            Failure::refused(format!("the profile can't be written to {path}: {error}"))
        })?;
        let written = WrittenProfile { file: &self.output, bytes: bytes.len() };
        show(&written, json, |it| format!("wrote {} ({} bytes)\n", it.file.display(), it.bytes));
        Ok(())
    }
}

/// Progress on a terminal while the request waits.
struct Progress {
    /// Ends the thread when it is dropped.
    end: std::sync::mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Progress {
    fn start(duration: Duration, json: bool) -> Self {
        let (end, ended) = channel();
        let is_seen = !json && std::io::stderr().is_terminal();
        let thread = is_seen.then(|| thread::spawn(move || draw(duration, &ended)));
        Self { end, thread }
    }

    fn end(self) {
        let Self { end, thread } = self;
        drop(end);
        if let Some(thread) = thread {
            // The progress is decoration: its panic has no consequence.
            let _ = thread.join();
        }
    }
}

fn draw(duration: Duration, ended: &Receiver<()>) {
    let bar = ProgressBar::new(duration.as_secs());
    bar.set_style(ProgressStyle::with_template("{bar:30} {msg}").expect("the template is valid"));
    let began = Instant::now();
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let left = duration.saturating_sub(began.elapsed());
        bar.set_position(duration.as_secs() - left.as_secs());
        bar.set_message(if left.is_zero() {
            "reading the names of functions".to_owned()
        } else {
            format!("sampling, {} s left", left.as_secs() + 1)
        });
    }
    bar.finish_and_clear();
}

/// Formats the memory of a process.
fn memory(report: &MemoryReport) -> String {
    let MemoryReport { profile, split } = report;
    let mut text = format!(
        "{} in use, {} at most since the start, {} swapped, by {} threads\n\
         {} of the allocator ({}) and of stacks, {} of files\n",
        size(profile.resident_bytes),
        size(profile.resident_bytes_max),
        size(profile.swapped_bytes),
        profile.threads,
        size(profile.anonymous_bytes),
        profile.allocator,
        size(profile.file_bytes),
    );
    if let Some(split) = split {
        text += &memory_split(split);
    }
    let head = ["mappings", "count", "in use", "huge pages", "swapped", "address space"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(profile.mappings.iter().map(row));
    text + "\n" + &table(&rows, &[1, 2, 3, 4, 5])
}

fn row(line: &MappingLine) -> Vec<String> {
    vec![
        line.kind.clone(),
        line.count.to_string(),
        size(line.resident_bytes),
        size(line.huge_bytes),
        size(line.swapped_bytes),
        size(line.virtual_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_sentence_and_a_table() {
        let line = MappingLine {
            kind: "anonymous".to_owned(),
            count: 7,
            resident_bytes: 64 << 20,
            ..MappingLine::default()
        };
        let profile = MemoryProfile {
            resident_bytes: 96 << 20,
            threads: 5,
            allocator: "mimalloc".to_owned(),
            mappings: vec![line],
            ..MemoryProfile::default()
        };
        let text = memory(&MemoryReport { profile, split: None });
        let first = text.lines().next().unwrap();
        assert!(first.contains("in use") && first.ends_with("by 5 threads"), "{text}");
        let row = text.lines().last().unwrap();
        assert!(row.starts_with("anonymous") && row.contains('7'), "{text}");
    }
}

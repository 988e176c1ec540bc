//! Baselines: work that a store can't avoid, measured without a server.
//!
//! ```text
//! files ─ durable plain files          receive ─ bodies from sockets to durable files, hashed
//! commit ─ one committer on RocksDB    seal ─ AES-256-GCM in memory, as TLS uses it
//! answer ─ the HTTP library alone      relay ─ the same, and frames to two nodes and back
//! ```
//!
//! A baseline uses the algorithms of the product, so a ratio to it measures the product's overhead
//! and not the quality of another implementation. It runs in a new folder below `--dir`, which is
//! removed afterwards.

mod answer;
mod commit;
mod files;
mod receive;
mod relay;
mod seal;

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::args::{BenchArgs, BenchOperation};
use super::cpu;
use super::error::{BenchError, BenchResult};
use super::load::RunResult;
use super::report::Report;
use super::slices::Samples;
use super::tally::BenchTally;

/// Bytes of files that all threads together keep before the oldest files are replaced, so that the
/// disk does not fill up.
const KEEP_BYTES: u64 = 512 << 20;

/// Result of one thread, or of several.
#[derive(Default)]
struct BaselineResult {
    tally: BenchTally,
    /// CPU seconds of clients within this process, which are not part of the baseline.
    client_cpu_s: f64,
}

impl From<BenchTally> for BaselineResult {
    fn from(tally: BenchTally) -> Self {
        Self { tally, client_cpu_s: 0.0 }
    }
}

/// Runs the baseline that `args` names.
pub(super) fn run(args: &BenchArgs) -> BenchResult<Report> {
    let Some(dir) = args.dir.as_deref() else {
        return Ok(Report::new(args, measure(args, Path::new("")).map_err(BenchError::new)?));
    };
    let dir = dir.join(format!("martlet-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
    let outcome = measure(args, &dir);
    fs::remove_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
    Ok(Report::new(args, outcome.map_err(|error| failed(&dir, &error))?))
}

fn failed(dir: &Path, error: &io::Error) -> BenchError {
    BenchError::new(format_args!("{}: {error}", dir.display()))
}

fn measure(args: &BenchArgs, dir: &Path) -> io::Result<RunResult> {
    let size = usize::try_from(args.size.0).map_err(io::Error::other)?;
    let mut body = vec![0; size];
    SmallRng::seed_from_u64(0).fill_bytes(&mut body);
    let own = [cpu::MeasuredProcess::oneself()];
    let cpu_before = cpu::seconds(&own).map_err(io::Error::other)?;
    let begun = Instant::now();
    let BaselineResult { tally, client_cpu_s } = match args.op {
        BenchOperation::Receive => receive::run(args, dir, &body),
        BenchOperation::Commit => commit::run(args, dir, &body),
        BenchOperation::Seal => seal::run(args, &body),
        BenchOperation::Answer => answer::run(args, &body),
        BenchOperation::Relay => relay::run(args, &body),
        _ => files::run(args, dir, &body),
    }?;
    let elapsed = begun.elapsed();
    let mut cpu_s = cpu::seconds_since(&cpu_before, &own).map_err(io::Error::other)?;
    for seconds in cpu_s.values_mut() {
        *seconds = (*seconds - client_cpu_s).max(0.0);
    }
    Ok(RunResult { tally, elapsed, cpu_s, samples: Samples::default(), made: Vec::new() })
}

/// Runs `work` on `--concurrency` threads, each with its number, and merges their results.
fn on_threads(
    args: &BenchArgs,
    work: impl Fn(usize) -> io::Result<BaselineResult> + Sync,
) -> io::Result<BaselineResult> {
    let work = &work;
    let results = thread::scope(|scope| {
        let handles: Vec<_> =
            (0..args.concurrency).map(|worker| scope.spawn(move || work(worker))).collect();
        handles.into_iter().map(joined).collect::<io::Result<Vec<_>>>()
    })?;
    let mut sum = BaselineResult::default();
    for BaselineResult { tally, client_cpu_s } in results {
        sum.tally.merge(&tally);
        sum.client_cpu_s += client_cpu_s;
    }
    Ok(sum)
}

/// Returns the result of a thread.
fn joined<T>(handle: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    handle.join().map_err(|_| io::Error::other("a thread panicked"))?
}

/// Returns the number of files that each thread keeps.
fn files_kept(args: &BenchArgs) -> u64 {
    (KEEP_BYTES / args.size.0.max(1) / args.concurrency as u64).max(1)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::BenchCli;
    use super::*;

    fn run_in(dir: &Path, flags: &str) -> Report {
        let line = format!("bench --concurrency 2 --duration 50ms {flags} --dir");
        let line = line.split(' ').map(Into::into).chain([dir.as_os_str().to_owned()]);
        run(&BenchCli::try_parse_from(line).unwrap().bench).unwrap()
    }

    #[test]
    fn files_are_written_and_removed() {
        for flags in [
            "--op files --md5",
            "--op files --in-place",
            "--op receive --size 3000001",
            "--op receive --md5",
            "--op commit",
        ] {
            let dir = tempfile::tempdir().unwrap();
            assert!(!run_in(dir.path(), flags).failed(), "{flags}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{flags}");
        }
    }

    #[test]
    fn sealing_and_answering_need_no_folder() {
        for op in ["seal", "answer", "relay"] {
            let line = format!("bench --op {op} --size 20000 --concurrency 2 --duration 50ms");
            let args = BenchCli::try_parse_from(line.split(' ')).unwrap().bench;
            args.check().unwrap();
            assert!(!run(&args).unwrap().failed(), "{op}");
        }
    }
}

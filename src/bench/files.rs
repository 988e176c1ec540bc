//! Baselines for durable writes, with plain files. Threads create a file, write it, fsync it,
//! rename it and sync its folder, as a store without group commit would. Or each thread only
//! overwrites and fsyncs one file of its own.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use md5::{Digest, Md5};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::args::BenchArgs;
use super::cpu;
use super::error::{BenchError, BenchResult};
use super::load::RunResult;
use super::report::Report;
use super::slices::Samples;
use super::tally::BenchTally;

/// Bytes of files that all threads together keep before the oldest files are replaced, so that the
/// disk does not fill up.
const KEEP_BYTES: u64 = 512 << 20;

/// Runs the baseline in a new folder below `--dir`, which is removed afterwards.
pub(super) fn run(args: &BenchArgs) -> BenchResult<Report> {
    let dir = args.dir.as_deref().ok_or_else(|| BenchError::new("--op files needs --dir"))?;
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
    let workers = thread::scope(|scope| {
        let handles: Vec<_> = (0..args.concurrency)
            .map(|worker| {
                let body = &body;
                let write = if args.in_place { overwrite_file } else { write_files };
                scope.spawn(move || write(args, dir, worker, body))
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().map_err(|_| io::Error::other("a thread panicked"))?)
            .collect::<io::Result<Vec<_>>>()
    })?;
    let elapsed = begun.elapsed();
    let cpu_s = cpu::seconds_since(&cpu_before, &own).map_err(io::Error::other)?;
    let mut tally = BenchTally::default();
    for worker in &workers {
        tally.merge(worker);
    }
    Ok(RunResult { tally, elapsed, cpu_s, samples: Samples::default(), made: Vec::new() })
}

fn write_files(args: &BenchArgs, dir: &Path, worker: usize, body: &[u8]) -> io::Result<BenchTally> {
    let mut tally = BenchTally::default();
    let folder = File::open(dir)?;
    let keep = (KEEP_BYTES / args.concurrency as u64 / args.size.0.max(1)).max(1);
    let deadline = Instant::now() + args.duration;
    for index in 0.. {
        let begun = Instant::now();
        if begun >= deadline {
            break;
        }
        let temporary = dir.join(format!("{worker}-{index}.tmp"));
        let mut file = File::create_new(&temporary)?;
        file.write_all(body)?;
        if args.md5 {
            black_box(Md5::digest(body));
        }
        file.sync_data()?;
        fs::rename(&temporary, dir.join(format!("{worker}-{}", index % keep)))?;
        folder.sync_all()?;
        tally.answered(begun.elapsed(), body.len() as u64);
    }
    Ok(tally)
}

fn overwrite_file(
    args: &BenchArgs,
    dir: &Path,
    worker: usize,
    body: &[u8],
) -> io::Result<BenchTally> {
    let mut tally = BenchTally::default();
    let file = File::create_new(dir.join(worker.to_string()))?;
    file.write_all_at(body, 0)?;
    file.sync_all()?;
    let deadline = Instant::now() + args.duration;
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            return Ok(tally);
        }
        file.write_all_at(body, 0)?;
        if args.md5 {
            black_box(Md5::digest(body));
        }
        file.sync_data()?;
        tally.answered(begun.elapsed(), body.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::BenchCli;
    use super::*;

    #[test]
    fn files_are_written_and_removed() {
        for flags in ["--md5", "--in-place"] {
            let dir = tempfile::tempdir().unwrap();
            let line = format!("bench --op files --concurrency 2 --duration 50ms {flags} --dir");
            let path = dir.path().as_os_str().to_owned();
            let line = line.split(' ').map(Into::into).chain([path]);
            let args = BenchCli::try_parse_from(line).unwrap().bench;
            let report = run(&args).unwrap();
            assert!(!report.failed());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

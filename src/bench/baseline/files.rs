//! Baselines for durable writes, with plain files. Threads create a file, write it, fsync it,
//! rename it and sync its folder, as a store without group commit would. Or each thread only
//! overwrites and fsyncs one file of its own.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_proxy::checksum_of;

use super::super::args::BenchArgs;
use super::super::tally::BenchTally;
use super::{BaselineResult, files_kept, on_threads};

pub(super) fn run(args: &BenchArgs, dir: &Path, body: &[u8]) -> io::Result<BaselineResult> {
    let write = if args.in_place { overwrite_file } else { write_files };
    on_threads(args, |worker| write(args, dir, worker, body).map(Into::into))
}

fn write_files(args: &BenchArgs, dir: &Path, worker: usize, body: &[u8]) -> io::Result<BenchTally> {
    let mut tally = BenchTally::default();
    let folder = File::open(dir)?;
    let keep = files_kept(args);
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
            black_box(checksum_of(ChecksumAlgorithm::Md5, body));
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
            black_box(checksum_of(ChecksumAlgorithm::Md5, body));
        }
        file.sync_data()?;
        tally.answered(begun.elapsed(), body.len() as u64);
    }
}

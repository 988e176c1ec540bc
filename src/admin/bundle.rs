//! `martlet admin support-bundle`: one archive with the state of all reachable processes, without
//! secrets.
//!
//! The parts are those of [`support`](crate::support). This command adds doctor's findings, logs and a
//! census that files of this machine have.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use martlet_replicator::CensusReport;
use martlet_serving::{Failure, Size, parse_span};
use serde_json::Value;

use super::address::AdminAddress;
use super::connection::AdminConnection;
use crate::doctor::{self, ExaminedRole};
use crate::progress::CountedWork;
use crate::support::archive::Archive;
use crate::support::collect::{BundleProgress, BundleSource, SourcePart, collect};
use crate::support::directory::Replier;

/// Bytes at the end of a log.
const LOG_BYTES: u64 = 4 << 20;
/// Longest file of a census.
const CENSUS_BYTES_MAX: u64 = 16 << 20;

/// Arguments of `martlet admin support-bundle`.
#[derive(Args, Debug)]
#[command(after_help = "\
Secrets are left out, and so are the names of tenants, buckets, objects and access keys. Host names, \
addresses and paths are in the archive. Logs may name buckets and objects: read them before you send \
them.

Examples:
  martlet admin support-bundle
  martlet admin --admin-address 10.0.0.1:9001 --cluster-key-file /etc/martlet/cluster.key \\
      support-bundle --config /etc/martlet --census census.json
  journalctl -u martlet -n 20000 > martlet.log; martlet admin support-bundle --log martlet.log")]
pub(super) struct BundleArgs {
    /// File to write; an existing file is refused [default: martlet-support-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Log whose end is added; repeatable
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Output of the last `martlet admin census --json`
    #[arg(long, value_name = "FILE")]
    census: Option<PathBuf>,
    /// Settings file, or folder of `martlet node`, for the checks of this machine by doctor
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Role whose settings the file has [default: node for a folder, else server]
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<ExaminedRole>,
    /// Maximum bytes of all parts before compression
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    max_size: Size,
    /// Maximum time; parts that would take longer are left out
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    timeout: Duration,
}

/// Gathers the parts and writes the archive.
pub(super) fn run(
    args: &BundleArgs,
    connection: &AdminConnection,
    program: &clap::Command,
    json: bool,
) -> Result<(), Failure> {
    // A credential that can't be used fails the command, and not each part.
    connection.endpoint()?;
    let mut archive = Archive::new(args.max_size.0, args.timeout);
    let progress = Mutex::new(CountedWork::begin("support-bundle", json));
    collect(&CommandSource { args, connection, program, progress }, &mut archive);
    let (written, missing) = (archive.count(), archive.missing());
    let path = archive.write(args.output.as_deref())?;
    println!("{}: {written} parts, {missing} missing (see index.json)", path.display());
    println!("Read it before you send it: tar -xzf {}", path.display());
    Ok(())
}

/// Processes at their admin addresses, and files of this machine.
struct CommandSource<'a> {
    args: &'a BundleArgs,
    connection: &'a AdminConnection,
    program: &'a clap::Command,
    progress: Mutex<CountedWork>,
}

impl BundleSource for CommandSource<'_> {
    fn replier(&self) -> Replier<'_> {
        self.connection.replier()
    }

    fn request(
        &self,
        address: &AdminAddress,
        path: &str,
        patience: Duration,
    ) -> Result<Vec<u8>, String> {
        let endpoint = self.connection.endpoint_at(address);
        let reply = endpoint.and_then(|endpoint| endpoint.patient(patience).request_bytes(path));
        reply.map(Into::into).map_err(|failure| failure.to_string())
    }

    fn doctor(&self) -> SourcePart<Value> {
        let Self { args, connection, program, .. } = self;
        let (config, data_dir) = (args.config.as_deref(), &connection.data_dir);
        let content = Ok(doctor::shareable_report(config, args.role, data_dir, program));
        SourcePart { source: "this machine".to_owned(), content }
    }

    fn census(&self) -> SourcePart<CensusReport> {
        let content = match &self.args.census {
            None => {
                Err("no file of a census was named: run `martlet admin census --json > FILE`, \
                         and name the file with --census"
                    .to_owned())
            }
            Some(path) => read_end(path, CENSUS_BYTES_MAX).and_then(|bytes| {
                serde_json::from_slice(&bytes)
                    .map_err(|error| format!("{} is no census: {error}", path.display()))
            }),
        };
        SourcePart { source: "--census".to_owned(), content }
    }

    fn logs(&self) -> Vec<SourcePart<Vec<u8>>> {
        let log = |path: &PathBuf| SourcePart {
            source: path.display().to_string(),
            content: read_end(path, LOG_BYTES),
        };
        self.args.logs.iter().map(log).collect()
    }

    fn show(&self, progress: BundleProgress) {
        let Ok(mut display) = self.progress.lock() else { return };
        match progress {
            BundleProgress::Step(text) => display.show(text, "steps", 0, None),
            BundleProgress::Processes(asked) => {
                display.show(&asked.text(), "processes", asked.done, Some(asked.all));
            }
        }
    }
}

/// Reads the last `bytes_max` bytes of a file.
fn read_end(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| format!("{} can't be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_file_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!(read_end(&path, 4).unwrap(), b"6789");
        assert_eq!(read_end(&path, 40).unwrap().len(), 10);
        assert!(read_end(&place.path().join("none"), 4).unwrap_err().contains("can't be read"));
    }
}

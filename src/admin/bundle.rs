//! `martlet admin support-bundle`: one archive with the state of all reachable processes, without
//! secrets.
//!
//! ```text
//! admin address ─ status ─▶ processes ─┬─ settings, readiness, metrics of each
//!                                      ├─ capacity, dispersion, workers
//! this machine ─ doctor, logs, census ─┘          ▼
//!                                      archive: index.json and a file for each part
//! ```
//!
//! Values are in the archive because their kind is allowed, never because they look harmless:
//! replies are decoded into their types and encoded again, settings have a list of those that are
//! shown, and metrics have a list of labels. Names of tenants, buckets, objects and access keys are
//! left out. Only logs are copied as they are, if the operator names their files.
//!
//! The archive is bounded in bytes and time. The index lists each part, and the reason for each part
//! that is missing.

mod archive;
mod collect;
mod metrics;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use martlet_serving::{Failure, Size, parse_span};

use self::archive::Archive;
use self::collect::Collector;
use super::connection::AdminConnection;
use crate::doctor::ExaminedRole;
use crate::progress::CountedWork;

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
    let server = connection.endpoint()?;
    let mut archive = Archive::new(args.max_size.0, args.timeout);
    let progress = Mutex::new(CountedWork::begin("support-bundle", json));
    Collector { args, connection, server, program, progress }.collect(&mut archive);
    let (written, missing) = (archive.count(), archive.missing());
    let path = archive.write(args.output.as_deref())?;
    println!("{}: {written} parts, {missing} missing (see index.json)", path.display());
    println!("Read it before you send it: tar -xzf {}", path.display());
    Ok(())
}

//! Devices of many objects, as `benches/scale.py` measures them.
//!
//! * [`generate`]: loads devices with objects without bytes, or with tombstones, through the bulk path of the index.
//! * [`measure`]: opens the devices, and measures memory, look-ups, listings and writes.
//! * [`churn`]: overwrites objects with bytes, and returns their space as `reclaim` does.
//! * [`objects`]: keys, entries and extents of the objects; [`node`]: the node that has the devices;
//!   [`process`]: figures of this process.
//!
//! Each command prints one JSON object. Each runs in a process of its own, so that memory is that
//! of one step.

mod churn;
mod generate;
mod measure;
mod node;
mod objects;
mod process;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use martlet_protocol::Result;
use serde_json::Value;

/// The allocator of the servers: that of glibc takes a fifth of the CPU time of listings, whose
/// entries another thread frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure storage devices of many objects
#[derive(Debug, Parser)]
#[command(name = "martlet-scale")]
struct Cli {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Load devices with objects without bytes, or with tombstones
    Generate(generate::GenerateArgs),
    /// Open the devices, and measure them
    Measure(measure::MeasureArgs),
    /// Overwrite objects with bytes for some time
    Churn(churn::ChurnArgs),
}

/// Devices of a step.
#[derive(Args, Clone, Debug)]
struct Site {
    /// Folder with a folder for each device
    #[arg(long)]
    dir: PathBuf,
    /// Number of devices
    #[arg(long, default_value_t = 1)]
    devices: u32,
    /// Objects of each device
    #[arg(long)]
    objects: u64,
    /// MiB of index blocks in memory, for all devices
    #[arg(long, default_value_t = 256)]
    cache_mib: usize,
}

fn main() -> ExitCode {
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&error),
        };
    match runtime.block_on(run(Cli::parse().step)) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

async fn run(step: Step) -> Result<Value> {
    match step {
        Step::Generate(args) => generate::run(&args).await,
        Step::Measure(args) => measure::run(&args).await,
        Step::Churn(args) => churn::run(&args).await,
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("martlet-scale: {error}");
    ExitCode::FAILURE
}

//! `martlet bench`: a load generator for any S3 endpoint.
//!
//! ```text
//! args ─ command line                  plan ─ choice of the next call
//! requests ─ calls as HTTP             sign ─ SigV4, its key cached for a day
//! connection ─ one keep-alive socket   load ─ threads, workers, the clock
//! preparation ─ objects to read        tally ─ latencies, bytes, errors by code
//! cpu ─ CPU seconds of the server      report ─ text or JSON
//! slices ─ results by time slice       chunked ─ bodies as SDKs encode them
//! baseline ─ work without a server     error ─ the reason for a failed run
//! stage ─ progress of the preparation
//! ```
//!
//! It shares its cores with the measured server, so it does little work itself. A thread runs a
//! single-threaded runtime, and a connection belongs to one worker. Reply bodies are counted and
//! dropped as they arrive. All PUTs share one buffer, and a presigned URL is made once for each
//! object that is read.

mod args;
mod baseline;
mod chunked;
mod connection;
mod cpu;
mod error;
mod load;
mod plan;
mod preparation;
mod report;
mod requests;
mod sign;
mod slices;
mod stage;
mod tally;

use std::process::ExitCode;

pub(crate) use args::BenchArgs;

use error::{BenchError, BenchResult};
use preparation::Preparation;
use report::Report;
use requests::Requests;

/// Runs the bench. Exit code 0: it ran and no request failed; 1: it failed; 2: invalid arguments.
pub(crate) async fn run(args: BenchArgs) -> ExitCode {
    if let Err(error) = args.check() {
        eprintln!("martlet bench: {error}");
        return ExitCode::from(2);
    }
    match measure(&args).await {
        Ok(report) => {
            report.print(args.json);
            if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("martlet bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &BenchArgs) -> BenchResult<Report> {
    if args.op.is_baseline() {
        let args = args.clone();
        return tokio::task::spawn_blocking(move || baseline::run(&args))
            .await
            .map_err(BenchError::new)?;
    }
    let requests = Requests::new(args)?;
    if args.prepared {
        return Ok(Report::new(args, load::run(args, &requests).await?));
    }
    let stage = Preparation::new(args, &requests);
    let outcome = match stage.prepare().await {
        Ok(()) => load::run(args, &requests).await,
        Err(error) => Err(error),
    };
    if args.keep {
        return Ok(Report::new(args, outcome?));
    }
    // Objects are removed even if the run failed halfway.
    let made = outcome.as_ref().map_or(&[][..], |outcome| &outcome.made);
    let cleaned = stage.clean(made).await;
    let outcome = outcome?;
    cleaned?;
    Ok(Report::new(args, outcome))
}

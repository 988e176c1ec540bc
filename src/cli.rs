//! The command line: which commands there are, and which runtime each runs on.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::report;
use crate::{admin, bench, ring, server};

/// Martlet, an S3-compatible object store for datasets and checkpoints
#[derive(Debug, Parser)]
#[command(
    name = "martlet",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Start here:\n  martlet server          a server on this machine, with its data in ./martlet-data\n  martlet server --help   what can be set about it"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server: the S3 door, the store and its background workers in one process
    Server(Box<server::ServerArgs>),
    /// Ask a running server: where objects lie, how devices and workers are
    Admin(admin::AdminArgs),
    /// Look after a ring: which device holds what
    Ring(Box<ring::RingArgs>),
    /// Put load on any S3 endpoint and measure it
    Bench(Box<bench::BenchArgs>),
}

impl Cli {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Server(args) => report(server::run(&args)),
            Command::Admin(args) => report(admin::run(&args)),
            Command::Ring(args) => report(ring::run(&args)),
            Command::Bench(args) => on_runtime(bench::run(*args)),
        }
    }
}

/// Runs a command that waits for sockets.
fn on_runtime(command: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => {
            eprintln!("martlet: no runtime could be started: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

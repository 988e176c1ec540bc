//! Command line: the subcommands and the runtime that each runs on.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use martlet_serving::{Failure, folder};

use crate::{
    admin, bench, cluster, doctor, environment, node, pages, proxy, replicator, ring, server,
    storage_node, top,
};

/// Martlet, an S3-compatible object store for datasets and checkpoints
#[derive(Debug, Parser)]
#[command(
    name = "martlet",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Start here:\n  martlet server          a server on this machine, with its data \
        in ./martlet-data\n  martlet server --help   its settings"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server: S3 endpoint, storage and background workers in one process
    Server(Box<server::ServerArgs>),
    /// Run a cluster's storage node, which serves the devices of one machine
    StorageNode(Box<storage_node::StorageNodeArgs>),
    /// Run a cluster's proxy, the S3 endpoint in front of its storage nodes
    Proxy(Box<proxy::ProxyArgs>),
    /// Run a cluster's replicator, which runs its background workers
    Replicator(Box<replicator::ReplicatorArgs>),
    /// Run all roles of a cluster's machine in one process
    Node(Box<node::NodeArgs>),
    /// Query a running process: objects, devices, nodes, rings, workers
    Admin(Box<admin::AdminArgs>),
    /// Show a process and its cluster in the terminal, and refresh the figures
    Top(Box<top::TopArgs>),
    /// Check this machine and its cluster; exit code 1 on warnings, 2 on failures
    Doctor(Box<doctor::DoctorArgs>),
    /// Build and inspect rings, which place data on devices
    Ring(Box<ring::RingArgs>),
    /// Plan and apply a cluster from one file, or run a test cluster on this machine
    Cluster(Box<cluster::ClusterArgs>),
    /// Measure any S3 endpoint under load
    Bench(Box<bench::BenchArgs>),
    /// Print the completions of a shell
    Completions(pages::CompletionsArgs),
    /// Write a man page for each command into a folder
    #[command(hide = true)]
    Man(pages::ManArgs),
}

impl Command {
    /// Returns true for commands that create data files, readable by their owner alone. The other
    /// commands write only files that the user names, with the permissions of the user's shell.
    fn keeps_data(&self) -> bool {
        matches!(
            self,
            Self::Server(_)
                | Self::StorageNode(_)
                | Self::Proxy(_)
                | Self::Replicator(_)
                | Self::Node(_)
                | Self::Cluster(_)
        )
    }
}

impl Cli {
    /// Runs the command and returns its exit code.
    pub(crate) fn run(self) -> ExitCode {
        if self.command.keeps_data() {
            folder::create_for_owner_alone();
            if let Err(failure) = environment::check(&Self::command()) {
                return report(Err(failure));
            }
        }
        match self.command {
            Command::Server(args) => report(server::run(&args)),
            Command::StorageNode(args) => report(storage_node::run(&args)),
            Command::Proxy(args) => report(proxy::run(&args)),
            Command::Replicator(args) => report(replicator::run(&args)),
            Command::Node(args) => report(node::run(&args)),
            Command::Admin(args) => report(admin::run(&args, &Self::command())),
            Command::Doctor(args) => {
                doctor::run(&args, &Self::command()).unwrap_or_else(|failure| report(Err(failure)))
            }
            Command::Top(args) => report(top::run(&args)),
            Command::Ring(args) => report(ring::run(&args)),
            Command::Cluster(args) => report(cluster::run(&args)),
            Command::Bench(args) => on_runtime(bench::run(*args)),
            Command::Completions(args) => report(pages::print_completions(Self::command(), &args)),
            Command::Man(args) => report(pages::write_man_pages(Self::command(), &args)),
        }
    }
}

/// Prints a failure to standard error and returns the exit code of an outcome.
fn report(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("martlet: {failure}");
    match failure {
        Failure::Usage(_) => ExitCode::from(2),
        Failure::Refused(_) => ExitCode::FAILURE,
    }
}

/// Runs an asynchronous command on a multi-threaded runtime.
fn on_runtime(command: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => {
            eprintln!("martlet: the async runtime could not be started: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

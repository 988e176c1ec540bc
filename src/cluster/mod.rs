//! `martlet cluster`: a cluster of several machines from one file (`deploy`), and a cluster of real
//! processes on one machine, for trials, tests and benchmarks.
//!
//! ```text
//! args ─ command line                up ─ start, watch, answer, stop
//! layout, ports ─ nodes and ports    folder, rings ─ files on disk
//! process, child ─ one process       supervisor ─ all processes, in order
//! control ─ command ◀─▶ up           probe, survey, print ─ status
//! join, push ─ addition of a node
//!
//! martlet cluster kill 2 ─control.sock─▶ martlet cluster up ─┬─▶ martlet storage-node (n1, n2, …)
//!                                                            ├─▶ martlet replicator   (r1, r2, …)
//!                                                            └─▶ martlet proxy        (p1, …)
//! ```
//!
//! * Processes are those of a real cluster: the `martlet` binary, with one settings file each.
//!   Their behaviour does not depend on `up`.
//! * No process outlives `up`: the kernel kills them when `up` ends, for whatever reason.
//! * All processes listen on 127.0.0.1 only.

mod args;
mod child;
mod control;
mod deploy;
mod folder;
mod join;
mod layout;
mod ports;
mod print;
mod probe;
mod process;
mod push;
mod rings;
mod supervisor;
mod survey;
mod up;

use martlet_serving::Failure;

pub(crate) use self::args::ClusterArgs;
use self::args::ClusterCommand;

/// Runs the command to its end.
pub(crate) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    match &args.command {
        ClusterCommand::Up(args) => up::run(args),
        ClusterCommand::Plan(args) => deploy::plan(args),
        ClusterCommand::Apply(args) => deploy::apply(args),
        ClusterCommand::Child { parent, arguments } => child::become_role(*parent, arguments),
        command => {
            let json = matches!(command, ClusterCommand::Status { json: true, .. });
            let (place, request) = command.request().expect("all other commands have a request");
            up::run_command(&place.data_dir, &request, json)
        }
    }
}

//! `martlet cluster`: a whole cluster of real processes on one machine, for trying things out and for
//! tests and benchmarks.
//!
//! ```text
//! args ─ what was asked              up ─ start, watch, answer, stop
//! layout, ports ─ what is where      folder, rings ─ what lies on disk
//! process, child ─ one process       supervisor ─ all of them, in order
//! control, wire ─ command ◀─▶ up     probe, survey, print ─ how everything is
//! join, push ─ a node joins
//!
//! martlet cluster kill 2 ──control.sock──▶ martlet cluster up ─┬─▶ martlet storage-node (n1, n2, …)
//!                                                              ├─▶ martlet replicator   (r1, r2, …)
//!                                                              └─▶ martlet proxy        (p1, …)
//! ```
//!
//! * Processes are those of a real cluster: the same binary, one file of settings each. Nothing that
//!   they do depends on who started them.
//! * No process outlives `up`: the kernel kills them when it is gone, however it went.
//! * Everything listens on 127.0.0.1 alone.

mod args;
mod child;
mod control;
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
mod wire;

pub(crate) use self::args::ClusterArgs;
use self::args::Command;
use crate::failure::Failure;

/// Runs a command to its end.
pub(crate) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    match &args.command {
        Command::Up(args) => up::run(args),
        Command::Child { parent, arguments } => child::become_role(*parent, arguments),
        command => {
            let json = matches!(command, Command::Status { json: true, .. });
            let (place, request) = command.request().expect("all others ask a running cluster");
            up::ask(&place.data_dir, &request, json)
        }
    }
}

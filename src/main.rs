//! `martlet`: every role of the object store in one binary, and the commands that look after it.
//!
//! This crate holds no algorithms. It reads settings, opens what the other crates offer, puts it
//! together and tells people what happened.

mod admin;
mod bench;
mod cli;
mod cluster;
mod columns;
mod failure;
mod membership;
mod outlook;
mod policies;
mod process;
mod proxy;
mod replicator;
mod ring;
mod server;
mod storage_node;
mod units;

use std::process::ExitCode;

use clap::Parser;

/// glibc's allocator keeps what its many arenas once held; this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}

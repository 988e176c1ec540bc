//! `martlet`: one binary with every role of the object store and its operator commands.
//!
//! This crate holds commands, and the wiring of the roles. It reads arguments and settings,
//! assembles the library crates and reports results.

mod admin;
mod bench;
mod cli;
mod cluster;
mod columns;
mod doctor;
mod environment;
mod node;
mod pages;
mod policies;
mod process;
mod progress;
mod proxy;
mod replicator;
mod ring;
mod server;
mod storage_node;
mod support;
mod top;

use std::process::ExitCode;

use clap::Parser;
use martlet_heap_profile::SampledAllocator;
use mimalloc::MiMalloc;

/// Global allocator. glibc's allocator keeps freed memory in its many arenas; mimalloc returns it. The
/// wrapper samples allocations while a heap profile is taken.
#[global_allocator]
static ALLOCATOR: SampledAllocator<MiMalloc> = SampledAllocator::new(MiMalloc);

fn main() -> ExitCode {
    cli::Cli::parse().run()
}

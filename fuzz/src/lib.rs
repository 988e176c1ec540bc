//! Runs fuzz targets: one check for each input, with a bounded heap.
//!
//! The checks and their properties are in the modules `fuzzing` of the crates under test, where unit
//! tests replay the inputs that `corpus` keeps. The programs here add libFuzzer, which makes inputs
//! that reach new code.

use std::alloc::System;
use std::hint::black_box;
use std::path::Path;
use std::{env, fs, io, panic, process};

use cap::Cap;
use martlet_protocol::testing::fuzz_target::FuzzTarget;

/// Heap of the process. An allocation beyond its limit ends the process, which is a finding.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Folder that a program writes its seeds to, instead of running.
const SEEDS: &str = "MARTLET_FUZZ_SEEDS";

/// Begins a program. Writes the seeds of its target and ends it, if the environment names a folder
/// for them.
pub fn begin(target: &FuzzTarget) {
    lift_the_limit_for_panics();
    let Some(folder) = env::var_os(SEEDS) else { return };
    let code = match write_seeds(target, folder.as_ref()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!(
                "could not write the seeds of {} to {}: {error}",
                target.name,
                folder.display()
            );
            1
        }
    };
    process::exit(code);
}

/// Takes the bound off the heap when a check panics: the backtrace of a panic takes memory, and a
/// failed allocation within a panic would hang instead of ending the process.
fn lift_the_limit_for_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        HEAP.set_limit(usize::MAX).expect("the limit is above the heap");
        report(info);
    }));
}

fn write_seeds(target: &FuzzTarget, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:02}")), seed)?;
    }
    Ok(())
}

/// Checks one input, which may take as much heap as its target allows.
///
/// # Panics
/// If a property of the target doesn't hold.
pub fn run(target: &FuzzTarget, input: &[u8]) {
    let limit = HEAP.allocated().saturating_add(target.heap_bytes_max);
    HEAP.set_limit(limit).expect("the limit is above the heap");
    black_box((target.check)(input));
    HEAP.set_limit(usize::MAX).expect("the limit is above the heap");
}

//! Runs fuzz targets: one check for each input, with a bounded heap.
//!
//! The checks and their properties are in the modules `fuzzing` of the crates under test, where unit
//! tests replay the inputs that `corpus` keeps. The programs here add libFuzzer, which makes inputs
//! that reach new code.

use std::alloc::System;
use std::hint::black_box;

use cap::Cap;
use martlet_protocol::testing::fuzz_target::FuzzTarget;

/// Heap of the process. An allocation beyond its limit ends the process, which is a finding.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// All targets.
pub const TARGETS: [FuzzTarget; 8] = [
    martlet_s3compat::fuzzing::AWS_CHUNKED,
    martlet_s3compat::fuzzing::DOCUMENTS,
    martlet_protocol::fuzzing::ENTRIES,
    martlet_protocol::fuzzing::FRAMES,
    martlet_storage_node::fuzzing::LOG_TAIL,
    martlet_s3compat::fuzzing::POLICIES,
    martlet_ring::fuzzing::RING_FILE,
    martlet_s3compat::fuzzing::SIGNATURES,
];

/// Checks one input, which may take as much heap as its target allows.
pub fn run(target: &FuzzTarget, input: &[u8]) {
    let limit = HEAP.allocated().saturating_add(target.heap_bytes_max);
    HEAP.set_limit(limit).expect("the limit is above the heap");
    black_box((target.check)(input));
    HEAP.set_limit(usize::MAX).expect("the limit is above the heap");
}

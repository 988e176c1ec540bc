//! Fuzz target `ring_file`: ring files.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| martlet_fuzz::run(&martlet_ring::fuzzing::RING_FILE, input));

//! Fuzz target `ring_file`: ring files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_ring::fuzzing::RING_FILE;

fuzz_target!(init: martlet_fuzz::begin(&RING_FILE), |input: &[u8]| martlet_fuzz::run(&RING_FILE, input));

//! Fuzz target `signatures`: heads of requests and their signatures.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| martlet_fuzz::run(&martlet_s3compat::fuzzing::SIGNATURES, input));

//! Fuzz target `signatures`: heads of requests and their signatures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_s3compat::fuzzing::SIGNATURES;

fuzz_target!(init: martlet_fuzz::begin(&SIGNATURES), |input: &[u8]| martlet_fuzz::run(&SIGNATURES, input));

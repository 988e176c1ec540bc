//! Fuzz target `policies`: policies and trust documents.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_s3compat::fuzzing::POLICIES;

fuzz_target!(init: martlet_fuzz::begin(&POLICIES), |input: &[u8]| martlet_fuzz::run(&POLICIES, input));

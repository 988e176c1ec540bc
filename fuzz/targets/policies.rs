//! Fuzz target `policies`: policies and trust documents.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| martlet_fuzz::run(&martlet_s3compat::fuzzing::POLICIES, input));

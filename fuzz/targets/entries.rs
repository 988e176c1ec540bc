//! Fuzz target `entries`: stored entries, manifests and documents.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| martlet_fuzz::run(&martlet_protocol::fuzzing::ENTRIES, input));

//! Fuzz target `entries`: stored entries, manifests and documents.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_protocol::fuzzing::ENTRIES;

fuzz_target!(init: martlet_fuzz::begin(&ENTRIES), |input: &[u8]| martlet_fuzz::run(&ENTRIES, input));

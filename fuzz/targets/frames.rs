//! Fuzz target `frames`: bytes between proxies and nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_protocol::fuzzing::FRAMES;

fuzz_target!(init: martlet_fuzz::begin(&FRAMES), |input: &[u8]| martlet_fuzz::run(&FRAMES, input));

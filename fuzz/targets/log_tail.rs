//! Fuzz target `log_tail`: logs, rows and headers of a device.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| martlet_fuzz::run(&martlet_storage_node::fuzzing::LOG_TAIL, input));

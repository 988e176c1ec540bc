//! Fuzz target `log_tail`: logs, rows and headers of a device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_storage_node::fuzzing::LOG_TAIL;

fuzz_target!(init: martlet_fuzz::begin(&LOG_TAIL), |input: &[u8]| martlet_fuzz::run(&LOG_TAIL, input));

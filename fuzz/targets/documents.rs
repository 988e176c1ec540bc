//! Fuzz target `documents`: documents of requests.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_s3compat::fuzzing::DOCUMENTS;

fuzz_target!(init: martlet_fuzz::begin(&DOCUMENTS), |input: &[u8]| martlet_fuzz::run(&DOCUMENTS, input));

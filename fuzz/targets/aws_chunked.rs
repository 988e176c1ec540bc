//! Fuzz target `aws_chunked`: bodies in the aws-chunked encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use martlet_s3compat::fuzzing::AWS_CHUNKED;

fuzz_target!(init: martlet_fuzz::begin(&AWS_CHUNKED), |input: &[u8]| martlet_fuzz::run(&AWS_CHUNKED, input));

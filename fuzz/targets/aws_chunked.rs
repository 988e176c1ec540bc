//! Fuzz target `aws_chunked`: bodies in the aws-chunked encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| martlet_fuzz::run(&martlet_s3compat::fuzzing::AWS_CHUNKED, input));

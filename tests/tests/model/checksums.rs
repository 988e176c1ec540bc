//! Checksums of bodies, by the algorithms that S3 names
//! (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html>).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use xxhash_rust::{xxh3, xxh64};

/// Headers of the algorithms.
pub(crate) const HEADERS: [&str; 10] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-md5",
    "x-amz-checksum-sha512",
    "x-amz-checksum-xxhash64",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash128",
];
/// Algorithm of objects whose request named none.
pub(crate) const DEFAULT: usize = 2;

/// Returns the checksum of bytes, as its header has it.
pub(crate) fn checksum(algorithm: usize, bytes: &[u8]) -> String {
    let crc = |algorithm| crc_fast::checksum(algorithm, bytes).to_be_bytes();
    let digest = match algorithm {
        0 => crc(CrcAlgorithm::Crc32IsoHdlc)[4..].to_vec(),
        1 => crc(CrcAlgorithm::Crc32Iscsi)[4..].to_vec(),
        2 => crc(CrcAlgorithm::Crc64Nvme).to_vec(),
        3 => Sha1::digest(bytes).to_vec(),
        4 => Sha256::digest(bytes).to_vec(),
        5 => Md5::digest(bytes).to_vec(),
        6 => Sha512::digest(bytes).to_vec(),
        7 => xxh64::xxh64(bytes, 0).to_be_bytes().to_vec(),
        8 => xxh3::xxh3_64(bytes).to_be_bytes().to_vec(),
        _ => xxh3::xxh3_128(bytes).to_be_bytes().to_vec(),
    };
    STANDARD.encode(digest)
}

/// Returns the MD5 of bytes, as `Content-MD5` has it.
pub(crate) fn content_md5(bytes: &[u8]) -> String {
    checksum(5, bytes)
}

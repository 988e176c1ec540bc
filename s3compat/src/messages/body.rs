//! Errors about bodies: their lengths, hashes, chunks and checksums.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const BAD_CHECKSUM: ErrorMessage =
    known(Code::BadDigest, "The {} you specified did not match the calculated checksum.");
pub(crate) const BAD_MD5: ErrorMessage =
    known(Code::BadDigest, "The Content-MD5 you specified did not match what we received.");
pub(crate) const BAD_PART_CHECKSUM: ErrorMessage =
    known(Code::BadDigest, "The {} you specified for part {} did not match what we received.");
pub(crate) const CHECKSUM_ALGORITHM: ErrorMessage = known(
    Code::InvalidRequest,
    "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, \
     CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, XXHASH128, XXHASH3, XXHASH64]",
);
pub(crate) const CHECKSUM_CUT_OFF: ErrorMessage =
    known(Code::BadDigest, "Value for {} header is invalid.");
pub(crate) const CHECKSUM_HEADER: ErrorMessage =
    known(Code::InvalidRequest, "Value for {} header is invalid.");
pub(crate) const CHECKSUM_KIND: ErrorMessage = known(
    Code::InvalidRequest,
    "The {} checksum type cannot be used with the {} checksum algorithm.",
);
pub(crate) const CHECKSUM_KIND_ALONE: ErrorMessage = known(
    Code::InvalidRequest,
    "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm \
     header.",
);
pub(crate) const CHECKSUM_NAME: ErrorMessage = known(
    Code::InvalidRequest,
    "The algorithm type you specified in x-amz-checksum- header is invalid.",
);
pub(crate) const CHECKSUM_TRAILER: ErrorMessage =
    known(Code::InvalidRequest, "Value for {} trailing header is invalid.");
pub(crate) const CHUNKED_UNSAID: ErrorMessage = known(
    Code::InvalidRequest,
    "Content-Encoding aws-chunked needs an x-amz-content-sha256 of STREAMING-*",
);
pub(crate) const CHUNKS_UNSIGNED: ErrorMessage =
    known(Code::InvalidRequest, "Signed chunks need a request signed with AWS4-HMAC-SHA256");
pub(crate) const CHUNK_SIZE: ErrorMessage = known(
    Code::InvalidChunkSize,
    "Only the last chunk is allowed to have a size less than {} bytes",
);
pub(crate) const CONTENT_LENGTH: ErrorMessage = known(
    Code::IncompleteBody,
    "You did not provide the number of bytes specified by the Content-Length HTTP header",
);
pub(crate) const CONTENT_SHA256: ErrorMessage = known(
    Code::XAmzContentSha256Mismatch,
    "The provided 'x-amz-content-sha256' header does not match what was computed.",
);
pub(crate) const CONTENT_SHA256_VALUE: ErrorMessage = known(
    Code::InvalidArgument,
    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
     STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-UNSIGNED-PAYLOAD-TRAILER, or a valid sha256 \
     value.",
);
pub(crate) const ENTITY_TOO_LARGE: ErrorMessage =
    known(Code::EntityTooLarge, "Your proposed upload exceeds the maximum allowed size");
pub(crate) const ENTITY_TOO_SMALL: ErrorMessage =
    known(Code::EntityTooSmall, "Your proposed upload is smaller than the minimum allowed size");
pub(crate) const INCOMPLETE_BODY: ErrorMessage =
    known(Code::IncompleteBody, "The request body terminated unexpectedly");
pub(crate) const INVALID_MD5: ErrorMessage =
    known(Code::InvalidDigest, "The Content-MD5 you specified was invalid.");
pub(crate) const LENGTH: ErrorMessage = known(Code::InvalidArgument, "A length is not a number");
pub(crate) const MALFORMED_TRAILER: ErrorMessage = known(
    Code::MalformedTrailer,
    "The request contained trailing data that was not well-formed or did not conform to our published \
     schema",
);
pub(crate) const MANY_CHECKSUMS: ErrorMessage = known(
    Code::InvalidRequest,
    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
);
pub(crate) const MISSING_DIGEST: ErrorMessage = known(
    Code::InvalidRequest,
    "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
);
pub(crate) const MISSING_LENGTH: ErrorMessage =
    known(Code::MissingContentLength, "You must provide the Content-Length HTTP header.");
pub(crate) const PART_CHECKSUM: ErrorMessage =
    known(Code::InvalidArgument, "Invalid Base64 or multiple checksums present in request");
pub(crate) const SDK_ALGORITHM: ErrorMessage = known(
    Code::InvalidRequest,
    "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer \
     headers were found.",
);
pub(crate) const TRAILER_NAME: ErrorMessage =
    known(Code::InvalidRequest, "The value specified in the x-amz-trailer header is not supported");
pub(crate) const UNSIGNED_CHUNKED: ErrorMessage = known(
    Code::InvalidArgument,
    "aws-chunked encoding is not supported when x-amz-content-sha256 UNSIGNED-PAYLOAD is supplied",
);

//! S3's errors: each with its code, which has its status, and its sentence.
//!
//! Programs match codes, people and their searches match sentences: so these are S3's own, to the letter,
//! whichever part of the store raises the error. A `{}` stands for what the error is about. Further
//! elements (`ArgumentName`, `ExpectedDigest`, …) go along as details of the [`Refusal`].

use s3s::S3Error;

use crate::auth::{Code, Refusal};

/// One of S3's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// Its code.
    pub(crate) code: Code,
    /// Its message.
    pub(crate) text: &'static str,
}

impl Sentence {
    /// The error.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::new(self.code, self.text)
    }

    /// The error about something.
    pub(crate) fn about(&self, what: impl std::fmt::Display) -> Refusal {
        Refusal::new(self.code, self.text.replacen("{}", &what.to_string(), 1))
    }

    /// The error about two things, in this order.
    pub(crate) fn about_both(
        &self,
        first: impl std::fmt::Display,
        second: impl std::fmt::Display,
    ) -> Refusal {
        let (before, rest) = self.text.split_once("{}").unwrap_or((self.text, ""));
        let (between, after) = rest.split_once("{}").unwrap_or((rest, ""));
        Refusal::new(self.code, format!("{before}{first}{between}{second}{after}"))
    }

    /// The error about an argument of this name, which has this value.
    pub(crate) fn argument(&self, name: &'static str, value: impl std::fmt::Display) -> Refusal {
        let value = value.to_string();
        self.about(&value).with_detail("ArgumentName", name).with_detail("ArgumentValue", value)
    }

    /// The error as operations return errors.
    pub(crate) fn error(&self) -> S3Error {
        self.refusal().into()
    }
}

const fn known(code: Code, text: &'static str) -> Sentence {
    Sentence { code, text }
}

pub(crate) const ACCESS_DENIED: Sentence = known(Code::AccessDenied, "Access Denied");
pub(crate) const BAD_CHECKSUM: Sentence =
    known(Code::BadDigest, "The {} you specified did not match the calculated checksum.");
pub(crate) const BAD_MD5: Sentence =
    known(Code::BadDigest, "The Content-MD5 you specified did not match what we received.");
pub(crate) const BAD_PART_CHECKSUM: Sentence =
    known(Code::BadDigest, "The {} you specified for part {} did not match what we received.");
pub(crate) const BUCKET_EXISTS: Sentence = known(
    Code::BucketAlreadyExists,
    "The requested bucket name is not available. The bucket namespace is shared by all users of the \
     system. Please select a different name and try again.",
);
pub(crate) const BUCKET_NOT_EMPTY: Sentence =
    known(Code::BucketNotEmpty, "The bucket you tried to delete is not empty");
pub(crate) const CHECKSUM_ALGORITHM: Sentence = known(
    Code::InvalidRequest,
    "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, \
     CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, XXHASH128, XXHASH3, XXHASH64]",
);
pub(crate) const CHECKSUM_HEADER: Sentence =
    known(Code::InvalidRequest, "Value for {} header is invalid.");
pub(crate) const CHECKSUM_TRAILER: Sentence =
    known(Code::InvalidRequest, "Value for {} trailing header is invalid.");
pub(crate) const CHUNK_SIZE: Sentence = known(
    Code::InvalidChunkSize,
    "Only the last chunk is allowed to have a size less than {} bytes",
);
pub(crate) const CONFLICT: Sentence = known(
    Code::ConditionalRequestConflict,
    "The conditional request cannot succeed due to a conflicting operation against this resource.",
);
pub(crate) const CONTENT_LENGTH: Sentence = known(
    Code::IncompleteBody,
    "You did not provide the number of bytes specified by the Content-Length HTTP header",
);
pub(crate) const CONTENT_SHA256: Sentence = known(
    Code::XAmzContentSha256Mismatch,
    "The provided 'x-amz-content-sha256' header does not match what was computed.",
);
pub(crate) const CONTENT_SHA256_VALUE: Sentence = known(
    Code::InvalidArgument,
    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
     STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-UNSIGNED-PAYLOAD-TRAILER, or a valid sha256 \
     value.",
);
pub(crate) const COPY_ONTO_ITSELF: Sentence = known(
    Code::InvalidRequest,
    "This copy request is illegal because it is trying to copy an object to itself without changing the \
     object's metadata, storage class, website redirect location or encryption attributes.",
);
pub(crate) const COPY_RANGE: Sentence = known(
    Code::InvalidArgument,
    "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
     zero-based offsets of the first and last bytes to copy",
);
pub(crate) const CORS_BUCKET: Sentence =
    known(Code::AccessForbidden, "CORSResponse: Bucket not found");
pub(crate) const CORS_CONTROL: Sentence =
    known(Code::InvalidRequest, "A CORS rule has a control character");
pub(crate) const CORS_DISABLED: Sentence =
    known(Code::AccessForbidden, "CORSResponse: CORS is not enabled for this bucket.");
pub(crate) const CORS_EXPOSED: Sentence = known(
    Code::InvalidRequest,
    "ExposeHeader \"{}\" contains wildcard. We currently do not support wildcard for ExposeHeader.",
);
pub(crate) const CORS_FORBIDDEN: Sentence = known(
    Code::AccessForbidden,
    "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, \
     request method / Access-Control-Request-Method or Access-Control-Request-Headers are not \
     whitelisted by the resource's CORS spec.",
);
pub(crate) const CORS_HEADERS: Sentence =
    known(Code::BadRequest, "Access-Control-Request-Headers names too many headers");
pub(crate) const CORS_ID: Sentence =
    known(Code::InvalidRequest, "The ID of a CORS rule has {} characters at most");
pub(crate) const CORS_METHOD: Sentence = known(
    Code::InvalidRequest,
    "Found unsupported HTTP method in CORS config. Unsupported method is {}",
);
pub(crate) const CORS_NAME: Sentence =
    known(Code::InvalidRequest, "{} \"{}\" contains invalid character.");
pub(crate) const CORS_ORIGIN: Sentence =
    known(Code::BadRequest, "Insufficient information. Origin request header needed.");
pub(crate) const CORS_REQUEST_HEADER: Sentence =
    known(Code::BadRequest, "{} \"{}\" contains invalid character.");
pub(crate) const CORS_REQUEST_METHOD: Sentence =
    known(Code::BadRequest, "Invalid Access-Control-Request-Method: {}");
pub(crate) const CORS_RULES: Sentence =
    known(Code::InvalidRequest, "A bucket has {} CORS rules at most");
pub(crate) const CORS_WILDCARD: Sentence =
    known(Code::InvalidRequest, "{} \"{}\" can not have more than one wildcard.");
pub(crate) const DIRECTIVE: Sentence = known(Code::InvalidArgument, "Unknown {} directive.");
pub(crate) const ENTITY_TOO_LARGE: Sentence =
    known(Code::EntityTooLarge, "Your proposed upload exceeds the maximum allowed size");
pub(crate) const ENTITY_TOO_SMALL: Sentence =
    known(Code::EntityTooSmall, "Your proposed upload is smaller than the minimum allowed size");
pub(crate) const INCOMPLETE_BODY: Sentence =
    known(Code::IncompleteBody, "The request body terminated unexpectedly");
pub(crate) const INTERNAL: Sentence =
    known(Code::InternalError, "We encountered an internal error. Please try again.");
pub(crate) const INVALID_MD5: Sentence =
    known(Code::InvalidDigest, "The Content-MD5 you specified was invalid.");
pub(crate) const INVALID_PART: Sentence = known(
    Code::InvalidPart,
    "One or more of the specified parts could not be found.  The part may not have been uploaded, or the \
     specified entity tag may not match the part's entity tag.",
);
pub(crate) const INVALID_PART_ORDER: Sentence = known(
    Code::InvalidPartOrder,
    "The list of parts was not in ascending order. Parts must be ordered by part number.",
);
pub(crate) const INVALID_RANGE: Sentence =
    known(Code::InvalidRange, "The requested range is not satisfiable");
pub(crate) const KEY_TOO_LONG: Sentence = known(Code::KeyTooLong, "Your key is too long");
pub(crate) const LIFECYCLE_ACTION: Sentence =
    known(Code::InvalidRequest, "At least one action needs to be specified in a rule");
pub(crate) const LIFECYCLE_DATE: Sentence =
    known(Code::InvalidArgument, "'Date' must be at midnight GMT");
pub(crate) const LIFECYCLE_ID: Sentence =
    known(Code::InvalidArgument, "ID length should not exceed allowed limit of {}");
pub(crate) const LIFECYCLE_IDS: Sentence =
    known(Code::InvalidArgument, "Rule ID must be unique. Found same ID for rules");
pub(crate) const LIFECYCLE_MINIMUM: Sentence = known(
    Code::InvalidRequest,
    "Invalid TransitionDefaultMinimumObjectSize value. Please specify one of {}",
);
pub(crate) const LIFECYCLE_NEWER: Sentence =
    known(Code::InvalidArgument, "'NewerNoncurrentVersions' is {} at most");
pub(crate) const LIFECYCLE_NUMBER: Sentence =
    known(Code::InvalidArgument, "{} must be a positive integer");
pub(crate) const LIFECYCLE_PREFIX: Sentence =
    known(Code::InvalidRequest, "The maximum size of a prefix is {}");
pub(crate) const LIFECYCLE_SIZE: Sentence =
    known(Code::InvalidRequest, "Object sizes are not negative");
pub(crate) const LIFECYCLE_SIZES: Sentence = known(
    Code::InvalidRequest,
    "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'",
);
pub(crate) const LIFECYCLE_SIZE_MIN: Sentence =
    known(Code::InvalidRequest, "ObjectSizeLessThan starts at 1");
pub(crate) const LIFECYCLE_TRANSITION: Sentence = known(
    Code::NotImplemented,
    "Rules that change the storage class of objects are not implemented",
);
pub(crate) const LIFECYCLE_WITH: Sentence =
    known(Code::InvalidRequest, "{} cannot be specified with {}");
pub(crate) const LIMIT: Sentence =
    known(Code::InvalidArgument, "Argument {} must be an integer between 0 and 2147483647");
pub(crate) const LOCKED: Sentence =
    known(Code::AccessDenied, "Access Denied because object protected by object lock.");
pub(crate) const MALFORMED_TRAILER: Sentence = known(
    Code::MalformedTrailer,
    "The request contained trailing data that was not well-formed or did not conform to our published \
     schema",
);
pub(crate) const MALFORMED_XML: Sentence = known(
    Code::MalformedXml,
    "The XML you provided was not well-formed or did not validate against our published schema",
);
pub(crate) const MANY_CHECKSUMS: Sentence = known(
    Code::InvalidRequest,
    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
);
pub(crate) const METHOD_NOT_ALLOWED: Sentence =
    known(Code::MethodNotAllowed, "The specified method is not allowed against this resource.");
pub(crate) const MISSING_DIGEST: Sentence = known(
    Code::InvalidRequest,
    "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
);
pub(crate) const NOT_A_NUMBER: Sentence =
    known(Code::InvalidArgument, "Provided {} not an integer or within integer range");
pub(crate) const NOTIFICATION_AMBIGUOUS: Sentence = known(
    Code::InvalidArgument,
    "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the \
     prefixes are overlapping for the same event type.",
);
pub(crate) const NOTIFICATION_ARN: Sentence =
    known(Code::InvalidArgument, "The ARN could not be parsed");
pub(crate) const NOTIFICATION_BRIDGE: Sentence =
    known(Code::NotImplemented, "There is no event bridge to deliver to");
pub(crate) const NOTIFICATION_COUNT: Sentence =
    known(Code::InvalidArgument, "A bucket has at most {} notification configurations");
pub(crate) const NOTIFICATION_EVENT: Sentence =
    known(Code::InvalidArgument, "The event is not supported for notifications");
pub(crate) const NOTIFICATION_FILTER: Sentence =
    known(Code::InvalidArgument, "filter rule name must be either prefix or suffix");
pub(crate) const NOTIFICATION_FILTERS: Sentence =
    known(Code::InvalidArgument, "Cannot specify more than one {} rule in a filter.");
pub(crate) const NOTIFICATION_FILTER_VALUE: Sentence = known(
    Code::InvalidArgument,
    "Size of filter rule value cannot exceed {} bytes in UTF-8 representation",
);
pub(crate) const NOTIFICATION_ID: Sentence =
    known(Code::InvalidArgument, "IDs have at most {} characters");
pub(crate) const NOTIFICATION_IDS: Sentence =
    known(Code::InvalidArgument, "Same ID used for multiple configurations. IDs must be unique");
pub(crate) const NOTIFICATION_OVERLAP: Sentence = known(
    Code::InvalidArgument,
    "Configurations overlap. Configurations on the same bucket cannot share a common event type.",
);
pub(crate) const NOTIFICATION_REGION: Sentence = known(
    Code::InvalidArgument,
    "The notification destination service region is not valid for the bucket location constraint",
);
pub(crate) const NOTIFICATION_TARGET: Sentence =
    known(Code::InvalidArgument, "Unable to validate the following destination configurations");
pub(crate) const NO_SUCH_BUCKET: Sentence =
    known(Code::NoSuchBucket, "The specified bucket does not exist");
pub(crate) const NO_SUCH_CORS: Sentence =
    known(Code::NoSuchCorsConfiguration, "The CORS configuration does not exist");
pub(crate) const NO_SUCH_KEY: Sentence =
    known(Code::NoSuchKey, "The specified key does not exist.");
pub(crate) const NO_SUCH_LIFECYCLE: Sentence =
    known(Code::NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist");
pub(crate) const NO_SUCH_TAGS: Sentence = known(Code::NoSuchTagSet, "The TagSet does not exist");
pub(crate) const NO_SUCH_UPLOAD: Sentence = known(
    Code::NoSuchUpload,
    "The specified upload does not exist. The upload ID may be invalid, or the upload may have been \
     aborted or completed.",
);
pub(crate) const NO_SUCH_VERSION: Sentence =
    known(Code::NoSuchVersion, "The specified version does not exist.");
pub(crate) const OBJECT_ATTRIBUTE: Sentence =
    known(Code::InvalidArgument, "Invalid attribute name specified.");
pub(crate) const PART_CHECKSUM: Sentence =
    known(Code::InvalidArgument, "Invalid Base64 or multiple checksums present in request");
pub(crate) const PART_NUMBER: Sentence =
    known(Code::InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive");
pub(crate) const PART_NUMBER_OF_COMPLETE: Sentence =
    known(Code::InvalidArgument, "PartNumber must be >= 1");
pub(crate) const PART_NUMBER_RANGE: Sentence =
    known(Code::InvalidPartNumber, "The requested partnumber is not satisfiable");
pub(crate) const PRECONDITION_FAILED: Sentence = known(
    Code::PreconditionFailed,
    "At least one of the pre-conditions you specified did not hold",
);
pub(crate) const SDK_ALGORITHM: Sentence = known(
    Code::InvalidRequest,
    "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer \
     headers were found.",
);
pub(crate) const SIGNATURE: Sentence = known(
    Code::SignatureDoesNotMatch,
    "The request signature we calculated does not match the signature you provided. Check your key and \
     signing method.",
);
pub(crate) const TAGS_COUNT: Sentence =
    known(Code::InvalidTag, "There cannot be more tags than {}");
pub(crate) const TAGS_HEADER: Sentence = known(
    Code::InvalidArgument,
    "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without \
     tag name duplicates.",
);
pub(crate) const TAGS_OF_BUCKET: Sentence =
    known(Code::BadRequest, "Bucket tag count cannot be greater than 50");
pub(crate) const TAG_KEY: Sentence =
    known(Code::InvalidTag, "The TagKey you have provided is invalid");
pub(crate) const TAG_OF_SYSTEM: Sentence =
    known(Code::InvalidTag, "System tags cannot be added/updated by requester");
pub(crate) const TAG_TWICE: Sentence =
    known(Code::InvalidTag, "Cannot provide multiple Tags with the same key");
pub(crate) const TAG_VALUE: Sentence =
    known(Code::InvalidTag, "The TagValue you have provided is invalid");
pub(crate) const TRAILER_NAME: Sentence =
    known(Code::InvalidRequest, "The value specified in the x-amz-trailer header is not supported");
pub(crate) const UNAVAILABLE: Sentence =
    known(Code::ServiceUnavailable, "Please try again in a moment.");
pub(crate) const UNSIGNED_CHUNKED: Sentence = known(
    Code::InvalidArgument,
    "aws-chunked encoding is not supported when x-amz-content-sha256 UNSIGNED-PAYLOAD is supplied",
);

pub(crate) const UNREADABLE_CONDITION: Sentence =
    known(Code::InvalidArgument, "Value for {} header is invalid.");
pub(crate) const UPLOAD_ID_MARKER: Sentence =
    known(Code::InvalidArgument, "Invalid uploadId marker");
pub(crate) const VERSION_ID: Sentence =
    known(Code::InvalidArgument, "Invalid version id specified");
pub(crate) const VERSION_ID_EMPTY: Sentence =
    known(Code::InvalidArgument, "Version id cannot be the empty string");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::{DETAIL, read_detail};

    #[test]
    fn what_an_error_is_about_stands_in_its_sentence() {
        let refusal = BAD_PART_CHECKSUM.about("sha256");
        let refusal = Sentence { text: "x", ..BAD_PART_CHECKSUM }.about(refusal.message);
        assert_eq!(refusal.message, "x");
        let wrong = CHECKSUM_HEADER.about("x-amz-checksum-crc32");
        assert_eq!(wrong.message, "Value for x-amz-checksum-crc32 header is invalid.");
        assert_eq!(wrong.code, Code::InvalidRequest);
        let wrong = CORS_WILDCARD.about_both("AllowedOrigin", "{}*a*").message;
        assert_eq!(wrong, "AllowedOrigin \"{}*a*\" can not have more than one wildcard.");
    }

    #[test]
    fn details_go_along_to_the_document() {
        let error = S3Error::from(PART_NUMBER.argument("partNumber", "-3%\u{1b}"));
        assert_eq!(error.status_code().unwrap().as_u16(), 400);
        let details: Vec<_> =
            error.headers().unwrap().get_all(DETAIL).iter().filter_map(read_detail).collect();
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(
            details,
            [pair("ArgumentName", "partNumber"), pair("ArgumentValue", "-3%\u{1b}")]
        );
        assert!(NO_SUCH_KEY.error().headers().is_none());
    }
}

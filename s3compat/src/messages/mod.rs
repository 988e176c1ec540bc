//! S3's errors, each with a sentence and a code, which has a status.
//!
//! Programs match codes, people search for sentences. So the sentences are S3's own, to the letter,
//! whichever part of the store raises the error. A `{}` stands for the subject of the error.
//! Further elements (`ArgumentName`, `ExpectedDigest`, …) are details of a [`Refusal`](crate::refusal::Refusal).
//!
//! Errors of many parts of the store are in this file. Each subject has a file for its own errors:
//!
//! * [`message`]: an error as a value; [`refusals`]: refusals that several modules return.
//! * [`body`], [`encryption`]: bodies of requests, and encryption.
//! * [`signing`], [`form`]: authentication, and forms.
//! * [`cors`], [`lifecycle`], [`notification`]: settings of buckets.

mod body;
mod cors;
mod encryption;
mod form;
mod lifecycle;
mod message;
mod notification;
mod refusals;
mod signing;

pub(crate) use self::body::*;
pub(crate) use self::cors::*;
pub(crate) use self::encryption::*;
pub(crate) use self::form::*;
pub(crate) use self::lifecycle::*;
pub(crate) use self::message::ErrorMessage;
pub(crate) use self::notification::*;
pub(crate) use self::signing::*;

use self::message::known;
use crate::refusal::Code;

pub(crate) const ACCESS_DENIED: ErrorMessage = known(Code::AccessDenied, "Access Denied");
pub(crate) const ACLS_BOTH: ErrorMessage =
    known(Code::InvalidRequest, "Specifying both Canned ACLs and Header Grants is not allowed");
pub(crate) const ACL_CANNED: ErrorMessage = known(Code::InvalidArgument, "\"{}\" is no canned ACL");
pub(crate) const ACL_GRANT: ErrorMessage =
    known(Code::InvalidArgument, "Argument format not recognized");
pub(crate) const ACL_GROUP: ErrorMessage = known(Code::InvalidArgument, "Invalid group uri");
pub(crate) const ACL_ID: ErrorMessage = known(Code::InvalidArgument, "Invalid id");
pub(crate) const BUCKET_EXISTS: ErrorMessage = known(
    Code::BucketAlreadyExists,
    "The requested bucket name is not available. The bucket namespace is shared by all users of the \
     system. Please select a different name and try again.",
);
pub(crate) const BUCKET_NAME: ErrorMessage =
    known(Code::InvalidBucketName, "The specified bucket is not valid.");
pub(crate) const BUCKET_NOT_EMPTY: ErrorMessage =
    known(Code::BucketNotEmpty, "The bucket you tried to delete is not empty");
pub(crate) const BUCKET_OWNED: ErrorMessage = known(
    Code::BucketAlreadyOwnedByYou,
    "Your previous request to create the named bucket succeeded and you already own it.",
);
pub(crate) const CONFLICT: ErrorMessage = known(
    Code::ConditionalRequestConflict,
    "The conditional request cannot succeed due to a conflicting operation against this resource.",
);
pub(crate) const CONTINUATION_TOKEN: ErrorMessage =
    known(Code::InvalidArgument, "The continuation token provided is incorrect");
pub(crate) const COPY_ONTO_ITSELF: ErrorMessage = known(
    Code::InvalidRequest,
    "This copy request is illegal because it is trying to copy an object to itself without changing the \
     object's metadata, storage class, website redirect location or encryption attributes.",
);
pub(crate) const COPY_RANGE: ErrorMessage = known(
    Code::InvalidArgument,
    "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
     zero-based offsets of the first and last bytes to copy",
);
pub(crate) const COPY_SOURCE_ENCODING: ErrorMessage =
    known(Code::InvalidArgument, "Invalid copy source encoding");
pub(crate) const COPY_SOURCE_KEY: ErrorMessage =
    known(Code::InvalidArgument, "Invalid copy source object key");
pub(crate) const COPY_SOURCE_STRAY: ErrorMessage =
    known(Code::InvalidArgument, "You can only specify a copy source header for copy requests.");
pub(crate) const DELETE_SIZE: ErrorMessage =
    known(Code::InvalidArgument, "Nothing is smaller than 0 bytes");
pub(crate) const DELETE_TIME: ErrorMessage =
    known(Code::InvalidArgument, "Nothing was modified before 1970");
pub(crate) const DIRECTIVE: ErrorMessage = known(Code::InvalidArgument, "Unknown {} directive.");
pub(crate) const ENCODING_TYPE: ErrorMessage =
    known(Code::InvalidArgument, "Invalid Encoding Method specified in Request");
pub(crate) const HEADER_ASCII: ErrorMessage =
    known(Code::InvalidArgument, "The header {} must be plain ASCII");
pub(crate) const HEADER_SECTION: ErrorMessage = known(
    Code::RequestHeaderSectionTooLarge,
    "Your request header section exceeds the maximum allowed size",
);
pub(crate) const HEADER_TWICE: ErrorMessage =
    known(Code::InvalidArgument, "A header is given twice, or has a value that is no text");
pub(crate) const HEADER_VALUE: ErrorMessage =
    known(Code::InvalidArgument, "Value for {} header is invalid.");
pub(crate) const HOST_MISSING: ErrorMessage = known(Code::InvalidRequest, "Missing Host header");
pub(crate) const INTERNAL: ErrorMessage =
    known(Code::InternalError, "We encountered an internal error. Please try again.");
pub(crate) const INVALID_PART: ErrorMessage = known(
    Code::InvalidPart,
    "One or more of the specified parts could not be found.  The part may not have been uploaded, or the \
     specified entity tag may not match the part's entity tag.",
);
pub(crate) const INVALID_PART_ORDER: ErrorMessage = known(
    Code::InvalidPartOrder,
    "The list of parts was not in ascending order. Parts must be ordered by part number.",
);
pub(crate) const INVALID_RANGE: ErrorMessage =
    known(Code::InvalidRange, "The requested range is not satisfiable");
pub(crate) const INVALID_URI: ErrorMessage =
    known(Code::InvalidUri, "Couldn't parse the specified URI");
pub(crate) const KEY_EMPTY: ErrorMessage =
    known(Code::UserKeyMustBeSpecified, "The key must not be empty");
pub(crate) const KEY_NUL: ErrorMessage = known(Code::InvalidArgument, "A key can't contain NUL");
pub(crate) const KEY_TOO_LONG: ErrorMessage = known(Code::KeyTooLong, "Your key is too long");
pub(crate) const LIMIT: ErrorMessage =
    known(Code::InvalidArgument, "Argument {} must be an integer between 0 and 2147483647");
pub(crate) const LOCATION: ErrorMessage = known(
    Code::IllegalLocationConstraint,
    "The {} location constraint is incompatible for the region specific endpoint this request \
     was sent to.",
);
pub(crate) const LOCKED: ErrorMessage =
    known(Code::AccessDenied, "Access Denied because object protected by object lock.");
pub(crate) const LOCK_DATE: ErrorMessage =
    known(Code::InvalidArgument, "The retain until date must be provided in ISO 8601 format");
pub(crate) const LOCK_HALF: ErrorMessage = known(
    Code::InvalidArgument,
    "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied",
);
pub(crate) const LOCK_HOLD: ErrorMessage =
    known(Code::InvalidArgument, "Legal Hold must be either of 'ON' or 'OFF'");
pub(crate) const LOCK_MODE: ErrorMessage =
    known(Code::InvalidArgument, "Unknown wormMode directive.");
pub(crate) const LOGGING_GRANTS: ErrorMessage =
    known(Code::InvalidArgument, "Buckets whose owner is enforced take no target grants");
pub(crate) const LOGGING_PREFIX: ErrorMessage =
    known(Code::InvalidArgument, "The target prefix is too long");
pub(crate) const MALFORMED_XML: ErrorMessage = known(
    Code::MalformedXml,
    "The XML you provided was not well-formed or did not validate against our published schema",
);
pub(crate) const MAX_BUCKETS: ErrorMessage =
    known(Code::InvalidArgument, "Argument max-buckets must be an integer between 1 and 10000");
pub(crate) const METADATA_TOO_LARGE: ErrorMessage =
    known(Code::MetadataTooLarge, "Your metadata headers exceed the maximum allowed metadata size");
pub(crate) const METHOD_NOT_ALLOWED: ErrorMessage =
    known(Code::MethodNotAllowed, "The specified method is not allowed against this resource.");
pub(crate) const NOT_A_NUMBER: ErrorMessage =
    known(Code::InvalidArgument, "Provided {} not an integer or within integer range");
pub(crate) const NOT_IMPLEMENTED: ErrorMessage = known(
    Code::NotImplemented,
    "A header or query parameter you provided implies functionality that is not implemented",
);
pub(crate) const NO_BODY: ErrorMessage = known(Code::MissingRequestBody, "Request Body is empty");
pub(crate) const NO_SUCH_BUCKET: ErrorMessage =
    known(Code::NoSuchBucket, "The specified bucket does not exist");
pub(crate) const NO_SUCH_CORS: ErrorMessage =
    known(Code::NoSuchCorsConfiguration, "The CORS configuration does not exist");
pub(crate) const NO_SUCH_KEY: ErrorMessage =
    known(Code::NoSuchKey, "The specified key does not exist.");
pub(crate) const NO_SUCH_LIFECYCLE: ErrorMessage =
    known(Code::NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist");
pub(crate) const NO_SUCH_TAGS: ErrorMessage =
    known(Code::NoSuchTagSet, "The TagSet does not exist");
pub(crate) const NO_SUCH_UPLOAD: ErrorMessage = known(
    Code::NoSuchUpload,
    "The specified upload does not exist. The upload ID may be invalid, or the upload may have been \
     aborted or completed.",
);
pub(crate) const NO_SUCH_VERSION: ErrorMessage =
    known(Code::NoSuchVersion, "The specified version does not exist.");
pub(crate) const OBJECT_ATTRIBUTE: ErrorMessage =
    known(Code::InvalidArgument, "Invalid attribute name specified.");
pub(crate) const OBJECT_ATTRIBUTES: ErrorMessage = known(
    Code::InvalidRequest,
    "The x-amz-object-attributes header specifying the attributes to be retrieved is either \
     missing or empty",
);
pub(crate) const OBJECT_OWNERSHIP: ErrorMessage =
    known(Code::InvalidArgument, "Invalid x-amz-object-ownership header: {}");
pub(crate) const OBJECT_SIZE: ErrorMessage =
    known(Code::InvalidRequest, "Value for x-amz-mp-object-size header is invalid: '{}'");
pub(crate) const OBJECT_SIZE_NEGATIVE: ErrorMessage =
    known(Code::InvalidRequest, "Value for x-amz-mp-object-size header is less than zero: '{}'");
pub(crate) const OVERRIDE: ErrorMessage =
    known(Code::InvalidArgument, "{} is not in the set of overridable response headers.");
pub(crate) const OVERRIDE_ANONYMOUS: ErrorMessage = known(
    Code::InvalidRequest,
    "Request specific response headers cannot be used for anonymous GET requests.",
);
pub(crate) const OVERRIDE_VALUE: ErrorMessage =
    known(Code::InvalidArgument, "{} is no header value");
pub(crate) const PART_NUMBER: ErrorMessage =
    known(Code::InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive");
pub(crate) const PART_NUMBER_OF_COMPLETE: ErrorMessage =
    known(Code::InvalidArgument, "PartNumber must be >= 1");
pub(crate) const PART_NUMBER_RANGE: ErrorMessage =
    known(Code::InvalidPartNumber, "The requested partnumber is not satisfiable");
pub(crate) const PART_WITHOUT_UPLOAD: ErrorMessage =
    known(Code::InvalidArgument, "This operation does not accept partNumber without uploadId");
pub(crate) const PATH: ErrorMessage =
    known(Code::InvalidUri, "The path does not begin with a slash");
pub(crate) const PRECONDITION_FAILED: ErrorMessage = known(
    Code::PreconditionFailed,
    "At least one of the pre-conditions you specified did not hold",
);
pub(crate) const QUERY_KEYS: ErrorMessage =
    known(Code::InvalidArgument, "Too many query parameters");
pub(crate) const QUERY_KEY_TWICE: ErrorMessage =
    known(Code::InvalidArgument, "A query parameter may be given only once");
pub(crate) const RANGE_AND_PART: ErrorMessage =
    known(Code::InvalidRequest, "Cannot specify both Range header and partNumber query parameter");
pub(crate) const SLOW_DOWN: ErrorMessage =
    known(Code::SlowDown, "Please reduce your request rate.");
pub(crate) const TAGS_COUNT: ErrorMessage =
    known(Code::InvalidTag, "There cannot be more tags than {}");
pub(crate) const TAGS_HEADER: ErrorMessage = known(
    Code::InvalidArgument,
    "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without \
     tag name duplicates.",
);
pub(crate) const TAGS_OF_BUCKET: ErrorMessage =
    known(Code::BadRequest, "Bucket tag count cannot be greater than 50");
pub(crate) const TAG_KEY: ErrorMessage =
    known(Code::InvalidTag, "The TagKey you have provided is invalid");
pub(crate) const TAG_OF_SYSTEM: ErrorMessage =
    known(Code::InvalidTag, "System tags cannot be added/updated by requester");
pub(crate) const TAG_TWICE: ErrorMessage =
    known(Code::InvalidTag, "Cannot provide multiple Tags with the same key");
pub(crate) const TAG_VALUE: ErrorMessage =
    known(Code::InvalidTag, "The TagValue you have provided is invalid");
pub(crate) const UNAVAILABLE: ErrorMessage =
    known(Code::ServiceUnavailable, "Please try again in a moment.");
pub(crate) const UPLOADS_OF_KEY: ErrorMessage =
    known(Code::InvalidRequest, "Key is not expected for the GET method ?uploads subresource");
pub(crate) const UPLOAD_ID_MARKER: ErrorMessage =
    known(Code::InvalidArgument, "Invalid uploadId marker");
pub(crate) const VERSIONING_STATUS: ErrorMessage = known(
    Code::IllegalVersioningConfiguration,
    "The Versioning element must be specified as Enabled or Suspended",
);
pub(crate) const VERSIONS_OF_KEY: ErrorMessage =
    known(Code::InvalidRequest, "There is no such thing as the ?versions sub-resource for a key");
pub(crate) const VERSION_ID: ErrorMessage =
    known(Code::InvalidArgument, "Invalid version id specified");
pub(crate) const VERSION_ID_EMPTY: ErrorMessage =
    known(Code::InvalidArgument, "Version id cannot be the empty string");
pub(crate) const VERSION_ID_MARKER: ErrorMessage =
    known(Code::InvalidArgument, "A version-id marker cannot be specified without a key marker.");

#[cfg(test)]
mod tests {
    use s3s::S3Error;

    use super::*;
    use crate::refusal::{DETAIL, read_detail};

    #[test]
    fn error_messages_contain_their_subject() {
        let refusal = BAD_PART_CHECKSUM.with_subject("sha256");
        let refusal = ErrorMessage { text: "x", ..BAD_PART_CHECKSUM }.with_subject(refusal.message);
        assert_eq!(refusal.message, "x");
        let wrong = CHECKSUM_HEADER.with_subject("x-amz-checksum-crc32");
        assert_eq!(wrong.message, "Value for x-amz-checksum-crc32 header is invalid.");
        assert_eq!(wrong.code, Code::InvalidRequest);
        let wrong = CORS_WILDCARD.with_subjects("AllowedOrigin", "{}*a*").message;
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
        let named = HEADER_VALUE.named("if-match");
        assert_eq!(named.message, "Value for if-match header is invalid.");
        assert_eq!(named.details, [("ArgumentName", "if-match".to_owned())]);
    }
}

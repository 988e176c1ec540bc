//! Errors about signatures, access keys and tokens.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const ACCESS_KEY: ErrorMessage = known(
    Code::InvalidAccessKeyId,
    "The AWS Access Key Id you provided does not exist in our records.",
);
pub(crate) const AUTHORIZATION: ErrorMessage =
    known(Code::AuthorizationHeaderMalformed, "The authorization header is malformed; {}");
pub(crate) const AUTHORIZATION_QUERY: ErrorMessage = known(
    Code::AuthorizationQueryParametersError,
    "Error parsing the X-Amz-Credential parameter; {}",
);
pub(crate) const AUTHORIZATION_TYPE: ErrorMessage =
    known(Code::InvalidArgument, "Unsupported Authorization Type");
pub(crate) const AUTHORIZATION_V2: ErrorMessage = known(
    Code::InvalidArgument,
    "AWS authorization header is invalid.  Expected AwsAccessKeyId:signature",
);
pub(crate) const CLOCKS: ErrorMessage = known(
    Code::RequestTimeTooSkewed,
    "The difference between the request time and the current time is too large.",
);
pub(crate) const DATE_HEADER: ErrorMessage =
    known(Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header");
pub(crate) const EXPIRED: ErrorMessage = known(Code::AccessDenied, "Request has expired");
pub(crate) const EXPIRED_TOKEN: ErrorMessage =
    known(Code::ExpiredToken, "The provided token has expired.");
pub(crate) const EXPIRES_NEGATIVE: ErrorMessage =
    known(Code::AccessDenied, "X-Amz-Expires must be non-negative");
pub(crate) const EXPIRES_NUMBER: ErrorMessage =
    known(Code::AuthorizationQueryParametersError, "X-Amz-Expires should be a number");
pub(crate) const EXPIRES_V2: ErrorMessage =
    known(Code::AccessDenied, "Invalid date (should be seconds since epoch)");
pub(crate) const EXPIRES_WEEK: ErrorMessage =
    known(Code::AccessDenied, "X-Amz-Expires must be less than a week (in seconds) that is 604800");
pub(crate) const EXPIRES_ZERO: ErrorMessage =
    known(Code::AccessDenied, "X-Amz-Expires must be above zero");
pub(crate) const HEADERS_NOT_SIGNED: ErrorMessage =
    known(Code::AccessDenied, "There were headers present in the request which were not signed");
pub(crate) const INVALID_TOKEN: ErrorMessage =
    known(Code::InvalidToken, "The provided token is malformed or otherwise invalid.");
pub(crate) const LINK_HEADER: ErrorMessage =
    known(Code::InvalidArgument, "A header within the query is malformed, or contradicts a header");
pub(crate) const LINK_V2: ErrorMessage = known(
    Code::AccessDenied,
    "Signature Version 2 doesn't cover a query parameter of this operation: sign the link \
     with AWS4-HMAC-SHA256.",
);
pub(crate) const MECHANISM: ErrorMessage = known(
    Code::InvalidRequest,
    "The authorization mechanism you have provided is not supported. Please use \
     AWS4-HMAC-SHA256.",
);
pub(crate) const MECHANISMS: ErrorMessage = known(
    Code::InvalidArgument,
    "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
     query string parameter or the Authorization header should be specified",
);
pub(crate) const MISSING_SHA256: ErrorMessage =
    known(Code::InvalidRequest, "Missing required header for this request: x-amz-content-sha256");
pub(crate) const NOT_YET_VALID: ErrorMessage =
    known(Code::AccessDenied, "Request is not yet valid");
pub(crate) const QUERY_ALGORITHM: ErrorMessage = known(
    Code::AuthorizationQueryParametersError,
    "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"",
);
pub(crate) const QUERY_DATE: ErrorMessage = known(
    Code::AuthorizationQueryParametersError,
    "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"",
);
pub(crate) const QUERY_FIELDS: ErrorMessage = known(
    Code::AuthorizationQueryParametersError,
    "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
     X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
);
pub(crate) const QUERY_FIELDS_V2: ErrorMessage = known(
    Code::AccessDenied,
    "Query-string authentication requires the Signature, Expires and AWSAccessKeyId \
     parameters",
);
pub(crate) const SIGNATURE: ErrorMessage = known(
    Code::SignatureDoesNotMatch,
    "The request signature we calculated does not match the signature you provided. Check your key and \
     signing method.",
);

//! Errors about signatures, access keys and tokens.

use super::{Sentence, known};
use crate::auth::Code;

pub(crate) const ACCESS_KEY: Sentence = known(
    Code::InvalidAccessKeyId,
    "The AWS Access Key Id you provided does not exist in our records.",
);
pub(crate) const AUTHORIZATION: Sentence =
    known(Code::AuthorizationHeaderMalformed, "The authorization header is malformed; {}");
pub(crate) const AUTHORIZATION_QUERY: Sentence = known(
    Code::AuthorizationQueryParametersError,
    "Error parsing the X-Amz-Credential parameter; {}",
);
pub(crate) const AUTHORIZATION_TYPE: Sentence =
    known(Code::InvalidArgument, "Unsupported Authorization Type");
pub(crate) const AUTHORIZATION_V2: Sentence = known(
    Code::InvalidArgument,
    "AWS authorization header is invalid.  Expected AwsAccessKeyId:signature",
);
pub(crate) const CLOCKS: Sentence = known(
    Code::RequestTimeTooSkewed,
    "The difference between the request time and the current time is too large.",
);
pub(crate) const DATE_HEADER: Sentence =
    known(Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header");
pub(crate) const EXPIRED: Sentence = known(Code::AccessDenied, "Request has expired");
pub(crate) const EXPIRED_TOKEN: Sentence =
    known(Code::ExpiredToken, "The provided token has expired.");
pub(crate) const EXPIRES_NEGATIVE: Sentence =
    known(Code::AccessDenied, "X-Amz-Expires must be non-negative");
pub(crate) const EXPIRES_NUMBER: Sentence =
    known(Code::AuthorizationQueryParametersError, "X-Amz-Expires should be a number");
pub(crate) const EXPIRES_V2: Sentence =
    known(Code::AccessDenied, "Invalid date (should be seconds since epoch)");
pub(crate) const EXPIRES_WEEK: Sentence =
    known(Code::AccessDenied, "X-Amz-Expires must be less than a week (in seconds) that is 604800");
pub(crate) const EXPIRES_ZERO: Sentence =
    known(Code::AccessDenied, "X-Amz-Expires must be above zero");
pub(crate) const HEADERS_NOT_SIGNED: Sentence =
    known(Code::AccessDenied, "There were headers present in the request which were not signed");
pub(crate) const INVALID_TOKEN: Sentence =
    known(Code::InvalidToken, "The provided token is malformed or otherwise invalid.");
pub(crate) const LINK_HEADER: Sentence =
    known(Code::InvalidArgument, "A header within the query is malformed, or contradicts a header");
pub(crate) const LINK_V2: Sentence = known(
    Code::AccessDenied,
    "Signature Version 2 doesn't cover a query parameter of this operation: sign the link \
     with AWS4-HMAC-SHA256.",
);
pub(crate) const MECHANISM: Sentence = known(
    Code::InvalidRequest,
    "The authorization mechanism you have provided is not supported. Please use \
     AWS4-HMAC-SHA256.",
);
pub(crate) const MECHANISMS: Sentence = known(
    Code::InvalidArgument,
    "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
     query string parameter or the Authorization header should be specified",
);
pub(crate) const MISSING_SHA256: Sentence =
    known(Code::InvalidRequest, "Missing required header for this request: x-amz-content-sha256");
pub(crate) const NOT_YET_VALID: Sentence = known(Code::AccessDenied, "Request is not yet valid");
pub(crate) const QUERY_ALGORITHM: Sentence = known(
    Code::AuthorizationQueryParametersError,
    "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"",
);
pub(crate) const QUERY_DATE: Sentence = known(
    Code::AuthorizationQueryParametersError,
    "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"",
);
pub(crate) const QUERY_FIELDS: Sentence = known(
    Code::AuthorizationQueryParametersError,
    "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
     X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
);
pub(crate) const QUERY_FIELDS_V2: Sentence = known(
    Code::AccessDenied,
    "Query-string authentication requires the Signature, Expires and AWSAccessKeyId \
     parameters",
);
pub(crate) const SIGNATURE: Sentence = known(
    Code::SignatureDoesNotMatch,
    "The request signature we calculated does not match the signature you provided. Check your key and \
     signing method.",
);

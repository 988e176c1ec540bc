//! Errors about CORS: a bucket's rules, and cross-origin requests.

use super::{Sentence, known};
use crate::auth::Code;

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

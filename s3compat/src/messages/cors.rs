//! Errors about CORS: a bucket's rules, and cross-origin requests.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const CORS_BUCKET: ErrorMessage =
    known(Code::AccessForbidden, "CORSResponse: Bucket not found");
pub(crate) const CORS_CONTROL: ErrorMessage =
    known(Code::InvalidRequest, "A CORS rule has a control character");
pub(crate) const CORS_DISABLED: ErrorMessage =
    known(Code::AccessForbidden, "CORSResponse: CORS is not enabled for this bucket.");
pub(crate) const CORS_EXPOSED: ErrorMessage = known(
    Code::InvalidRequest,
    "ExposeHeader \"{}\" contains wildcard. We currently do not support wildcard for ExposeHeader.",
);
pub(crate) const CORS_FORBIDDEN: ErrorMessage = known(
    Code::AccessForbidden,
    "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, \
     request method / Access-Control-Request-Method or Access-Control-Request-Headers are not \
     whitelisted by the resource's CORS spec.",
);
pub(crate) const CORS_HEADERS: ErrorMessage =
    known(Code::BadRequest, "Access-Control-Request-Headers names too many headers");
pub(crate) const CORS_ID: ErrorMessage =
    known(Code::InvalidRequest, "The ID of a CORS rule has {} characters at most");
pub(crate) const CORS_METHOD: ErrorMessage = known(
    Code::InvalidRequest,
    "Found unsupported HTTP method in CORS config. Unsupported method is {}",
);
pub(crate) const CORS_NAME: ErrorMessage =
    known(Code::InvalidRequest, "{} \"{}\" contains invalid character.");
pub(crate) const CORS_ORIGIN: ErrorMessage =
    known(Code::BadRequest, "Insufficient information. Origin request header needed.");
pub(crate) const CORS_REQUEST_HEADER: ErrorMessage =
    known(Code::BadRequest, "{} \"{}\" contains invalid character.");
pub(crate) const CORS_REQUEST_METHOD: ErrorMessage =
    known(Code::BadRequest, "Invalid Access-Control-Request-Method: {}");
pub(crate) const CORS_RULES: ErrorMessage =
    known(Code::InvalidRequest, "A bucket has {} CORS rules at most");
pub(crate) const CORS_WILDCARD: ErrorMessage =
    known(Code::InvalidRequest, "{} \"{}\" can not have more than one wildcard.");

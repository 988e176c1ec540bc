//! Errors about uploads by HTML forms.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const FORM_ALGORITHM: ErrorMessage =
    known(Code::InvalidArgument, "Only AWS4-HMAC-SHA256 is supported");
pub(crate) const FORM_DATE: ErrorMessage =
    known(Code::InvalidArgument, "X-Amz-Date must be formated via ISO8601 Long format");
pub(crate) const FORM_DENIED: ErrorMessage =
    known(Code::AccessDenied, "Invalid according to Policy: {}");
pub(crate) const FORM_FIELD: ErrorMessage = known(
    Code::InvalidArgument,
    "Bucket POST must contain a field named '{}'.  If it is specified, please check the order \
     of the fields.",
);
pub(crate) const FORM_FIELDS: ErrorMessage = known(
    Code::MaxPostPreDataLengthExceeded,
    "Your POST request fields preceding the upload file were too large.",
);
pub(crate) const FORM_FIELD_TEXT: ErrorMessage =
    known(Code::MalformedPostRequest, "The value of a field is not UTF-8");
pub(crate) const FORM_FIELD_TWICE: ErrorMessage =
    known(Code::InvalidArgument, "POST requires exactly one field named '{}'");
pub(crate) const FORM_FILE: ErrorMessage =
    known(Code::InvalidArgument, "POST requires exactly one file upload per request.");
pub(crate) const FORM_HEADER: ErrorMessage =
    known(Code::InvalidArgument, "The name or value of a field can't be that of a header");
pub(crate) const FORM_KEY: ErrorMessage =
    known(Code::InvalidArgument, "User key must have a length greater than 0.");
pub(crate) const FORM_POLICY: ErrorMessage =
    known(Code::InvalidPolicyDocument, "Invalid Policy: {}");
pub(crate) const FORM_SIGNED: ErrorMessage = known(
    Code::InvalidArgument,
    "Only one auth mechanism allowed; a form is signed within its fields",
);

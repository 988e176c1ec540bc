//! Refusals that several modules return.

use super::{INVALID_TOKEN, MECHANISM, NOT_IMPLEMENTED, UNAVAILABLE};
use crate::refusal::Refusal;

impl Refusal {
    /// An invalid session token, or another session's.
    pub(crate) fn invalid_token() -> Self {
        INVALID_TOKEN.refusal()
    }

    /// A signature of a version that is unknown or disabled.
    pub(crate) fn unsupported_mechanism() -> Self {
        MECHANISM.refusal()
    }

    /// 503, with a retry after one second.
    pub(crate) fn try_again() -> Self {
        UNAVAILABLE.refusal().with_header("retry-after", "1")
    }

    /// A feature of S3 that isn't supported. `what` names the header.
    pub fn not_implemented(what: &str) -> Self {
        NOT_IMPLEMENTED.refusal().with_detail("Header", what)
    }
}

//! Requests that wait with their body for `100 Continue` (`Expect: 100-continue`).
//!
//! A client that is answered before its body was requested may send the body or another request
//! next. The server cannot predict which, so the connection ends with the reply.

use http::header::{CONNECTION, EXPECT};
use http::{HeaderMap, HeaderValue, Request, Version};

use crate::decode::PollFlag;

/// Record of the first poll of a request's body.
pub(super) fn watch<B>(request: &Request<B>) -> PollFlag {
    PollFlag::new(request.version() == Version::HTTP_11 && request.headers().contains_key(EXPECT))
}

/// Ends the connection with the reply if the client may or may not send its body.
pub(super) fn end(waiting: &PollFlag, headers: &mut HeaderMap) {
    if waiting.is_unset() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

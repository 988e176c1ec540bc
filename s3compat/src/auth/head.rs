//! Head of a request, before and after its authentication.

use std::fmt::Display;

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::payload::Payload;
use crate::access::Identity;
use crate::messages;
use crate::refusal::Refusal;
use crate::target::{Query, RequestTarget};

/// Headers that every request is searched for. Names as text would be parsed for each look-up.
pub(super) const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
pub(super) const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// A request as it came over the wire, without its body.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path, undecoded.
    pub raw_path: &'a str,
    /// The path, parsed.
    pub target: &'a RequestTarget,
    /// Query.
    pub query: &'a Query<'a>,
    /// Headers.
    pub headers: &'a HeaderMap,
}

impl<'a> RequestHead<'a> {
    /// The one value of a header.
    pub(crate) fn header(&self, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
        single_header(self.headers, name)
    }

    pub(super) fn query_get(&self, name: &str) -> Option<&'a str> {
        let pair = self.query.pairs().iter().find(|pair| pair.name == name);
        pair.map(|pair| &*pair.value)
    }

    /// Value of a header that a presigned link carries in its query, in any case.
    pub(super) fn query_header(&self, name: &str) -> Option<&'a str> {
        let pair = self.query.pairs().iter().find(|pair| pair.name.eq_ignore_ascii_case(name));
        pair.map(|pair| &*pair.value)
    }

    /// True if a presigned link carries the header in its query, where it is signed.
    pub(super) fn is_hoisted(&self, name: &str, value: &HeaderValue) -> bool {
        self.query.pairs().iter().any(|pair| {
            pair.name.eq_ignore_ascii_case(name) && pair.value.as_bytes() == value.as_bytes()
        })
    }
}

/// The one value of a header. Two values are refused as ambiguous.
pub(crate) fn single_header<N: AsHeaderName + Display + Copy>(
    headers: &HeaderMap,
    name: N,
) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    text.map(str::trim).map(Some).ok_or_else(|| messages::HEADER_TWICE.named(name))
}

/// Mechanism by which a request is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    None,
    Header,
    Query,
    HeaderV2,
    QueryV2,
}

/// Result of authentication.
#[derive(Debug)]
pub struct AuthenticatedHead {
    /// Identity of the signer.
    pub identity: Identity,
    /// Requirement on the body.
    pub payload: Payload,
    pub(crate) mechanism: Mechanism,
}

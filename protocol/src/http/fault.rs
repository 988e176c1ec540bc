//! Errors on the wire: a reply carries kind and message, and a mark if the request had no effect.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::term::Term;

/// Kind of the error in a reply.
const ERROR: HeaderName = HeaderName::from_static("x-martlet-error");
/// Mark of errors that were raised before any effect.
const UNTOUCHED: HeaderName = HeaderName::from_static("x-martlet-untouched");

/// Term of the device, on errors for callers with a lower term.
const TERM: HeaderName = HeaderName::from_static("x-martlet-term");

/// Longest message that is sent or read, in bytes.
pub(super) const SENTENCE_BYTES_MAX: usize = 4096;

const KINDS: [(ErrorKind, &str, StatusCode); 7] = [
    (ErrorKind::NotFound, "not-found", StatusCode::NOT_FOUND),
    (ErrorKind::Conflict, "conflict", StatusCode::CONFLICT),
    (ErrorKind::Unavailable, "unavailable", StatusCode::SERVICE_UNAVAILABLE),
    (ErrorKind::Full, "full", StatusCode::INSUFFICIENT_STORAGE),
    (ErrorKind::Corrupt, "corrupt", StatusCode::UNPROCESSABLE_ENTITY),
    (ErrorKind::Invalid, "invalid", StatusCode::BAD_REQUEST),
    (ErrorKind::Internal, "internal", StatusCode::INTERNAL_SERVER_ERROR),
];

/// Encodes an error as a reply.
pub(super) fn reply(error: &Error) -> Response {
    let (_, name, status) = KINDS[place(error.kind())];
    let mut response = build(status, name, error.to_string());
    if let Some(term) = error.newer_term() {
        response.headers_mut().insert(TERM, HeaderValue::from(term.0));
    }
    if error.had_no_effect() {
        response.headers_mut().insert(UNTOUCHED, HeaderValue::from_static("1"));
    }
    response
}

/// Refuses a request unread. The sender may try another node.
pub(super) fn refusal(status: StatusCode, sentence: &str) -> Response {
    let mut response = build(status, "unavailable", sentence.to_owned());
    response.headers_mut().insert(UNTOUCHED, HeaderValue::from_static("1"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn build(status: StatusCode, kind: &'static str, mut sentence: String) -> Response {
    sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES_MAX));
    let mut response = Response::new(Body::from(sentence));
    *response.status_mut() = status;
    response.headers_mut().insert(ERROR, HeaderValue::from_static(kind));
    response
}

/// Decodes the error of a reply.
pub(super) fn of_reply(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Error {
    let named = headers.get(ERROR).and_then(|name| KINDS.iter().find(|kind| name == kind.1));
    let sentence = String::from_utf8_lossy(body);
    let Some((kind, ..)) = named else {
        return Error::unavailable(format!("the node answered {status} without a reason"));
    };
    let term = headers.get(TERM).and_then(|term| term.to_str().ok()?.parse().ok());
    if let Some(term) = term {
        return Error::outdated(Term(term));
    }
    if headers.contains_key(UNTOUCHED) {
        return Error::new(*kind, sentence).without_effect(status);
    }
    Error::new(*kind, sentence)
}

/// An error in a frame of a channel; its message follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fault<'a> {
    kind: &'a str,
    /// Term of the device, for callers with a lower term.
    term: Option<u64>,
    /// True if the error was raised before any effect.
    is_untouched: bool,
}

impl Fault<'static> {
    /// Encodes an error without its message.
    pub(super) fn of(error: &Error) -> Self {
        let term = error.newer_term().map(|term| term.0);
        let kind = KINDS[place(error.kind())].1;
        Self { kind, term, is_untouched: error.had_no_effect() }
    }
}

impl Fault<'_> {
    /// Decodes an error.
    pub(super) fn into_error(self, message: &[u8]) -> Error {
        let Some((kind, _, status)) = KINDS.iter().find(|known| known.1 == self.kind) else {
            return Error::unavailable("the node answered with an error of an unknown kind");
        };
        if let Some(term) = self.term {
            return Error::outdated(Term(term));
        }
        let error = Error::new(*kind, String::from_utf8_lossy(message));
        if self.is_untouched { error.without_effect(status) } else { error }
    }
}

/// Status of the reply with an error.
pub(super) fn status(error: &Error) -> StatusCode {
    KINDS[place(error.kind())].2
}

/// Message of an error, cut to the longest that is sent.
pub(super) fn sentence(error: &Error) -> String {
    let mut sentence = error.to_string();
    sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES_MAX));
    sentence
}

fn place(kind: ErrorKind) -> usize {
    KINDS.iter().position(|known| known.0 == kind).expect("every kind has a name")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// Sends an error by HTTP and by a channel; both carry as much.
    async fn both_ways(error: &Error) -> Error {
        let found = there_and_back(reply(error)).await;
        let by_channel = Fault::of(error).into_error(sentence(error).as_bytes());
        assert_eq!((found.kind(), found.to_string()), (by_channel.kind(), by_channel.to_string()));
        assert_eq!(found.had_no_effect(), by_channel.had_no_effect());
        assert_eq!(found.newer_term(), by_channel.newer_term());
        found
    }

    async fn there_and_back(response: Response) -> Error {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        of_reply(head.status, &head.headers, &body)
    }

    #[tokio::test]
    async fn kind_and_sentence_survive() {
        let kinds = [
            ErrorKind::NotFound,
            ErrorKind::Conflict,
            ErrorKind::Unavailable,
            ErrorKind::Full,
            ErrorKind::Corrupt,
            ErrorKind::Invalid,
            ErrorKind::Internal,
        ];
        for kind in kinds {
            let error = Error::new(kind, "extent é is gone").with_source(Error::full("no room"));
            let found = both_ways(&error).await;
            assert_eq!((found.kind(), found.to_string()), (kind, error.to_string()));
            assert!(!found.had_no_effect());
        }
    }

    #[tokio::test]
    async fn a_full_device_reports_that_no_write_was_made() {
        let full = Error::full("the device is full").without_effect("no room");
        let found = both_ways(&full).await;
        assert!(found.kind() == ErrorKind::Full && found.had_no_effect());
    }

    #[tokio::test]
    async fn callers_with_an_older_term_receive_the_newer_one() {
        let found = both_ways(&Error::outdated(Term(17))).await;
        assert_eq!((found.kind(), found.newer_term()), (ErrorKind::Unavailable, Some(Term(17))));
        assert!(found.had_no_effect());
    }

    #[tokio::test]
    async fn long_sentences_are_cut_between_characters() {
        let found = both_ways(&Error::full("é".repeat(SENTENCE_BYTES_MAX))).await;
        assert_eq!(found.to_string(), "é".repeat(SENTENCE_BYTES_MAX / 2));
    }

    #[tokio::test]
    async fn refusals_had_no_effect() {
        let busy = refusal(StatusCode::SERVICE_UNAVAILABLE, "busy");
        assert_eq!(busy.headers()[header::RETRY_AFTER], "1");
        let found = there_and_back(busy).await;
        assert_eq!(found.kind(), ErrorKind::Unavailable);
        assert!(found.had_no_effect());
    }

    #[tokio::test]
    async fn a_stranger_s_reply_is_unavailable() {
        let mut response = Response::new(Body::from("<html>"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        assert_eq!(there_and_back(response).await.kind(), ErrorKind::Unavailable);
    }
}

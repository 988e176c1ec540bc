//! Refused requests: a code of S3, a message, and further elements of the error document.
//!
//! This module imports nothing from the rest of the crate. The sentences of S3's errors are in
//! `messages`; errors of the object layer are converted in `errors`.
//!
//! * [`Code`]: S3's error codes.
//! * [`error_detail`]: elements of an error document, on their way through a header.

mod code;
mod error_detail;

use std::borrow::Cow;

use http::HeaderMap;

pub use self::code::Code;
pub(crate) use self::error_detail::{DETAIL, QUOTA_DETAIL, detail, read_detail};

/// A refused request: a code for the client's program, a message for its author, and further
/// elements of the error document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Refusal {
    /// S3's error code.
    pub code: Code,
    /// Message, in a sentence.
    pub message: Cow<'static, str>,
    /// Further elements of the error document: name and text.
    pub details: Vec<(&'static str, String)>,
    /// A header of the reply.
    pub header: Option<(&'static str, &'static str)>,
}

impl Refusal {
    /// Creates a refusal with `code` and `message`.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), header: None }
    }

    /// Adds an element to the error document.
    #[must_use]
    pub fn with_detail(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.details.push((name, text.into()));
        self
    }

    /// Adds a header to the reply.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }
}

impl From<Refusal> for s3s::S3Error {
    fn from(refusal: Refusal) -> Self {
        let name = refusal.code.as_str();
        let code = s3s::S3ErrorCode::from_bytes(name.as_bytes())
            .unwrap_or_else(|| s3s::S3ErrorCode::Custom(name.into()));
        let mut error = Self::with_message(code, refusal.message);
        error.set_status_code(refusal.code.status());
        if !refusal.details.is_empty() {
            let mut headers = HeaderMap::new();
            for (name, text) in refusal.details {
                headers.append(DETAIL, detail(name, text));
            }
            error.set_headers(headers);
        }
        error
    }
}

//! Error of a request or of a copy, with the reaction that it needs.

use std::fmt;

/// Reaction that an error needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A later attempt may succeed.
    Transient,
    /// The server limits its requests: an attempt after a pause may succeed.
    Throttled,
    /// The object or the upload does not exist.
    NotFound,
    /// A condition of the request does not hold.
    Condition,
    /// The source's object is another than the listed one.
    Changed,
    /// The received bytes are not those that the source's checksum describes.
    Damaged,
    /// The request is refused; another object may succeed.
    Refused,
    /// No request of this run can succeed.
    Fatal,
}

/// Error as a sentence, with its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    sentence: String,
}

/// Outcome of a request or of a part of a copy.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error.
    pub fn new(kind: ErrorKind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into() }
    }

    /// Makes an error that a later attempt may not have.
    pub(crate) fn transient(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transient, sentence)
    }

    /// Makes an error that ends the run.
    pub(crate) fn fatal(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fatal, sentence)
    }

    /// Returns the reaction that the error needs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns true if a later attempt may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.kind, ErrorKind::Transient | ErrorKind::Throttled)
    }

    /// Returns the error with words before its sentence.
    pub(crate) fn within(self, subject: &str) -> Self {
        Self { sentence: format!("{subject}: {}", self.sentence), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}

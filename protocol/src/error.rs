//! The error type. An error's kind determines the caller's reaction.

use std::fmt;

use crate::term::Term;

/// Result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error, by the caller's reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The item doesn't exist. Read another replica, or report its absence.
    NotFound,
    /// A newer or contrary state exists. Read again, then decide.
    Conflict,
    /// Temporary failure. Retry later, or on another node.
    Unavailable,
    /// The device accepts no more bytes. Use the next device.
    Full,
    /// Bytes differ from the written ones. Read another copy; never serve these bytes.
    Corrupt,
    /// The request is malformed. Don't retry.
    Invalid,
    /// A bug or a failed disk call on this side. Report the error.
    Internal,
}

/// An error with a kind, a message and an optional cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error of `kind` with `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the error's cause.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Creates [`ErrorKind::Unavailable`] for a call without effect: refused, or never received.
    pub fn unreached(message: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::unavailable(message).without_effect(cause)
    }

    /// Marks the error as raised before the call had any effect.
    #[must_use]
    pub fn without_effect(self, cause: impl fmt::Display) -> Self {
        self.with_source(NoEffect(cause.to_string()))
    }

    /// Creates [`ErrorKind::Unavailable`] for a call without effect: the caller's term is lower
    /// than the device's (rule P1).
    pub fn outdated(newer: Term) -> Self {
        Self::unavailable("the request's ring change is over").with_source(OutdatedTerm(newer))
    }

    /// Returns the device's higher term, if the caller's term was lower.
    pub fn newer_term(&self) -> Option<Term> {
        self.source.as_ref()?.downcast_ref::<OutdatedTerm>().map(|outdated| outdated.0)
    }

    /// Returns true if the call is known to have had no effect. For other
    /// [`ErrorKind::Unavailable`] errors the outcome is unknown.
    pub fn had_no_effect(&self) -> bool {
        let source = self.source.as_deref();
        source.is_some_and(|source| source.is::<NoEffect>() || source.is::<OutdatedTerm>())
    }

    /// Returns the error's kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// [`ErrorKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// [`ErrorKind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// [`ErrorKind::Full`].
    pub fn full(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Full, message)
    }

    /// [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

/// Cause of an error that was raised before any effect.
#[derive(Debug)]
struct NoEffect(String);

impl fmt::Display for NoEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoEffect {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// Cause of an error for a caller with a lower term.
#[derive(Debug)]
struct OutdatedTerm(Term);

impl fmt::Display for OutdatedTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device is at term {}", self.0)
    }
}

impl std::error::Error for OutdatedTerm {}

//! One error, whose kind says what the caller should do about it.

use std::fmt;

use crate::term::Term;

/// What a fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It isn't there. Look elsewhere, or say so.
    NotFound,
    /// Something newer or contrary stands in the way. Read again, then decide.
    Conflict,
    /// Not now. Try again later, or elsewhere.
    Unavailable,
    /// The device takes no more bytes. Take the next device.
    Full,
    /// Bytes are not what was written. Take another copy; never serve these.
    Corrupt,
    /// The request makes no sense. Don't send it again.
    Invalid,
    /// A fault on this side: a bug, or a failed disk call. Report it.
    Internal,
}

/// An error with a kind to act on, a sentence to read and, where there is one, a cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` that reads `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same with the error that caused it.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// [`ErrorKind::Unavailable`], and nothing came of the call: it was refused, or never arrived.
    pub fn unreached(message: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::unavailable(message).without_effect(cause)
    }

    /// The same, known to have come before anything was done.
    #[must_use]
    pub fn without_effect(self, cause: impl fmt::Display) -> Self {
        self.with_source(NoEffect(cause.to_string()))
    }

    /// [`ErrorKind::Unavailable`], and nothing came of the call: the caller goes by a lower term than
    /// the device was told (rule P1).
    pub fn outdated(newer: Term) -> Self {
        Self::unavailable("the request goes by a ring change that is over")
            .with_source(Outdated(newer))
    }

    /// The term that a caller should go by, if it went by a lower one.
    pub fn newer_term(&self) -> Option<Term> {
        self.source.as_ref()?.downcast_ref::<Outdated>().map(|outdated| outdated.0)
    }

    /// Whether the call is known to have had no effect. Of other calls that failed as
    /// [`ErrorKind::Unavailable`] the outcome is unknown.
    pub fn had_no_effect(&self) -> bool {
        let source = self.source.as_deref();
        source.is_some_and(|source| source.is::<NoEffect>() || source.is::<Outdated>())
    }

    /// What the caller should do.
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

/// The cause of an error that came before anything was done.
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

/// The cause of an error of a caller that is behind.
#[derive(Debug)]
struct Outdated(Term);

impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device is at term {}", self.0)
    }
}

impl std::error::Error for Outdated {}

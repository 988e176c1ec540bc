//! Why a command ends badly: one sentence for people, one exit code for scripts.

use std::fmt;
use std::process::ExitCode;

/// Why a command could not do what it was asked to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It was asked in a way that makes no sense: exit code 2, as for unknown flags.
    Usage(String),
    /// It was asked properly, and it can't be done: exit code 1.
    Refused(String),
}

impl Failure {
    /// The world does not allow it.
    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }

    /// The caller should ask otherwise.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::Usage(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Refused(sentence) => f.write_str(sentence),
        }
    }
}

/// Tells of an outcome on standard error, and turns it into an exit code.
pub(crate) fn report(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("martlet: {failure}");
    match failure {
        Failure::Usage(_) => ExitCode::from(2),
        Failure::Refused(_) => ExitCode::FAILURE,
    }
}

//! Failures of commands: one sentence for people and an exit code for scripts.

use std::fmt;
use std::process::ExitCode;

/// Reason for a command's failure, as a sentence for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Invalid arguments: exit code 2, as for unknown flags.
    Usage(String),
    /// Valid arguments, but the command failed: exit code 1.
    Refused(String),
}

impl Failure {
    /// Returns a [`Failure::Refused`] with this sentence.
    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }

    /// Returns a [`Failure::Usage`] with this sentence.
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

/// Prints a failure to standard error and returns the exit code of an outcome.
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

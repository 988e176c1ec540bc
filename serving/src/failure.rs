//! Failures of commands: one sentence for people and an exit code for scripts.

use std::fmt;

/// Reason for a command's failure, as a sentence for people.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Invalid arguments: exit code 2, as for unknown flags.
    Usage(String),
    /// Valid arguments, but the command failed: exit code 1.
    Refused(String),
}

impl Failure {
    /// Returns a [`Failure::Refused`] with this sentence.
    pub fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }

    /// Returns a [`Failure::Usage`] with this sentence.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self::Usage(sentence.into())
    }
}

/// Turns an error whose message is a sentence for people into a refusal.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::refused(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Refused(sentence) => f.write_str(sentence),
        }
    }
}

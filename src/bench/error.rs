//! Error of a run.

use std::fmt;

/// Error of a run, as a sentence.
#[derive(Debug)]
pub(crate) struct BenchError(String);

impl BenchError {
    /// Makes an error from its sentence.
    pub(super) fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

/// Outcome of a part of a run.
pub(super) type BenchResult<T> = Result<T, BenchError>;

//! Refusal of a document.

use std::borrow::Cow;

/// Reason for refusing a document, in S3's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct MalformedPolicy {
    message: Cow<'static, str>,
    /// Place in the document.
    place: Option<PolicyPlace>,
}

/// Place of a fault in a document. Numbers begin at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyPlace {
    /// Line and column, for text that is no JSON.
    Text(usize, usize),
    /// Number of a statement.
    Statement(usize),
}

impl MalformedPolicy {
    /// Creates a refusal with a message.
    pub(super) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), place: None }
    }

    /// Creates the refusal of a text that is no JSON.
    pub(super) fn no_json(error: &serde_json::Error) -> Self {
        let place = PolicyPlace::Text(error.line(), error.column());
        Self { message: "This policy contains invalid Json".into(), place: Some(place) }
    }

    /// Adds the number of the statement, from 1.
    pub(super) fn in_statement(self, number: usize) -> Self {
        Self { place: Some(PolicyPlace::Statement(number)), ..self }
    }

    /// Returns the message with the place, for replies that need not be S3's.
    pub(crate) fn located(&self) -> String {
        match self.place {
            None => self.message.to_string(),
            Some(PolicyPlace::Text(line, column)) => {
                format!("{} (line {line}, column {column})", self.message)
            }
            Some(PolicyPlace::Statement(number)) => {
                format!("{} (statement {number})", self.message)
            }
        }
    }
}

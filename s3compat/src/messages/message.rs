//! An error of S3: a code, and a message with places for its subjects.

use s3s::S3Error;

use crate::refusal::{Code, Refusal};

/// An error of S3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorMessage {
    /// Error code.
    pub(crate) code: Code,
    /// Message, with `{}` for each subject.
    pub(crate) text: &'static str,
}

impl ErrorMessage {
    /// Returns the error.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::new(self.code, self.text)
    }

    /// Returns the error with `what` as its subject.
    pub(crate) fn with_subject(&self, what: impl std::fmt::Display) -> Refusal {
        Refusal::new(self.code, self.text.replacen("{}", &what.to_string(), 1))
    }

    /// Returns the error with two subjects, in this order.
    pub(crate) fn with_subjects(
        &self,
        first: impl std::fmt::Display,
        second: impl std::fmt::Display,
    ) -> Refusal {
        let (before, rest) = self.text.split_once("{}").unwrap_or((self.text, ""));
        let (between, after) = rest.split_once("{}").unwrap_or((rest, ""));
        Refusal::new(self.code, format!("{before}{first}{between}{second}{after}"))
    }

    /// Returns the error with an argument's value as subject, and its name and value as details.
    pub(crate) fn argument(&self, name: &str, value: impl std::fmt::Display) -> Refusal {
        let value = value.to_string();
        self.with_subject(&value)
            .with_detail("ArgumentName", name)
            .with_detail("ArgumentValue", value)
    }

    /// Returns the error with an argument's name as subject and detail.
    pub(crate) fn named(&self, name: impl std::fmt::Display) -> Refusal {
        let name = name.to_string();
        self.with_subject(&name).with_detail("ArgumentName", name)
    }

    /// Returns the error in the type that operations return.
    pub(crate) fn error(&self) -> S3Error {
        self.refusal().into()
    }
}

pub(super) const fn known(code: Code, text: &'static str) -> ErrorMessage {
    ErrorMessage { code, text }
}

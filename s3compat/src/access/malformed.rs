//! Refusal of a document.

use std::borrow::Cow;

/// Reason for refusing a document, in S3's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedPolicy(Cow<'static, str>);

impl MalformedPolicy {
    /// Creates a refusal with a message.
    pub(super) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

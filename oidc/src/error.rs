//! Errors of requests to a provider.

/// Failure of a request to a provider. The sentences are for operators, and have no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// The provider can't be reached, takes too long, or its reply can't be used.
    #[error("the identity provider can't be used: {0}")]
    Unavailable(String),
    /// The provider refuses the code, the client or its secret.
    #[error("the identity provider refused the login: {0}")]
    Refused(String),
}

impl OidcError {
    /// Makes the error of an unusable provider.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable(why.into())
    }
}

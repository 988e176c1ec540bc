//! Errors of the model.

/// Reason why a run ended without results.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An argument that the model can't use.
    #[error("{0}")]
    Invalid(String),
    /// A ring that its builder refused.
    #[error("the ring builder refused: {0}")]
    Ring(#[from] martlet_ring::Error),
    /// A file that can't be written.
    #[error("{path} can't be written: {source}")]
    Write {
        /// The file or folder.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
    /// Results that have no JSON form.
    #[error("the results can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Result of the model's steps.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

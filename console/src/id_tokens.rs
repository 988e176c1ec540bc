//! Verifier of the tokens of an identity provider, which the store has.

use async_trait::async_trait;
use serde_json::{Map, Value};

/// Claims of a verified token.
pub type TokenClaims = Map<String, Value>;

/// Reason for refusing a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdTokenError {
    /// The token is not valid for this store. The sentence has no value of the token.
    Invalid(String),
    /// The keys of the provider can't be read at present.
    Unavailable,
}

/// Verifier of tokens: signature, issuer, audience and time.
#[async_trait]
pub trait IdTokens: Send + Sync {
    /// Verifies a token, and returns its claims.
    ///
    /// # Errors
    /// The token is not valid, or can't be checked.
    async fn verify(&self, token: &str) -> Result<TokenClaims, IdTokenError>;
}

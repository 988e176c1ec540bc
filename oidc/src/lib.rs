//! Client of an OpenID Connect provider: its metadata, its keys, and the exchange of a code.
//!
//! ```text
//! Provider ─ GET ISSUER/.well-known/openid-configuration ─▶ metadata, kept for an hour
//!          ─ GET jwks_uri ────────────────────────────────▶ keys, as bytes
//!          ─ POST token_endpoint: code and verifier ──────▶ ID token
//! ```
//!
//! * [`endpoint`]: URLs that may be fetched; [`fetch`]: one bounded request.
//! * [`metadata`]: the discovery document (OpenID Connect Discovery 1.0).
//! * [`pkce`]: verifiers of codes (RFC 7636), and the form of a login.
//! * [`provider`]: requests to the provider.
//!
//! Invariants:
//! * URLs are HTTPS. HTTP is accepted for the loopback interface alone.
//! * A reply is bounded in bytes and in time, and redirects are not followed.
//! * At most one request for the metadata is under way.
//! * No code, verifier, secret or token is in an error or in the log.
//!
//! This crate verifies no token. `s3compat` verifies signatures and claims, and the console compares
//! the nonce.

mod endpoint;
mod error;
mod fetch;
mod metadata;
mod pkce;
mod provider;

pub use endpoint::check_issuer;
pub use error::OidcError;
pub use pkce::{AuthorizationRequest, CodeVerifier};
pub use provider::{CodeExchange, OidcProvider, ProviderParts};

#[cfg(test)]
mod tests;

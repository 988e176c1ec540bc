//! Authentication of requests, from the request as it came over the wire.
//!
//! This module finds out who signed a request, and what the signature covers. The HTTP pipeline
//! calls it first, with the head as received: later steps remove and rewrite headers, and a
//! signature must be checked over the bytes that the client signed. The rights of the signer are
//! decided later, by `access`.
//!
//! ```text
//! head ─▶ Caller (key looked up) ─▶ Authenticator ─▶ Identity · Mechanism · Payload
//!                                        │
//!                                     Refusal
//! ```
//!
//! Looking up a key may wait for a quorum; checking a signature never waits. So both are separate
//! steps, and the second one is a pure function of head, key and time.
//!
//! * [`Authenticator`] decides: SigV4 and (if allowed) SigV2, each in the header or the query, or
//!   anonymous.
//! * [`Keys`] holds access keys, secrets and [`Identity`]s, and caches signing keys. Keys of
//!   tenants are looked up before a request is authenticated: [`Caller`].
//! * `Sessions` holds the credentials of roles' sessions, from their tokens; `sts` begins sessions.
//! * [`RequestTarget`] has its path decoded once and encoded once. Signature and operations use one
//!   decoding, so that the operation acts on exactly the path that was signed.
//!
//! Promises:
//! * Every `x-amz-*` header of a request is signed, except a few that SDKs leave out and that
//!   change nothing. So only its signer can extend a link.
//! * Signatures are compared in constant time, and secrets are never printed.
//! * A body is only described here ([`Payload`]); [`decode`](crate::decode) reads it.

mod access_keys;
mod authenticator;
mod caller;
mod canonical;
mod config;
mod credential;
mod fetched_keys;
mod form;
mod head;
mod jwks;
mod keys;
mod payload;
mod providers;
mod scope;
mod session_token;
mod sessions;
mod signature;
mod v2;
mod v4;

pub use authenticator::Authenticator;
pub use caller::Caller;
pub use config::{AuthConfig, UNNAMED_REGION};
pub use credential::{Credential, SecretKey};
pub use fetched_keys::JwksSource;
pub use head::{AuthenticatedHead, RequestHead};
pub(crate) use head::{Mechanism, single_header};
pub(crate) use jwks::{Algorithm, KeySet, TokenKey};
pub use keys::Keys;
pub use payload::Payload;
pub use providers::IdentityProvider;
pub use session_token::SessionKey;
pub(crate) use session_token::{IssuingKey, SessionToken};
pub(crate) use sessions::{ParsedRole, Sessions, user_id};
pub(crate) use v2::signs as signs_v2;

pub use crate::access::{AccountIdentity, Identity};
pub use crate::date::Timestamp;
pub use crate::decode::SigningKey;
pub use crate::refusal::{Code, Refusal};
pub use crate::target::{Pair, Query, RequestTarget};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

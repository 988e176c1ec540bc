//! Authentication of requests, from the request as it came over the wire.
//!
//! This module finds out who signed a request, and what the signature covers. The HTTP pipeline
//! calls it first, with the head as received: later steps remove and rewrite headers, and a
//! signature must be checked over the bytes that the client signed. Whether the signer may do what
//! the request asks is decided later, by `access`.
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
//! * [`RequestTarget`] is the bucket and key of a request, with its path decoded once and encoded
//!   once. Signature and operations use one decoding, so that the operation acts on exactly the
//!   path that was signed.
//! * [`Refusal`] is the reason for refusing a request, with S3's own error code.
//!
//! Promises:
//! * Every `x-amz-*` header of a request is signed, except a few that SDKs leave out and that
//!   change nothing. So only its signer can extend a link.
//! * Signatures are compared in constant time, and secrets are never printed.
//! * A body is only described here ([`Payload`]); [`decode`](crate::decode) reads it.

mod authenticator;
mod canonical;
mod date;
mod form;
mod identity;
mod keys;
mod payload;
mod query;
mod refusal;
mod scope;
mod target;
mod v2;
mod v4;

pub use authenticator::{
    AuthConfig, AuthenticatedHead, Authenticator, Caller, RequestHead, UNNAMED_REGION,
};
pub(crate) use authenticator::{Mechanism, single_header};
pub use date::Timestamp;
pub(crate) use identity::RoleSession;
pub use identity::{AccountIdentity, Identity};
pub use keys::{Credential, Keys, SecretKey, SigningKey};
pub use payload::Payload;
pub use query::{Pair, Query};
pub use refusal::{Code, Refusal};
pub use target::RequestTarget;
pub(crate) use target::decode as percent_decode;
pub(crate) use v2::signs as signs_v2;
pub(crate) use v4::unknown_key;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

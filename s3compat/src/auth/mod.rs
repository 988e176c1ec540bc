//! Who sent a request, proven from the request as it came over the wire.
//!
//! * [`Authenticator`] decides: SigV4 and (if allowed) SigV2, each in the header or the query, or
//!   anonymous.
//! * [`Keys`] knows access keys, secrets, [`Identity`]s, and caches signing keys. Those of tenants are
//!   asked for before a request is looked at: [`Caller`].
//! * [`Target`] is what the request is aimed at: its path decoded once, encoded once, and its
//!   query. The same decoding serves the signature and the operations, so that what was signed is
//!   what is done.
//! * [`Refusal`] is why a request was turned away, with S3's own error code.
//!
//! Promises:
//! * Every `x-amz-*` header that is present was signed, but for a short list that SDKs leave out
//!   and that changes nothing; so nobody can add to a link that somebody else signed.
//! * Signatures are compared in constant time, and secrets are never printed.
//! * A body is only described here ([`Payload`]); reading it is [`decode`](crate::decode)'s.

mod authenticator;
mod canonical;
mod date;
mod form;
mod keys;
mod payload;
mod query;
mod refusal;
mod scope;
mod target;
mod v2;
mod v4;
mod who;

pub use authenticator::{AuthConfig, Authenticated, Authenticator, Caller, Head, UNNAMED_REGION};
pub(crate) use authenticator::{Mechanism, single_header};
pub use date::Timestamp;
pub use keys::{Credential, Keys, Secret, SigningKey};
pub use payload::Payload;
pub use query::{Pair, Query};
pub use refusal::{Code, Refusal};
pub use target::Target;
pub(crate) use target::decode as percent_decode;
pub(crate) use v2::signs as signs_v2;
pub(crate) use v4::unknown_key;
pub(crate) use who::SessionOf;
pub use who::{Identity, Who};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

//! The S3 door: everything between a TCP connection and the object layer.
//!
//! A request passes the [`door`], which finds out who sent it ([`auth`]), turns its body into plain
//! bytes ([`decode`]), and lets nothing through that isn't in its closed table. Behind it s3s routes
//! the request and reads and writes S3's XML. The operations (`ops`) translate between S3's words
//! and those of [`martlet_proxy`], and `errors` turns what went wrong into S3's codes.
//!
//! * `access`: policies, as values: who may do what.
//! * `if_range`: what an object must be for a range of it to be wanted.
//! * `lenient`: headers that S3 reads more leniently than s3s does.
//! * `attributes`, `checksums`, `tags`: what objects say of themselves.
//! * `encryption`: what a request says of keys, and what its reply says.
//! * `consistency`: what a request asks of it, and what its reply rests on.
//! * `sentences`: S3's errors, with their codes and words.
//! * `sts`: roles taken on for a while, and the tokens of those who did.
//! * `token`: continuation tokens that nobody else can make.
//! * `events`, `logging`: what others are told of requests: what became of objects, and who asked for
//!   what; `watch` tells them.
//! * [`S3Service`]: all of it together, ready for a connection.

mod access;
mod attributes;
pub mod auth;
mod checksums;
mod consistency;
pub mod decode;
pub mod door;
mod encryption;
mod errors;
mod events;
mod if_range;
mod lenient;
mod limits;
mod lock;
mod logging;
mod missing;
mod ops;
mod sentences;
mod service;
mod sts;
mod tags;
mod token;
mod watch;

pub use events::{ExpiryEvents, Outlet};
pub use limits::Limited;
pub use limits::proven::Proven;
pub use logging::{AccessLog, BucketLogs, Delivery, DeliveryOptions};
pub use service::{Peer, S3Service, Tls, TlsVersion};
pub use sts::{IdentityProvider, SessionKey};
pub use token::TokenKey;
pub use watch::Hearers;

/// Refuses what can't be the policy of a user or of a role, with the reason.
///
/// # Errors
/// The reason, in a sentence.
pub fn check_own_policy(text: &str) -> Result<(), String> {
    access::OwnPolicy::check(text).map_err(|error| error.to_string())
}

/// Refuses what can't say who may take on a role, with the reason.
///
/// # Errors
/// The reason, in a sentence.
pub fn check_trust(text: &str) -> Result<(), String> {
    access::Trust::parse(text).map(drop).map_err(|error| error.to_string())
}

/// The ids of those whom a document of trust names, as a role keeps them beside it.
///
/// # Errors
/// The reason, in a sentence: the document can't be taken, a name is nobody's, or no quorum answers.
pub async fn bind_trust(store: &martlet_proxy::ObjectStore, text: &str) -> Result<String, String> {
    let trust = access::Trust::parse(text).map_err(|error| error.to_string())?;
    let bound = ops::bind(store, text.as_bytes(), trust.names()).await;
    let bindings = bound.map_err(|unbound| match unbound {
        ops::Unbound::Unknown => "it names somebody who isn't there".to_owned(),
        ops::Unbound::Failed(error) => error.to_string(),
    })?;
    String::from_utf8(bindings.encode()).map_err(|error| error.to_string())
}

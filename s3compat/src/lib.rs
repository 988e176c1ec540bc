//! The S3 front end: everything between a TCP connection and the object layer.
//!
//! A request passes [`http`], which authenticates it ([`auth`]), decodes its body
//! to plain bytes ([`decode`]) and decides its operation in a closed table. `dispatch` checks access
//! and runs the operation. The operations (`ops`) translate between S3's terms and those of
//! [`martlet_proxy`], and `errors` maps errors to S3's codes. s3s contributes the types of S3's
//! documents and their XML.
//!
//! * `request`: one request as a typed value, from the pipeline to its operation.
//! * `body`: bodies of requests and replies.
//! * `access`: policies as values, and their evaluation.
//! * `if_range`: the `If-Range` header.
//! * `request_headers`: headers that S3 reads leniently.
//! * `attributes`, `checksums`, `tags`: metadata of objects.
//! * `encryption`: encryption headers of requests and replies.
//! * `consistency`: consistency headers of requests and replies.
//! * `messages`: S3's errors, with their codes and messages.
//! * `sts`: temporary sessions of roles, and their tokens.
//! * `token`: continuation tokens that clients can't forge.
//! * `events`, `logging`: event records and access log lines; `request_observer` delivers both
//!   after each reply.
//! * [`S3Service`]: all of these modules as one service for a connection.

mod access;
mod attributes;
pub mod auth;
mod body;
mod bucket_documents;
mod checksums;
mod consistency;
pub mod decode;
mod dispatch;
mod encryption;
mod errors;
mod events;
pub mod http;
mod if_range;
mod limits;
mod lock;
mod logging;
mod messages;
mod ops;
mod request;
mod request_headers;
mod request_observer;
mod service;
mod sts;
mod tags;
mod token;

pub use events::{EventSink, ExpiryEvents};
pub use limits::LimitReason;
pub use logging::{AccessLog, BucketLogs, Delivery, DeliveryOptions};
pub use martlet_protocol::http::{AuthenticatedFlag, Peer, TlsParameters, TlsVersion};
pub use request_observer::Observers;
pub use service::S3Service;
pub use sts::{IdentityProvider, SessionKey};
pub use token::TokenKey;

/// Checks the policy document of a user or a role.
///
/// # Errors
/// The reason, in a sentence.
pub fn check_own_policy(text: &str) -> Result<(), String> {
    access::IdentityPolicy::check(text).map_err(|error| error.to_string())
}

/// Checks the trust document of a role.
///
/// # Errors
/// The reason, in a sentence.
pub fn check_trust(text: &str) -> Result<(), String> {
    access::Trust::parse(text).map(drop).map_err(|error| error.to_string())
}

/// Returns the encoded ids of the principals that a trust document names. A role stores them beside
/// the document.
///
/// # Errors
/// The reason, in a sentence: the document is invalid, a name doesn't exist, or no quorum answers.
pub async fn bind_trust(store: &martlet_proxy::ObjectStore, text: &str) -> Result<String, String> {
    let trust = access::Trust::parse(text).map_err(|error| error.to_string())?;
    let bound = ops::bind(store, text.as_bytes(), trust.names()).await;
    let bindings = bound.map_err(|unbound| match unbound {
        ops::BindError::Unknown => "it names a principal that does not exist".to_owned(),
        ops::BindError::Failed(error) => error.to_string(),
    })?;
    String::from_utf8(bindings.encode()).map_err(|error| error.to_string())
}

//! The S3 front end: everything between a TCP connection and the object layer.
//!
//! A request passes [`http`], which authenticates it ([`auth`]), decodes its body
//! to plain bytes ([`decode`]) and decides its operation in a closed table. `dispatch` checks access
//! and runs the operation. The operations (`ops`) translate between S3's terms and those of
//! [`martlet_proxy`], and `errors` maps errors to S3's codes. s3s contributes the types of S3's
//! documents and their XML.
//!
//! The layers, from the bottom up. A module imports modules of its own layer and of lower ones:
//!
//! 1. `refusal`: S3's error codes. `messages`: S3's errors, with their sentences.
//! 2. `target`, `date`, `header_values`, `version_ids`, `xml_text`, `token`: texts of requests and
//!    replies. `few`: lists without an allocation.
//! 3. `operation`: the operations of S3, and their closed table. `limits`: rates and turns.
//! 4. [`decode`], `body`: bodies of requests and replies.
//! 5. `errors`: errors of the object layer. `fields`, `request_headers`, `if_range`, `attributes`,
//!    `checksums`, `tags`, `encryption`, `consistency`, `settings`: values of requests, objects and
//!    buckets.
//! 6. `access`: identities, policies and lists, and their evaluation. `lock`: object locks.
//! 7. [`auth`]: signatures, access keys and sessions.
//! 8. `connection`, `authorization`: the rights of a request.
//! 9. `events`, `logging`: event records and access log lines.
//! 10. `reply`, `form_reply`: replies of operations. `request`: one request as a typed value.
//! 11. `sts`: temporary sessions of roles. `iam`: users' own keys. [`http`]: the pipeline.
//! 12. `ops`: the operations. `dispatch`: their access checks and sessions.
//! 13. `request_observer`: delivery of events and log lines. [`S3Service`]: all of these modules as
//!     one service for a connection.

mod access;
mod attributes;
pub mod auth;
mod authorization;
mod body;
mod bucket_documents;
mod change_log;
mod checksums;
mod connection;
mod consistency;
mod date;
mod decimal;
pub mod decode;
mod dispatch;
mod encryption;
mod errors;
mod events;
mod few;
mod fields;
mod form_reply;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header_values;
pub mod http;
mod iam;
mod if_range;
mod in_place;
mod limits;
mod lock;
mod logging;
mod messages;
mod operation;
mod ops;
mod rdma;
mod refusal;
mod reply;
mod request;
mod request_headers;
mod request_observer;
mod service;
mod settings;
mod sts;
mod tags;
mod target;
mod token;
mod version_ids;
mod view;
mod xml_text;

pub use auth::{IdentityProvider, JwksSource, SessionKey};
pub use change_log::{ChangeLog, ChangeTarget, RecordEnd, RecordedChange};
pub use events::{EventSink, ExpiryEvents};
pub use in_place::InPlaceConfig;
pub use limits::{LimitReason, QueueFigures, RequestKind, WaitingKey};
pub use logging::{AccessLog, BucketLogs, Delivery, DeliveryOptions};
pub use martlet_protocol::http::{AuthenticatedFlag, Peer, TlsParameters, TlsVersion};
pub use request_observer::Observers;
pub use service::S3Service;
pub use sts::{Claims, TokenRefusal};
pub use token::TokenKey;

/// Checks the policy document of a user or a role.
///
/// # Errors
/// The reason, in a sentence.
pub fn check_own_policy(text: &str) -> Result<(), String> {
    access::IdentityPolicy::check(text).map_err(|error| error.located())
}

/// Checks the trust document of a role.
///
/// # Errors
/// The reason, in a sentence.
pub fn check_trust(text: &str) -> Result<(), String> {
    access::Trust::parse(text).map(drop).map_err(|error| error.located())
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

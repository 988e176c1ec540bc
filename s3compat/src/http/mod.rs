//! HTTP pipeline in front of the operations: checks of requests, completion of replies.
//!
//! ```text
//! request ─▶ request id ─▶ a turn or seat ─▶ limits ─▶ host ─▶ target ─▶ authentication ─▶ table
//!         ─▶ features ─▶ body plan (decode; XML is read whole and inspected)
//!         ─▶ share, queue and rate ─▶ operations
//! reply   ◀─ request id, error document ◀──┘
//! ```
//!
//! * `admission`: the turn of one request, which may have to be waited for.
//! * `cors`: cross-origin requests. Preflights are answered without a signature; all other replies
//!   get the headers of the bucket's rules.
//! * `host`: bucket names in `Host` headers.
//! * `documents`: bodies that are read whole, and their memory.
//! * `expect`: connections of clients that wait with their body.
//! * `features`: refusal of headers that request unsupported features.
//! * `anonymous_check`: early refusal of anonymous requests, by their heads alone.
//! * `form`: uploads by HTML form, each converted to the PUT that it stands for.
//! * `tokens`: requests to the security token service.
//! * `xml`: the shape of XML bodies: bounded, shallow, without DOCTYPE, CDATA or custom entities.
//! * `schema`: the elements that XML bodies may have, and those that are numbers.
//! * `pipeline`: the order of all steps for one request; `pipeline_state`: the state of the steps.
//! * `reply`: request ids on every reply, complete error documents.
//!
//! The table is `operation`: method × kind of path → allowed query keys. Requests outside of the
//! table return NotImplemented; no request falls through to another operation.
//!
//! No body is read before its request has passed authentication and the table. So a waiting client
//! (`Expect: 100-continue`) is answered only then. Forms and token requests are exceptions: their
//! fields hold the credentials. Documents of unsigned requests also wait for `anonymous_check`.

mod admission;
mod anonymous_check;
mod checksum;
mod config;
mod cors;
mod documents;
mod expect;
mod features;
mod form;
mod host;
mod numbers;
mod pipeline;
mod pipeline_state;
mod reply;
mod schema;
mod service;
mod tokens;
mod xml;

pub(crate) use anonymous_check::AnonymousCheck;
pub use config::HttpConfig;
pub use cors::CorsRules;
pub(crate) use cors::is_method as is_cors_method;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use documents::plain_document;
pub(crate) use service::{HttpService, OperationHandler};

pub use crate::body::ResponseBody;
pub use crate::operation::{BodyKind, Operation, OperationRow, PathKind, TABLE};

#[cfg(test)]
mod tests;

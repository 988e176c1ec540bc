//! The door: what every request passes before an operation sees it, and every reply after.
//!
//! ```text
//! request ─▶ request id ─▶ a turn ─▶ limits ─▶ host ─▶ target ─▶ authentication ─▶ table ─▶ features
//!            ─▶ body plan (decode; XML is read whole and inspected) ─▶ share and rate ─▶ operations
//! reply   ◀─ request id, error document ◀───────────────────────────────────────────┘
//! ```
//!
//! * `cors`: what pages of other origins may do. Their preflights are answered before anyone is
//!   asked for a signature, and the headers of the bucket's rules go onto every other reply.
//! * `host`: which bucket a `Host` header names.
//! * `table`: the closed table of method × kind of path → allowed query keys. What is not in it
//!   answers NotImplemented; nothing falls through to another operation.
//! * `documents`: bodies that are read whole, and their memory.
//! * `expect`: what becomes of a connection whose client waits with its body.
//! * `features`: the headers that ask for what isn't there yet.
//! * `judge`: what nobody in particular can't be allowed, by the request's head alone.
//! * `form`: uploads by HTML form, each made into the PUT that it stands for.
//! * `tokens`: requests for the security token service.
//! * `xml`: the shape of XML bodies: bounded, shallow, without DOCTYPE, CDATA or entities.
//! * `schema`: the elements that XML bodies may have, and which of them are numbers.
//! * `prepare`: the order of it all for one request.
//! * `reply`: request ids on every reply, complete error documents.
//!
//! Nothing of a body is read before the request has passed authentication and the table, so
//! `Expect: 100-continue` is answered only then. Documents of requests that nobody signed wait for the
//! judge, too.

mod checksum;
mod config;
mod cors;
mod documents;
mod expect;
mod features;
mod form;
mod host;
mod judge;
mod numbers;
mod prepare;
mod reply;
mod schema;
mod service;
mod table;
mod tokens;
mod xml;

pub use config::DoorConfig;
pub use cors::CorsRules;
pub(crate) use cors::is_method as is_cors_method;
pub(crate) use judge::HeadJudge;
pub(crate) use prepare::Document;
pub use reply::RequestId;
#[cfg(test)]
pub(crate) use reply::read_detail;
pub(crate) use reply::{DETAIL, ErrorCode, QUOTA_DETAIL, detail, push_element};
pub(crate) use service::Tally;
pub use service::{Door, GuardedBody};
pub use table::{BodyKind, Operation, PathKind, TABLE};

#[cfg(test)]
mod tests;

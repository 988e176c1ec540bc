//! The backend trait over HTTP: [`HttpBackend`] is a [`Backend`](crate::Backend) for a remote node,
//! and [`router`] is the node's side.
//!
//! ```text
//! HttpBackend ─ breaker ─ pool ─ signed request ──▶ serve ─ guarded ─ router ──▶ Backend
//!             ◀─ report ─ clock and ring tags ───── every reply
//! ```
//!
//! * Index calls are `POST /v1/d/<device>/<call>` with postcard both ways. Extents are streamed:
//!   `PUT` and `GET /v1/d/<device>/extents/<id>`.
//! * Short index calls travel in a [`channel`], once one is open: frames on one connection, which
//!   was authenticated once.
//! * [`guarded`] only passes requests signed with the [`ClusterKey`]: method, path, query, date,
//!   every `x-martlet-*` header, and the BLAKE3 of the body unless it is streamed.
//! * Every reply carries its node's clock, ring tags and data port: [`NodeReport`].
//! * A request made for a client's request carries its id: [`REQUEST`]. Requests of background work
//!   are marked, and their replies carry the time that clients wait at the node.
//! * A request made for a sampled request carries the span that it belongs to.
//! * Both sides announce their [`Release`](crate::Release). A node refuses callers without a common
//!   version, and a client refuses replies of such nodes.
//! * An error keeps its kind and its message. A connection error is
//!   [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable);
//!   [`Error::had_no_effect`](crate::Error::had_no_effect) is true if the request certainly wasn't
//!   carried out.
//! * Bytes of an extent are read in frames with checksums: a reader gets no bytes that changed in
//!   transit.
//!
//! A port for clients attaches facts about the connection to each request: [`Peer`],
//! [`TlsParameters`], [`AuthenticatedFlag`].
//!
//! The signature covers the request's head and small bodies, so a sender without the key can't
//! forge or change a request. It doesn't cover streamed bytes and replies, and frame checksums have
//! no key. On an untrusted network, TLS with certificates on both sides protects these.

mod announce;
mod call_codec;
mod calls;
mod certificates;
mod channel;
mod client;
mod connection;
mod fault;
mod frames;
#[cfg(all(feature = "testing", any(test, feature = "fuzzing")))]
mod fuzzing;
mod key;
mod message_codec;
mod release_tag;
mod request;
mod server;
mod sign;
mod spanned_backend;
mod tls;
mod trace_tag;
mod write_timeout;

pub use announce::{Announcement, DataPortTag, NodeReport, RingTag, RingTags};
pub use certificates::{CertificateInUse, certificate_ends_s, validity_s};
pub use client::{ClientOptions, HttpBackend};
pub use connection::{AuthenticatedFlag, Peer, TlsParameters, TlsVersion};
#[cfg(all(feature = "testing", any(test, feature = "fuzzing")))]
pub use fuzzing::FRAMES;
pub use key::ClusterKey;
pub use release_tag::{AnnouncedRelease, ReleaseTag};
pub use request::{REQUEST, current_request, in_request, with_request};
pub use server::{CallObserver, ServeOptions, ServedCall, ServerOptions, guarded, router, serve};
pub use spanned_backend::SpannedBackend;
pub use tls::{Tls, TlsFiles};
pub use trace_tag::scope_of_headers;
pub use write_timeout::WriteTimeout;

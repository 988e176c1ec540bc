//! The seam over HTTP: [`HttpBackend`] is a [`Backend`](crate::Backend) whose node is elsewhere, and
//! [`router`] is that node's side.
//!
//! ```text
//! HttpBackend ─ breaker ─ pool ─ signed request ──▶ serve ─ guarded ─ router ──▶ Backend
//!             ◀─ heard ── clock and ring tags ───── every reply
//! ```
//!
//! * Index calls are `POST /v1/d/<device>/<call>` with postcard both ways. Extents are streamed:
//!   `PUT` and `GET /v1/d/<device>/extents/<id>`.
//! * [`guarded`] lets through only what was signed with the [`ClusterKey`]: method, path, query,
//!   date, every `x-martlet-*` header, and the BLAKE3 of the body unless it is streamed.
//! * Every reply says what its node's clock shows and which rings it has: [`Heard`].
//! * A request that is made for a client's request says which: [`REQUEST`]. One of background work
//!   says that it is, and its reply how long clients wait at the node.
//! * An error keeps its kind and its sentence. What happened on the way is
//!   [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable); [`Error::had_no_effect`](crate::Error::had_no_effect) tells whether the
//!   request may have been carried out.
//! * The bytes of an extent that is read come in frames with checksums: a reader gets none that changed
//!   on their way.
//!
//! What is checked by whom: the signature covers what a request says, so nobody without the key can
//! make one up or change it. It doesn't cover streamed bytes and replies, and a checksum has no key;
//! where the network isn't trusted, TLS with certificates on both sides does.

mod announce;
mod calls;
mod client;
mod fault;
mod frames;
mod key;
mod patient;
mod request;
mod server;
mod sign;
mod tls;

pub use announce::{Announcement, Heard, RingTag, RingTags};
pub use client::{ClientOptions, HttpBackend};
pub use key::ClusterKey;
pub use patient::Patient;
pub use request::{REQUEST, current_request, in_request, with_request};
pub use server::{ServeOptions, ServerOptions, guarded, router, serve};
pub use tls::{Tls, TlsFiles};

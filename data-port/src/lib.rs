//! Data port of a node: clients read extents in place, with tokens that proxies made.
//!
//! ```text
//! client ──GET /x/ID?t=TOKEN──▶ serving ─▶ connection ─▶ head ─▶ answer ─▶ StorageNode
//!        ◀── checksums, bytes ─────────────────┘  ▲                  │
//!                                                 └── ExtentInPlace ◀┘
//! ```
//!
//! * [`head`]: a request's head, parsed; pure.
//! * [`range`]: ranges of a request, resolved; pure.
//! * [`answer`]: the decision about a request: its token, its extent, its bytes.
//! * [`reply_head`]: the text of a reply's head.
//! * [`connection`]: requests and replies on one connection. Replies of verified bytes are written
//!   from memory; unverified ones are sent from the page cache by the kernel, where the connection
//!   is in clear.
//! * [`turns`]: concurrent requests, and the shares of tenants; [`progress`]: the minimum rate of a reply;
//!   [`limits`]: limits on both; [`figures`]: counters by tenant.
//!
//! The port is a server of its own, and small: HTTP/1.1, two methods, one path, no bodies in
//! requests. So no request reaches another part of the node, and the kernel's `sendfile` fits in.
//! Limits on connections are those of [`martlet_serving`].
//!
//! Invariants:
//! * No byte leaves without a token that grants this byte to this address now.
//! * The cluster key opens nothing here, and a token nothing elsewhere.
//! * A reply is as long as announced, or its connection ends.
//! * After a send whose outcome is not known, nothing more is sent on its connection.

mod answer;
mod connection;
mod figures;
mod head;
mod limits;
mod progress;
mod range;
mod reply_head;
mod turns;

pub use answer::DataPortServer;
pub use figures::DataPortFigures;
pub use limits::DataPortLimits;

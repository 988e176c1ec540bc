//! Limits of requests: rates of accounts and keys, and turns for concurrent requests.
//!
//! ```text
//! request ─▶ free turn ─▶ signature ─▶ share of turns ─▶ rate of account and key ─▶ operation
//!               │                        │     ▲                 │
//!               └─▶ seat ─▶ signature ─▶ queue ┘                 │
//!                    │                     │                     │
//!                    └───── SlowDown ◀─────┴─────────────────────┘
//! ```
//!
//! A turn is a slot for one concurrent request.
//!
//! * [`meter`]: recent use of an account or a key, against its rates.
//! * [`documents`]: memory for bodies that are read whole.
//! * [`concurrency`]: all turns and seats, and the shares of accounts.
//! * [`fair_queue`]: order of waiting requests; [`repeats`]: requests that left without a turn.
//!
//! Each proxy enforces rates by itself: through three proxies a tenant may reach three times its
//! rate.
//!
//! Invariants:
//! * A request without a rate takes no lock, and needs no memory beyond its cached key's.
//! * A meter lives as long as a key of its account is cached.
//! * Only requests with a verified signature are metered, so no client spends the rate of another.
//! * A request gets its share of turns before its body is awaited. The share is its signer's, or
//!   that of anonymous requests if only the body names the signer.

pub(crate) mod concurrency;
pub(crate) mod documents;
mod fair_queue;
pub(crate) mod meter;
mod repeats;

pub use self::concurrency::{QueueFigures, WaitingKey};
pub use self::fair_queue::RequestKind;

/// Reason for refusing a valid request. The reply carries it as an extension, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitReason {
    /// No turn came free in time, too many requests wait, or no memory for documents was left.
    Overload,
    /// The account has its share of the turns, and other accounts need theirs.
    Share,
    /// The account or key exceeded its rate.
    Rate,
    /// A quota would have been exceeded.
    Quota,
}

impl LimitReason {
    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Share => "share",
            Self::Rate => "rate",
            Self::Quota => "quota",
        }
    }
}

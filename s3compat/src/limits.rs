//! How fast somebody may ask, and how many turns somebody may have at a time.
//!
//! ```text
//! request ─▶ a turn, if one is free ─▶ signature ─▶ share of turns ─▶ rate of account and key ─▶ operation
//!               │                                       │                 │
//!               └──────── SlowDown ◀────────────────────┴─────────────────┘
//! ```
//!
//! * [`meter`]: what an account or a key has used lately, against its rates.
//! * [`body`]: bodies on their way in.
//! * [`documents`]: the memory for bodies that are read whole.
//! * [`proven`]: connections that have shown a key.
//! * [`turns`]: the turns that there are, and the shares of those who have some.
//!
//! Rates hold at each proxy by itself: at three proxies a tenant may come to three times its rate.
//!
//! Invariants:
//! * Whoever has no rate is asked nothing, takes no lock and costs no memory beyond its key's.
//! * A meter lives as long as a key of its account is remembered.
//! * Nothing is metered before a signature has been found right: nobody spends what is another's.
//! * No body is waited for before its request has its share of turns: that of whoever signed it, or, where
//!   only the body says who that is, that of those who don't say who they are.

pub(crate) mod body;
pub(crate) mod documents;
pub(crate) mod meter;
pub(crate) mod proven;
pub(crate) mod turns;

/// Why a request was turned away that was right in itself. It goes with the reply as an extension, for
/// whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limited {
    /// All turns were taken, or all memory for documents.
    Overload,
    /// Its account has its share of the turns, and others need theirs.
    Share,
    /// Its account or key had asked for more than its rate.
    Rate,
    /// A quota would have been passed.
    Quota,
}

impl Limited {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Share => "share",
            Self::Rate => "rate",
            Self::Quota => "quota",
        }
    }
}

//! Extents over the devices of several nodes: copies out, bytes back in.
//!
//! Any copy of an extent is right, wherever it lies, so neither half of this needs to know what
//! other proxies do. What it must not do is wait for a node that is dead, slow or full while others
//! could serve, nor ask more of the cluster than clients ask of it.
//!
//! ```text
//! ingest ──▶ fanout ──▶ pipes ──▶ delivery ──▶ nodes    delivery: one call for each copy or
//!              │                    │                   fragment, the next device where one refuses
//!              └── gives up those   ├── placement       durable: enough of them (X5), a short grace;
//!                  that fall behind └── durable         laggards go on behind
//!                                        ├── tally      tally: what counts as enough
//!                                        └── laggards
//! bodies ──▶ stream ──▶ seek ──▶ nodes                  stream: resumes what breaks or stalls
//!                         └── holders                   seek: asks one, hedges, then everybody
//!
//!                  health                               who failed, who is full, who is slow
//! ```

mod copies;
mod delivery;
mod durable;
mod fanout;
mod flow;
mod health;
mod holders;
mod laggards;
mod placement;
mod seek;
mod stream;
mod tally;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::coded::Codecs;
use crate::coded::admission::Admission;

pub(crate) use copies::begin;
pub(crate) use delivery::{Fragment, Piece, Plan, begin as begin_pieces};
pub(crate) use fanout::Fanout;
pub(crate) use flow::{Flow, IDLE_MAX};
pub(crate) use health::Health;
pub(crate) use holders::homes;
pub(crate) use laggards::END_TIME;
pub(crate) use seek::Sought;
pub(crate) use stream::{ExtentStream, READER_IDLE_MAX};

/// What all reads and writes of extents share.
pub(crate) struct Extents {
    pub(crate) health: Health,
    /// Bytes that copies may hold which are still under way when their write is done: a quarter of
    /// what all writes may hold, so that copies which nobody waits for leave room for the others.
    pub(crate) laggards: Arc<Semaphore>,
    /// Bytes of fragments that may be kept for another device, beyond what all writes may hold.
    pub(crate) kept: Arc<Semaphore>,
    /// The same of copies: clients that stall leave them lying.
    pub(crate) kept_copies: Arc<Semaphore>,
    /// Whose turn it is to add up parity.
    pub(crate) admission: Admission,
    pub(crate) codecs: Codecs,
    /// Bytes of fragments that reads may hold to make lost ones of them: a quarter of that too.
    pub(crate) recoveries: Arc<Semaphore>,
    /// All of these.
    pub(crate) recovery_bytes_max: usize,
}

impl Extents {
    /// For a store whose writes may hold `buffer_bytes_max` together.
    pub(crate) fn new(buffer_bytes_max: usize) -> Self {
        let share = (buffer_bytes_max / 4).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            health: Health::default(),
            laggards: Arc::new(Semaphore::new(share)),
            kept: Arc::new(Semaphore::new(share)),
            kept_copies: Arc::new(Semaphore::new(
                share.saturating_mul(2).min(Semaphore::MAX_PERMITS),
            )),
            admission: Admission::new(buffer_bytes_max),
            codecs: Codecs::default(),
            recoveries: Arc::new(Semaphore::new(share)),
            recovery_bytes_max: share,
        }
    }
}

//! Extents over the devices of several nodes: copies out, bytes back in.
//!
//! Any copy of an extent is right, wherever it lies, so neither half of this needs to know what
//! other proxies do. What it must not do is wait for a node that is dead, slow or full while others
//! could serve, nor ask more of the cluster than clients ask of it.
//!
//! ```text
//! ingest ──▶ fanout ──▶ pipes ──▶ copies ──▶ nodes      copies: one call for each copy, the next
//!              │                    │                   device where one refuses, a majority, a
//!              └── gives up those   ├── placement       short grace; laggards go on behind
//!                  that fall behind ├── tally           tally: what counts as a majority (X5)
//!                                   └── laggards
//! bodies ──▶ stream ──▶ seek ──▶ nodes                  stream: resumes what breaks or stalls
//!                         └── holders                   seek: asks one, hedges, then everybody
//!
//!                  health                               who failed, who is full, who is slow
//! ```

mod copies;
mod fanout;
mod health;
mod holders;
mod laggards;
mod placement;
mod seek;
mod stream;
mod tally;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub(crate) use copies::begin;
pub(crate) use fanout::Fanout;
pub(crate) use health::Health;
pub(crate) use laggards::END_TIME;
pub(crate) use seek::Sought;
pub(crate) use stream::ExtentStream;

/// What all reads and writes of extents share.
pub(crate) struct Extents {
    pub(crate) health: Health,
    /// Bytes that copies may hold which are still under way when their write is done: a quarter of
    /// what all writes may hold, so that copies which nobody waits for leave room for the others.
    pub(crate) laggards: Arc<Semaphore>,
}

impl Extents {
    /// For a store whose writes may hold `buffer_bytes_max` together.
    pub(crate) fn new(buffer_bytes_max: usize) -> Self {
        let laggards = (buffer_bytes_max / 4).min(Semaphore::MAX_PERMITS);
        Self { health: Health::default(), laggards: Arc::new(Semaphore::new(laggards)) }
    }
}

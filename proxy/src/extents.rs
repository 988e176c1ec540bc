//! Extents on the devices of several nodes: writes of copies and fragments, and reads.
//!
//! Any copy of an extent is valid, wherever it is stored, so reads and writes need no coordination
//! between proxies. They must not wait for dead, slow or full nodes while others can serve, and
//! must not multiply the clients' load on the cluster.
//!
//! ```text
//! ingest ──▶ fanout ──▶ pipes ──▶ delivery ──▶ nodes    delivery: one call for each copy or
//!              │                    │                   fragment; the next device after a refusal
//!              └── gives up slow    ├── placement       durable: enough of them (X5), a short
//!                  devices          └── durable         grace; laggards go on in background
//!                                        ├── tally      tally: counts matching copies
//!                                        └── laggards
//! bodies ──▶ stream ──▶ seek ──▶ nodes                  stream: resumes broken or stalled reads
//!                         └── holders                   seek: one device, hedges, then all
//!
//!                  health                               failed, full and slow devices
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

/// State that all reads and writes of extents share.
pub(crate) struct Extents {
    pub(crate) health: Health,
    /// Bytes that laggards may hold after their write is done. A quarter of the write budget, so
    /// that they leave room for other writes.
    pub(crate) laggards: Arc<Semaphore>,
    /// Bytes of fragments kept for another device, beyond the write budget.
    pub(crate) kept: Arc<Semaphore>,
    /// Bytes of copies kept for another device: half of the write budget. Stalled clients may hold
    /// them long.
    pub(crate) kept_copies: Arc<Semaphore>,
    /// Turns for standing bytes of writes.
    pub(crate) admission: Admission,
    pub(crate) codecs: Codecs,
    /// Bytes of fragments that reads hold for reconstruction: a quarter of the write budget.
    pub(crate) recoveries: Arc<Semaphore>,
    /// Total of `recoveries`.
    pub(crate) recovery_bytes_max: usize,
}

impl Extents {
    /// State for a store whose writes may hold `buffer_bytes_max` bytes together.
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

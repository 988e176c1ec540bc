//! Windows of extents that concurrent readers share: each is fetched once for all who wait.
//!
//! A window is an aligned MiB of a stored extent or fragment, as the nodes send it: encrypted bytes
//! stay encrypted. Readers get here after authorization, with the ids from an entry that they read.
//! Ids are never used again and extents never change, so a window can't be stale.
//!
//! ```text
//! bodies ──▶ stream ──┬─ alone ─────────────────▶ nodes    stream: one reader's bytes in order
//!            pace     └─ in company ──▶ cache ──▶ nodes    cache: one task fetches a window
//!            readers                    table              readers: finds company
//!                                                          pace: keeps company within the cache
//!                                                          table: windows within the memory bound
//! ```
//!
//! Invariants:
//! * A reader without company fetches its range itself: no byte is copied or kept for others.
//! * A window is shared once all its bytes have passed the nodes' and the transport's checks. A
//!   failed fetch leaves nothing behind, and each reader that waited reads its range itself.
//! * Windows take at most the configured bytes, those being fetched included. Readers hold no
//!   window, only pieces on their way to a client. So a slow client keeps none from being dropped.
//! * A fetch goes on while any reader waits for it, and ends with the last one.
//! * A reader waits for those behind it at most 2 s, and beyond that half of its time.

mod cache;
mod pace;
mod readers;
mod source;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub use cache::WindowFigures;
pub(crate) use cache::Windows;
pub(crate) use pace::Pace;
pub(crate) use source::StoredBytes;
pub(crate) use stream::SharedStream;

//! Terminal view of a cluster, for `martlet top`: values in, a drawn screen out.
//!
//! ```text
//! replies ──▶ View::apply ─┐
//! keys ─────▶ View::press ─┼─▶ View ──▶ draw(frame, &view)   a terminal
//! clock ────▶ View::tick ──┘        └─▶ plain(&view)         text of `--once`
//!                View::due ──▶ parts to request next
//! ```
//!
//! The crate contains no I/O: the command requests, reads keys and owns the terminal.
//!
//! * [`metrics`]: readings of a metrics page, and rates between two of them.
//! * `schedule`: the parts that a screen needs, and when each is requested again.
//! * `tables`: rows of devices, nodes, rings, workers and jobs. `listing`: filter, sort, scroll.
//! * `text`: escapes, sizes, spans. All texts of the cluster pass [`escaped`] once, when rows are
//!   made, so that no control character reaches a terminal.
//!
//! # Cost
//!
//! One set of requests is under way at a time. Each part has a period, and rests nine times as long
//! as its last request took: at most a tenth of the time of one connection is spent.
//!
//! | part | while | period | the queried process | reply at 1,000 nodes × 60 devices |
//! |---|---|---|---|---|
//! | metrics | always | the interval | reads its own counters | 5 lines a node: 0.5 MB |
//! | status | always | interval, 5 s at least | requests the reports of 1,000 nodes | 400 B a device, 400 B a worker: 30 MB |
//! | capacity | overview, devices | 15 s | requests the reports of 1,000 nodes, counts the rings | 450 B a device: 27 MB |
//! | dispersion | rings | 15 s | counts the rings | 20 lines a ring: 10 kB |
//! | jobs | jobs | the interval | reads its table | 100 ended jobs: 100 kB |
//!
//! Workers are in the status, so that their screen needs no request of its own. A process reports
//! its counters alone: requests, bytes and latencies are those of the queried process.
//!
//! The last status and capacity stay in memory: 80 MB. A reply is turned into rows once: 60,000 rows
//! of ten cells are 25 MB. A reply, a filter and a sort order the indices of rows:
//! 60,000 · log 60,000 comparisons. Other keys don't touch the rows. A frame formats the visible rows
//! only, and is drawn after a key, after a reply, and once a second. A metrics page counts for 200
//! operations and 100 buckets, the charts for 300 points, a text for 1,000 characters.

mod cell;
mod draw;
mod facts;
mod keys;
mod layout;
mod listing;
pub mod metrics;
mod plain;
mod schedule;
mod screen;
mod space;
mod tables;
mod text;
mod view;

#[cfg(test)]
mod tests;

pub use draw::draw;
pub use plain::plain;
pub use schedule::Part;
pub use text::escaped;
pub use view::{Answer, Flow, Reply, View};

//! S3 clients that record their operations for the [checkers](crate::checkers).
//!
//! * Every write has a unique body that begins with its [`Value`](crate::checkers::Value), so that a read identifies the
//!   write that it saw. A body that differs from all whole bodies fails the test at once.
//! * An ambiguous reply counts as unknown: 5xx, a lost connection, or a timeout.
//! * All clients of a [`Recorder`] share one clock.

mod bodies;
mod client;
pub mod load;
mod recorder;
pub mod sets;
pub mod tally;
mod write_methods;
mod writes;

pub use client::RecordedClient;
pub use recorder::Recorder;
pub use write_methods::{SOURCES, WriteMethod};

//! Backends for tests, and conformance tests of backends.
//!
//! * [`MemoryBackend`]: devices in memory. The reference for other backends.
//! * [`FaultyBackend`]: wraps a backend; chosen calls fail, before or after their effect, or are
//!   delayed.
//! * [`new_extent`] and [`whole_body`]: extents to write.
//! * [`seeded_ids`]: ids that repeat with a seed.
//! * [`fuzz_target`]: fuzz targets, and the replay of their kept inputs.
//! * [`conformance`]: the guarantees of [`Backend`](crate::Backend), as tests.

pub mod conformance;
mod extents;
mod faulty;
pub mod fuzz_target;
mod memory;
pub mod seeded_ids;

pub use extents::{new_extent, whole_body};
pub use faulty::{Call, CallHook, Fault, FaultyBackend};
pub use memory::MemoryBackend;

#[cfg(test)]
mod tests;

//! Backends for tests, and conformance tests of backends.
//!
//! * [`MemoryBackend`]: devices in memory. The reference for other backends.
//! * [`FaultyBackend`]: wraps a backend; chosen calls fail, before or after their effect, or are
//!   delayed.
//! * [`seeded_ids`]: ids that repeat with a seed.
//! * [`conformance`]: the guarantees of [`Backend`](crate::Backend), as tests.

pub mod conformance;
mod faulty;
mod memory;
pub mod seeded_ids;

pub use faulty::{Call, Fault, FaultyBackend};
pub use memory::MemoryBackend;

#[cfg(test)]
mod tests;

//! Backends for tests, and conformance tests of backends.
//!
//! * [`MemoryBackend`]: devices in memory. The reference for other backends.
//! * [`FaultyBackend`]: wraps a backend; chosen calls fail, before or after their effect, or are
//!   delayed.
//! * [`chance`]: ids that repeat with a seed.
//! * [`conformance`]: the guarantees of [`Backend`](crate::Backend), as tests.

pub mod chance;
pub mod conformance;
mod faulty;
mod memory;

pub use faulty::{Call, Fault, FaultyBackend, Op};
pub use memory::MemoryBackend;

#[cfg(test)]
mod tests;

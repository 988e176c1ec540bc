//! Backends for tests, and what every backend must do.
//!
//! * [`MemoryBackend`]: devices that are maps. The reference that other backends are held against.
//! * [`FaultyBackend`]: wraps a backend and lets chosen calls fail, before or after their effect, or
//!   come late.
//! * [`chance`]: ids that repeat with a seed.
//! * [`conformance`]: what every implementation of [`Backend`](crate::Backend) promises, as tests.

pub mod chance;
pub mod conformance;
mod faulty;
mod memory;

pub use faulty::{Call, Fault, FaultyBackend, Op};
pub use memory::MemoryBackend;

#[cfg(test)]
mod tests;

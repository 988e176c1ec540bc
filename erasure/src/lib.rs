//! Erasure coding that keeps data readable in place: Reed–Solomon over contiguous fragments.
//!
//! An extent is one stripe. Its data is cut into k contiguous fragments, stored as they are, so
//! that a range of the extent is a range of one or a few fragments. With m parity fragments, any k
//! fragments restore the others. `docs/ERASURE.md` has a diagram.
//!
//! * [`code`]: numbers of fragments.
//! * [`geometry`]: location of an extent's bytes in its fragments.
//! * [`codec`]: arithmetic of one code, and verification of fragments.
//! * [`encode`]: streaming encoder from bytes of an extent to blocks of fragments.
//! * [`recover`]: recovery of fragments, for degraded reads and repairs.
//! * [`cpu`]: check of the CPU.
//!
//! This crate does no I/O and never waits. Inputs are checked for their lengths; their contents
//! must have been verified by block checksums before.

pub mod code;
pub mod codec;
pub mod cpu;
pub mod encode;
pub mod geometry;
pub mod recover;

pub use code::{Code, FRAGMENT_BYTES_MAX, FragmentIndex, Fragments};
pub use codec::Codec;
pub use cpu::check_cpu;
pub use encode::{Block, Encoder, PARITY_BLOCK_BYTES};
pub use geometry::{FragmentColumns, Geometry};
pub use recover::Recovery;

#[cfg(test)]
mod tests;

//! Erasure coding that leaves data where a reader can use it: Reed–Solomon over contiguous fragments.
//!
//! An extent is one stripe. Its data is cut into k contiguous fragments, so that a range of it is a
//! range of one fragment, or of a few, stored as they are; m fragments of parity stand beside, and
//! any k fragments give all others. `docs/ERASURE.md` draws it.
//!
//! * [`code`]: how many fragments there are, and their names.
//! * [`geometry`]: where the bytes of an extent lie in its fragments.
//! * [`codec`]: the arithmetic of one code; whether fragments fit together.
//! * [`encode`]: bytes of an extent in, blocks of fragments out, as a stream.
//! * [`recover`]: fragments out of others, for a degraded read or for good.
//! * [`cpu`]: whether this machine can run all that.
//!
//! Nothing here does I/O, waits or knows a device. Bytes that come from elsewhere are checked for
//! their length; whether they are what was written, block checksums must have said before.

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
pub use geometry::{Geometry, Piece};
pub use recover::Recovery;

#[cfg(test)]
mod tests;

//! Extents of a policy with an erasure code: fragments on their primaries, with a few faulty
//! devices.

mod read;
mod read_faults;
mod read_moved;
mod read_rig;
pub(super) mod rig;
mod write;
mod write_budget;
mod write_faults;
mod write_slow;

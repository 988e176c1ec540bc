//! Extents of a policy with an erasure code: fragments on their primaries, with a few faulty
//! devices.

pub(super) mod fixture;
mod read;
mod read_faults;
mod read_fixture;
mod read_moved;
mod write;
mod write_budget;
mod write_faults;
mod write_slow;

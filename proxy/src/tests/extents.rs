//! Extents over several nodes with a few faulty ones: bytes are read as they were written, writes
//! reach enough nodes, and no request waits for a dead or slow node.

mod fixture;
mod link;
mod reads;
mod resumed;
pub(super) mod slow;
mod stalled;
mod unwanted;
pub(super) mod wayward;
mod writes;

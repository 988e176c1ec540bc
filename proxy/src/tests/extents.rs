//! Extents over several nodes: whatever a few of them do, bytes come back as they went in, writes
//! are on enough of them, and nobody waits for one that is dead or slow.

mod link;
mod reads;
mod resumed;
mod rig;
pub(super) mod slow;
mod stalled;
mod unwanted;
pub(super) mod wayward;
mod writes;

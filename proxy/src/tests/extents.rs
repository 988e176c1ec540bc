//! Extents over several nodes: whatever a few of them do, bytes come back as they went in, writes
//! are on enough of them, and nobody waits for one that is dead or slow.

mod reads;
mod resumed;
mod rig;
mod slow;
mod unwanted;
mod wayward;
mod writes;

//! Probes: what clients meet when something is wrong with a cluster of real processes, and what is
//! there when it is well again. A file for each failure, named by it.
//!
//! Each probe counts what clients met while it lasted and bounds the errors among it, mends what was
//! broken, lets the workers do what they have to, and has the checkers look at all that was recorded.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod added_nodes;
mod coded;
mod collected;
mod cut_off_proxy;
mod drained_node;
mod flipped_bits;
mod full_device;
mod half_pushed_ring;
mod long_absence;
mod lost_packets;
mod power_cut;
mod replaced_disk;
mod skewed_clock;
mod slow_disk;

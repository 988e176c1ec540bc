//! Probes: errors that clients meet during a fault in a cluster of real processes, and the state
//! after recovery. One file per fault, which names it.
//!
//! Each probe counts the calls during the fault and bounds the share of errors. Then it ends the
//! fault, waits for the workers, and runs the checkers on all recorded operations.
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

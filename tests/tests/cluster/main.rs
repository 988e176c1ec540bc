//! Clusters of real processes and what happens to them: a file for each failure, named by it.
//!
//! Every probe starts a cluster of its own, records what clients did and were told, and lets the
//! checkers look at all of it in the end, after a census through every proxy. Seeds are printed;
//! `MARTLET_SEED` repeats one.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod anti_entropy;
mod cluster_command;
mod crowd;
mod cut_cables;
mod healthy;
mod internal_port;
mod killed_node;
mod killed_proxy;
mod levels;
mod lifecycle;
mod newer_rings;
mod no_quorum;
mod paused_node;
mod probes;
mod racers;
mod soak;
mod tls;
mod wiped_device;

use martlet_tests::probe::{BUCKET, make_bucket, recorder, seconds, until};

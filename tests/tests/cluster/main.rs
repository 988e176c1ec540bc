//! Clusters of real processes under faults: one file per fault, which names it.
//!
//! Every test starts a cluster of its own and records the operations of its clients. At the end it
//! reads all keys through every proxy and runs the checkers. Seeds are printed; `MARTLET_SEED`
//! repeats one.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod admin_access;
mod anti_entropy;
mod checkpoints;
mod cluster_command;
mod crowd;
mod cut_cables;
mod doctor;
mod healthy;
mod in_place;
mod internal_port;
mod killed_node;
mod killed_proxy;
mod levels;
mod lifecycle;
mod lost_index;
mod newer_rings;
mod no_quorum;
mod paused_node;
mod probes;
mod racers;
mod soak;
mod tls;
mod upgrade;
mod wiped_device;

use martlet_tests::probe::{BUCKET, make_bucket, recorder, seconds, until};

//! One server as a real process: start, stop, crashes, bad input, memory, and its commands.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod admin_access;
mod admin_command;
mod admin_tls;
mod backup;
mod bench;
mod bucket_list;
mod crash;
mod devices;
mod direct_socket;
mod doctor;
mod flipped_bits;
mod full_disk;
mod golden;
mod herd;
mod hung_disk;
mod import;
mod in_place;
mod jobs;
mod locate;
mod memory;
mod memory_at_scale;
mod metrics_page;
mod openapi;
mod patience;
mod policies;
mod private;
mod refusals;
mod rewrite;
mod soak;
mod start;
mod stop;
mod strangers;
mod support_bundle;
mod top;
mod traces;

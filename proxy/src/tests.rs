//! The object layer over devices in memory: what clients see, and what is left behind.

mod buckets;
mod conditional;
mod cut;
mod errors;
mod faults;
mod harness;
mod listing;
mod multipart;
mod objects;
mod races;

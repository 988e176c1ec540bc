//! The object layer over devices in memory: what clients see, and what is left behind.

mod accounts;
mod buckets;
mod coded;
mod conditional;
mod cut;
mod dying;
mod errors;
mod extents;
mod faults;
mod fences;
mod harness;
mod late_parts;
mod levels;
mod listing;
mod lists;
mod moving;
mod multipart;
mod nodes;
mod objects;
mod phases;
mod policies;
mod races;
mod rewrite;
mod settings;
mod terms;
mod versions;

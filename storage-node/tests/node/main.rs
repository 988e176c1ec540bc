//! A whole storage node on real files: crashes, power cuts, damage, full disks.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod bulk;
mod crash;
mod damage;
mod direct;
mod full_disk;
mod hung_disk;
mod many_devices;
mod measure;
mod openings;
mod power_cut;
mod saved_space;
mod support;
mod whole;

//! Tests of the whole crate: properties over random histories, golden values, scripts.

mod aims;
mod crowded;
mod edited_files;
mod files;
mod handoffs;
mod histories;
mod movement;
mod plans;
mod scripts;
mod sets;
mod successors;

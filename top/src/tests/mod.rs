//! Tests of screens, keys and plain text, on a cluster of five nodes whose names are hostile.

mod fixture;
mod keys;
mod plain;
mod screens;

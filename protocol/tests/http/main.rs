//! Tests of the HTTP backend on loopback, with devices in memory.

#![expect(clippy::unwrap_used, reason = "these are tests")]

mod breaker;
mod channels;
mod conformance;
mod cost;
mod fences;
mod garbage;
mod pressure;
mod refusals;
mod streams;
mod tls;
mod traces;
mod versions;
mod world;

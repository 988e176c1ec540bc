//! Tools for tests of real servers and for the test of the repository's structure.
//!
//! * [`server`]: one `martlet server` process on ports and folders of its own.
//! * [`recorded`]: clients that record their operations and the outcomes.
//! * [`s3`]: a client that signs requests and sends exactly what a test specifies.
//! * [`checkers`]: checks of a recorded history: linearizable keys, no lost writes, no undone
//!   deletes.
//! * [`bytes`]: bodies that depend on the object's name.
//! * [`cluster`]: storage nodes, proxies and replicators as processes of their own.
//! * [`damage`]: flipped bits on disk.
//! * [`history`]: checks of objects after a load that was interrupted.
//! * [`image`]: small file systems to fill, break and unmount.
//! * [`in_place`]: a client that reads objects at the nodes' data ports.
//! * [`network`]: hosts in namespaces of their own, and cables to cut between them.
//! * [`otlp`]: a collector of traces.
//! * [`probe`]: a cluster under load, with tallies of errors and latency during a fault.
//! * [`doctor`]: runs of `martlet doctor`.
//! * [`process`]: a process's memory and sockets, read from the kernel.
//! * [`throttle`]: a disk that is slow for one process.
//! * [`upload`]: a multipart upload, part by part.
//! * [`workspace`]: the repository's files and crates.
//!
//! A failing test panics with a message, so `unwrap` is allowed here.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

pub mod bytes;
pub mod checkers;
pub mod cluster;
pub mod damage;
pub mod doctor;
pub mod history;
pub mod image;
pub mod in_place;
pub mod network;
pub mod otlp;
pub mod probe;
pub mod process;
pub mod recorded;
pub mod s3;
pub mod server;
pub mod throttle;
pub mod upload;
pub mod workspace;

pub use s3::{Reply, S3};
pub use server::{Server, Setup};
pub use upload::Upload;

//! What tests of real servers share, and what the test of the repository's own structure needs.
//!
//! * [`server`]: one `martlet server` process on ports and folders of its own.
//! * [`recorded`]: clients that record what they did and were told.
//! * [`s3`]: a client that signs requests and sends exactly what a test says, no more.
//! * [`checkers`]: what a recorded history must satisfy: linearizable keys, nothing lost or back.
//! * [`bytes`]: bodies whose bytes say which object they belong to.
//! * [`cluster`]: storage nodes, proxies and replicators as processes of their own.
//! * [`history`]: what must be true of objects after a load that was cut off.
//! * [`image`]: small file systems to be filled, broken and taken away.
//! * [`network`]: hosts in namespaces of their own, and cables to cut between them.
//! * [`probe`]: a cluster under load, and what clients meet while something is wrong with it.
//! * [`process`]: what the kernel knows of a process.
//! * [`throttle`]: a disk that is slow for one process.
//! * [`upload`]: a multipart upload, part by part.
//! * [`workspace`]: the repository's files and crates.
//!
//! A test that can't go on panics with what it saw, so `unwrap` is the right word here.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

pub mod bytes;
pub mod checkers;
pub mod cluster;
pub mod history;
pub mod image;
pub mod network;
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

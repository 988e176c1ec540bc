//! Extents on the devices of several nodes: writes of copies and fragments, and reads.
//!
//! Any copy of an extent is valid, wherever it is stored, so reads and writes need no coordination
//! between proxies. They must not wait for dead, slow or full nodes while others can serve, and
//! must not multiply the clients' load on the cluster.
//!
//! ```text
//! upload ──▶ fanout ──▶ channels ──▶ delivery ──▶ nodes   delivery: one call for each copy or
//!              │                      │                   fragment; the next device after a refusal
//!              └── gives up slow      ├── placement       durable: enough of them (X5), a short
//!                  devices            └── durable         grace; late copies go on in background
//!                                          ├── tally      tally: counts matching copies
//!                                          └── background_writes
//! bodies ──▶ stream ──▶ replica_selection ──▶ nodes       stream: resumes broken or stalled reads
//!                         └── holders                     one device, hedges, then all
//!
//!            client                                       shared budgets; deletes extents
//!            in_place                                     holders, for clients without a proxy
//! ```

mod background_writes;
mod client;
mod copies;
mod delivery;
mod durable;
mod fanout;
mod fragment_reader;
mod holders;
mod in_place;
mod placement;
mod replica_selection;
mod stream;
mod tally;
mod uncommitted;

pub(crate) use background_writes::END_TIME;
pub(crate) use client::ExtentClient;
pub(crate) use copies::begin;
pub(crate) use delivery::{ExtentPlan, Fragment, ReplicaWrite, begin as begin_replicas};
pub(crate) use fanout::Fanout;
pub(crate) use fragment_reader::{FragmentReader, IDLE_MAX};
pub(crate) use holders::homes;
pub(crate) use replica_selection::ReplicaSelection;
pub(crate) use stream::{ExtentStream, READER_IDLE_MAX};
pub(crate) use uncommitted::UncommittedExtents;

//! Copies a bucket of any S3 store into a bucket of Martlet, as a client of both.
//!
//! ```text
//! plan, filter ─ the order           client ─ requests to one store
//! shards, listing ─ keys of both     decide ─ copy or leave
//! copy, copy_parts ─ one object      source_reader, upload_body ─ its bytes
//! layout, metadata ─ its form        etag, digest ─ claims and hashes
//! state, report, progress, summary   verify, deep_compare ─ comparison of both
//! run ─ all of these together
//! ```
//!
//! Rules:
//!
//! * **Nothing damaged becomes visible.** The bytes of an object are compared with the checksum or
//!   the MD5 that the source returns, before the target gets the end of the body. The target
//!   compares what it received with a CRC64NVME.
//! * **Nothing newer is lost.** Each write has a condition: no object at the key, or the object that
//!   was listed.
//! * **A run can end anywhere.** What the target has is never copied again, as both listings are
//!   merged by key. A state file spares the next run the listing of finished ranges, and names the
//!   uploads in flight.
//! * **Memory is bounded** by the number of transfers, not by the size or the number of objects.
//!
//! The crate does not depend on rings, disks or the object layer: both ends are S3.

mod client;
mod copy;
mod copy_parts;
mod dates;
mod decide;
mod deep_compare;
mod digest;
mod error;
mod etag;
mod filter;
mod layout;
mod listing;
mod metadata;
mod plan;
mod progress;
mod report;
mod run;
mod shards;
mod source_reader;
mod state;
mod summary;
mod upload_body;
mod verify;

pub use client::credentials::{CredentialSource, Credentials, ProfileFiles};
pub use client::endpoint::Addressing;
pub use client::location::S3Location;
pub use error::{Error, ErrorKind, Result};
pub use filter::KeyFilter;
pub use plan::{ImportPlan, Overwrite, PART_BYTES_MAX, PART_BYTES_MIN, PARTS_MAX, Passes};
pub use progress::{Amount, Counters, ProgressSnapshot};
pub use run::Import;
pub use summary::{Summary, size};

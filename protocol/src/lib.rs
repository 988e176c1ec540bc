//! Shared types of Martlet: the calls, values and errors that proxies, storage nodes and background
//! workers exchange.
//!
//! * [`id`]: ids of buckets, writes, extents, devices.
//! * [`stamp`]: the total order of writes (a hybrid logical clock), and [`clock`], its time source.
//! * [`key`]: keys of registers in the index: bucket, shard, kind, name.
//! * [`entry`]: contents of registers: objects, buckets, uploads, parts, or a tombstone.
//! * [`settings`]: configuration documents of a bucket.
//! * [`lifecycle`]: lifecycle rules of a bucket.
//! * [`lock`]: object locks, which prevent the removal of versions.
//! * [`version`]: versions of an object and their ids.
//! * [`release`]: versions of the internal protocol and of stored formats that a process knows.
//! * [`register`]: the pure state machine of one register on one replica (rules R1, R3, R4, R7).
//! * [`consistency`]: requested and achieved consistency.
//! * [`extent`]: immutable runs of object bytes, and their owners.
//! * [`data_port`]: ports at which clients read extents in place.
//! * [`extent_token`]: tokens for reads of extents in place.
//! * [`redundancy`]: copies or erasure coding of a storage policy.
//! * [`backend`]: the backend trait: the calls of a storage node.
//! * [`term`]: progress of the index through its ring changes (rules P1 to P3).
//! * [`trace`]: spans of sampled requests.
//! * [`tree`]: sums by which devices compare their registers (rule H1).
//! * [`limits`]: shared bounds, checked against each other at compile time.
//! * [`network`]: networks of IP addresses.
//! * [`opening`]: openings of a device, as nodes remember them (rule G1).
//! * [`usage`]: usage and quotas of buckets; [`run_usage`]: usage as devices keep it.
//! * [`http`]: the backend trait over HTTP, client and server halves, with the feature `http`.
//! * [`error`]: the error type; an error's kind determines the caller's reaction.
//!
//! This crate contains no code for rings or disks.

pub mod backend;
pub mod checkpoints;
pub mod clock;
pub mod consistency;
pub mod data_port;
mod derived;
pub mod entry;
pub mod error;
pub mod extent;
pub mod extent_sums;
pub mod extent_token;
#[cfg(all(feature = "http", feature = "testing", any(test, feature = "fuzzing")))]
pub mod fuzzing;
#[cfg(feature = "http")]
pub mod http;
pub mod id;
pub mod key;
mod latency;
pub mod lifecycle;
pub mod limits;
pub mod lock;
pub mod lost;
pub mod network;
pub mod opening;
pub mod redundancy;
pub mod register;
pub mod release;
pub mod run_usage;
pub mod settings;
pub mod stamp;
pub mod term;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;
pub mod tree;
pub mod usage;
pub mod version;

pub use backend::{Backend, BackendExt, ByteStream};
pub use clock::{BootInstant, Clock, ManualClock, SystemClock};
pub use consistency::{AchievedLevel, Level};
pub use data_port::DataPort;
pub use entry::Entry;
pub use error::{Error, ErrorKind, Result};
pub use id::{
    BucketId, DeviceId, DeviceIdentity, ExtentId, Partition, PolicyId, Shard, UploadId, WriteId,
};
pub use key::{RegisterKey, RegisterKind};
pub use latency::Latency;
pub use network::Network;
pub use redundancy::Redundancy;
pub use release::{Release, VersionRange};
pub use settings::{Setting, Settings};
pub use stamp::{Stamp, StampSource, WriterId};
pub use term::{Phase, Term};
pub use usage::{Quota, Usage};
pub use version::{Version, VersionId, Versioning, VersioningSetting};

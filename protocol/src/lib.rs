//! The shared words of Martlet: what a proxy, a storage node and a background worker say to each
//! other, and nothing of how any of them does its work.
//!
//! * [`id`]: newtypes for everything that has a number: buckets, writes, extents, devices.
//! * [`stamp`]: the total order of writes (a hybrid logical clock), and [`clock`], its time source.
//! * [`key`]: where a register lives in the index: bucket, kind, shard, name.
//! * [`entry`]: what a register holds: objects, buckets, uploads and parts, or a tombstone.
//! * [`settings`]: what is set about a bucket.
//! * [`lock`]: what keeps a version from being removed.
//! * [`version`]: what tells the versions of an object apart.
//! * [`register`]: the pure state machine of one register on one replica (rules R1, R3, R4, R7).
//! * [`consistency`]: what a client asks for, and what it was given.
//! * [`extent`]: immutable runs of object bytes, and who owns them.
//! * [`redundancy`]: whether a policy keeps copies of them, or coded fragments.
//! * [`backend`]: the seam. Everything that a storage node offers, as one trait.
//! * [`term`]: how far the index has come through its ring changes (rules P1 to P3).
//! * [`tree`]: sums by which devices find out that they hold the same (rule H1).
//! * [`limits`]: every bound in one place, checked against each other when compiled.
//! * [`network`]: where requests may come from.
//! * [`usage`]: how much buckets hold, and how much they may.
//! * [`http`]: the seam over HTTP, client and server halves, with the feature `http`.
//! * [`error`]: one error whose kind says what the caller should do.
//!
//! Nothing here knows rings or disks.

pub mod backend;
pub mod clock;
pub mod consistency;
pub mod entry;
pub mod error;
pub mod extent;
#[cfg(feature = "http")]
pub mod http;
pub mod id;
pub mod key;
mod latency;
pub mod lifecycle;
pub mod limits;
pub mod lock;
pub mod network;
pub mod redundancy;
pub mod register;
pub mod settings;
pub mod stamp;
pub mod term;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tree;
pub mod usage;
pub mod version;

pub use backend::{Backend, ByteStream};
pub use clock::{Clock, ManualClock, SystemClock};
pub use consistency::{Given, Level};
pub use entry::Entry;
pub use error::{Error, ErrorKind, Result};
pub use id::{
    BucketId, DeviceId, DeviceIdentity, ExtentId, Partition, PolicyId, Shard, UploadId, WriteId,
};
pub use key::{RegisterKey, RegisterKind};
pub use latency::Latency;
pub use network::Network;
pub use redundancy::Redundancy;
pub use settings::{Setting, Settings};
pub use stamp::{Stamp, StampSource, WriterId};
pub use term::{Phase, Term};
pub use usage::{Quota, Usage};
pub use version::{Version, VersionId, Versioning, VersioningSetting};

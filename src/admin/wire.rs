//! What the admin address and `martlet admin` say to each other, as JSON.
//!
//! * [`ServerStatus`], [`ProcessReport`]: how a process is, and the cluster as it sees it.
//! * [`WorkersOf`]: the workers of every process.
//! * [`accounts`]: tenants, users and access keys.
//! * [`roles`]: roles of tenants, and policies of users.
//! * [`rewrap`]: what became of a bucket's data keys.
//! * [`rewrite`]: how far a bucket is on its way to another storage policy.
//! * [`outlook`]: how full devices will be, and how well the rings spread what they place.

pub(crate) mod accounts;
pub(crate) mod limits;
pub(crate) mod outlook;
pub(crate) mod rewrap;
pub(crate) mod rewrite;
pub(crate) mod roles;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the commands find their answers.
pub(crate) const EXTENTS: &str = "/admin/v1/extents";
/// As above.
pub(crate) const STATUS: &str = "/admin/v1/status";
/// As above.
pub(crate) const WORKERS: &str = "/admin/v1/workers";
/// As above.
pub(crate) const CAPACITY: &str = "/admin/v1/capacity";
/// As above.
pub(crate) const CENSUS: &str = "/admin/v1/census";
/// As above.
pub(crate) const DISPERSION: &str = "/admin/v1/dispersion";

/// As above, by PUT too.
pub(crate) const BUCKET: &str = "/admin/v1/bucket";

/// As above.
pub(crate) const POLICIES: &str = "/admin/v1/policies";

/// A storage policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PolicyLine {
    pub(crate) id: u16,
    pub(crate) name: String,
    /// `replicated`, or a code such as `4+2`.
    pub(crate) redundancy: String,
    /// Copies, or fragments, of everything.
    pub(crate) replicas: f64,
    pub(crate) devices: u64,
    /// Of its ring.
    pub(crate) epoch: u64,
    /// Whether buckets get it whose maker asks for none.
    pub(crate) default: bool,
}

/// Where an object's bytes are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ObjectExtents {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) etag: String,
    /// `empty`, `inline` (its bytes are within the index) or `extents`.
    pub(crate) stored: String,
    pub(crate) extents: Vec<ExtentLine>,
}

/// Where one extent is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExtentLine {
    pub(crate) id: String,
    /// Where it begins in the object.
    pub(crate) object_offset: u64,
    pub(crate) device: u32,
    pub(crate) path: PathBuf,
    /// Where it begins in the file: a multiple of 4 KiB.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) blake3: String,
}

/// How a process is, and the cluster as it sees it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    /// Of the process that was asked.
    #[serde(flatten)]
    pub(crate) own: ProcessReport,
    /// The storage nodes that it knows, itself included where it is one.
    #[serde(default)]
    pub(crate) nodes: Vec<NodeLine>,
    /// The other processes that were heard of lately, itself included where it is one of them.
    #[serde(default)]
    pub(crate) members: Vec<MemberLine>,
    /// The highest term of ring changes that it heard of (rule P1).
    #[serde(default)]
    pub(crate) term: u64,
    /// The epoch of the index ring that waits for the ring change before it to be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_epoch: Option<u64>,
    /// Replicas on their way, for each ring.
    #[serde(default)]
    pub(crate) moves: Vec<MovesLine>,
}

/// What a process says of itself: to operators, and to the storage nodes of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessReport {
    pub(crate) version: String,
    /// `server`, or the role and name of a member of a cluster.
    #[serde(default)]
    pub(crate) role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin_address: Option<SocketAddr>,
    pub(crate) ready: bool,
    pub(crate) reasons: Vec<String>,
    /// Its own devices.
    #[serde(default)]
    pub(crate) devices: Vec<DeviceLine>,
    /// The rings that it has.
    #[serde(default)]
    pub(crate) rings: Vec<RingLine>,
    /// Its own workers.
    #[serde(default)]
    pub(crate) workers: Vec<WorkerLine>,
    /// How far this machine's clock is ahead of the cluster's.
    #[serde(default)]
    pub(crate) clock_ahead_ms: i64,
}

impl ProcessReport {
    /// Of a process of this version, before anything else is known of it.
    pub(crate) fn of(role: impl Into<String>) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), role: role.into(), ..Self::default() }
    }
}

/// A process that is no storage node, as storage nodes heard of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemberLine {
    pub(crate) heard_ms_ago: u64,
    #[serde(flatten)]
    pub(crate) report: ProcessReport,
}

/// An edition of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingLine {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    /// The first eight bytes of its hash.
    pub(crate) hash: String,
}

/// Another node, as this process sees it, and what it says of itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    pub(crate) address: String,
    /// Whether it answered when it was last asked.
    pub(crate) answers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heard_ms_ago: Option<u64>,
    pub(crate) replies: u64,
    pub(crate) silences: u64,
    pub(crate) latency_us: u64,
    /// How far its clock is ahead of the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock_ahead_ms: Option<i64>,
    pub(crate) rings: Vec<RingLine>,
    /// What it says of itself, if it answered just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<ProcessReport>,
}

/// The replicas of a ring that are on their way from one device to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovesLine {
    pub(crate) ring: String,
    pub(crate) epoch: u64,
    pub(crate) partitions: u64,
    pub(crate) replicas: u64,
    /// Partitions of which a replica moves.
    pub(crate) partitions_moving: u64,
    pub(crate) replicas_moving: u64,
    /// How far the index has come; none for other rings, which have no phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<ChangeLine>,
}

/// How far a ring change of the index has come (rule P2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeLine {
    pub(crate) change: u64,
    /// `waiting`, `old`, `joint` or `new`: who decides about what moves.
    pub(crate) phase: String,
    /// Devices that get something, and those of them that have all of it.
    pub(crate) receivers: u64,
    pub(crate) joined: u64,
}

/// The settings of a bucket that aren't S3's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BucketLine {
    pub(crate) bucket: String,
    /// Its id in 32 hexadecimal digits: with it, its keys are placed on the index ring.
    pub(crate) id: String,
    pub(crate) index_shards: u16,
    /// `available`, `strict` or `any`: what requests get that ask for nothing else.
    pub(crate) consistency: String,
    /// The name of the storage policy that new objects go under.
    pub(crate) storage_policy: String,
}

/// How a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceLine {
    pub(crate) device: u32,
    /// What its node calls it; empty where it has no name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// `ready`, `full`, `suspect` or `offline`.
    pub(crate) health: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Whether it has its votes.
    pub(crate) voting: bool,
    pub(crate) total_bytes: u64,
    /// Bytes that its file system has free, what the ballast holds left out.
    pub(crate) free_bytes: u64,
    /// Bytes in use, what the ballast holds left out.
    #[serde(default)]
    pub(crate) used_bytes: u64,
    /// Bytes that are held back so that deletes work when it is full.
    #[serde(default)]
    pub(crate) reserve_bytes: u64,
    pub(crate) extents: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) quarantined: u64,
    /// Writes that it keeps for other devices.
    pub(crate) hints: u64,
    /// The highest term of ring changes that it was told (rule P1).
    #[serde(default)]
    pub(crate) term: u64,
    /// The last ring change for which it holds what moved to it (rule P2).
    #[serde(default)]
    pub(crate) joined: u64,
}

/// The workers of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkersOf {
    /// The role and name of the process.
    pub(crate) process: String,
    /// How old the word is; none where the process itself was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) heard_ms_ago: Option<u64>,
    pub(crate) workers: Vec<WorkerLine>,
}

/// How a worker is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerLine {
    pub(crate) worker: String,
    pub(crate) steps: u64,
    pub(crate) failures: u64,
    /// Things looked at in a second, lately.
    pub(crate) rate: f64,
    pub(crate) items: u64,
    /// Things brought to their end.
    #[serde(default)]
    pub(crate) done: u64,
    pub(crate) freed_extents: u64,
    pub(crate) freed_bytes: u64,
    #[serde(default)]
    pub(crate) copied_extents: u64,
    #[serde(default)]
    pub(crate) copied_bytes: u64,
    /// Bytes read from devices to make lost fragments again.
    #[serde(default)]
    pub(crate) read_bytes: u64,
    /// Registers brought to a replica that lacked them.
    #[serde(default)]
    pub(crate) repaired: u64,
    pub(crate) kept: u64,
    /// Things of this pass that are still to be looked at.
    #[serde(default)]
    pub(crate) ahead: u64,
    pub(crate) backlog: u64,
    pub(crate) oldest_age_ms: u64,
    /// Until what is ahead or waits is gone at this rate; none where nothing is left, or that can't be
    /// told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) eta_s: Option<u64>,
    pub(crate) yields: u64,
    pub(crate) idle: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
}

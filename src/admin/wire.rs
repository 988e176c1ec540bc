//! JSON messages of the admin API, shared by its server and `martlet admin`.
//!
//! * [`ServerStatus`], [`ProcessReport`]: status of a process, and its view of the cluster.
//! * [`ProcessWorkers`]: workers of every process.
//! * [`accounts`]: tenants, users and access keys.
//! * [`roles`]: roles of tenants, and policies of users.
//! * [`rewrap`]: result of rewrapping a bucket's data keys.
//! * [`rewrite`]: progress of a bucket's move to another storage policy.
//! * [`forecast`]: forecast of device fullness, and balance and dispersion of the rings.

pub(crate) mod accounts;
pub(crate) mod forecast;
pub(crate) mod limits;
pub(crate) mod rewrap;
pub(crate) mod rewrite;
pub(crate) mod roles;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Path of an object's extents.
pub(crate) const EXTENTS: &str = "/admin/v1/extents";
/// Path of the status of a process and its cluster.
pub(crate) const STATUS: &str = "/admin/v1/status";
/// Path of the background workers.
pub(crate) const WORKERS: &str = "/admin/v1/workers";
/// Path of the capacity forecast.
pub(crate) const CAPACITY: &str = "/admin/v1/capacity";
/// Path of the census.
pub(crate) const CENSUS: &str = "/admin/v1/census";
/// Path of the rings' balance and dispersion.
pub(crate) const DISPERSION: &str = "/admin/v1/dispersion";

/// Path of a bucket's settings; PUT changes them.
pub(crate) const BUCKET: &str = "/admin/v1/bucket";

/// Path of the storage policies.
pub(crate) const POLICIES: &str = "/admin/v1/policies";

/// Storage policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PolicyLine {
    pub(crate) id: u16,
    pub(crate) name: String,
    /// `replicated`, or a code such as `4+2`.
    pub(crate) redundancy: String,
    /// Number of copies or fragments of each extent.
    pub(crate) replicas: f64,
    pub(crate) devices: u64,
    /// Epoch of the policy's ring.
    pub(crate) epoch: u64,
    /// True if new buckets get this policy by default.
    pub(crate) default: bool,
}

/// Object, with its extents on disk.
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

/// Extent of an object, with its place on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExtentLine {
    pub(crate) id: String,
    /// Offset of the extent in the object, in bytes.
    pub(crate) object_offset: u64,
    pub(crate) device: u32,
    pub(crate) path: PathBuf,
    /// Offset of the extent in the file, in bytes: a multiple of 4 KiB.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) blake3: String,
}

/// Status of a process, and its view of the cluster.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    /// Report of the queried process.
    #[serde(flatten)]
    pub(crate) own: ProcessReport,
    /// Known storage nodes, including the queried process if it is one.
    #[serde(default)]
    pub(crate) nodes: Vec<NodeLine>,
    /// Other processes with recent reports, including the queried process if it is one of them.
    #[serde(default)]
    pub(crate) members: Vec<MemberLine>,
    /// Highest known term of ring changes (rule P1).
    #[serde(default)]
    pub(crate) term: u64,
    /// Epoch of the index ring that waits for the ring change before it to be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_epoch: Option<u64>,
    /// Moving replicas of each ring.
    #[serde(default)]
    pub(crate) moves: Vec<MovesLine>,
}

/// Report of a process about itself, for operators and for the storage nodes of its cluster.
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
    /// Devices of the process.
    #[serde(default)]
    pub(crate) devices: Vec<DeviceLine>,
    /// Rings of the process.
    #[serde(default)]
    pub(crate) rings: Vec<RingLine>,
    /// Workers of the process.
    #[serde(default)]
    pub(crate) workers: Vec<WorkerLine>,
    /// Milliseconds by which this machine's clock leads the cluster's.
    #[serde(default)]
    pub(crate) clock_ahead_ms: i64,
}

impl ProcessReport {
    /// Makes a report with the version and a role only.
    pub(crate) fn of(role: impl Into<String>) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), role: role.into(), ..Self::default() }
    }
}

/// Report of a process that is not a storage node, as storage nodes received it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemberLine {
    pub(crate) heard_ms_ago: u64,
    #[serde(flatten)]
    pub(crate) report: ProcessReport,
}

/// Edition of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingLine {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    /// First eight bytes of the ring's hash.
    pub(crate) hash: String,
}

/// Storage node as the queried process sees it, with the node's own report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    pub(crate) address: String,
    /// True if the node answered the last round, or has replied since.
    pub(crate) answers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heard_ms_ago: Option<u64>,
    pub(crate) replies: u64,
    pub(crate) silences: u64,
    pub(crate) latency_us: u64,
    /// Milliseconds by which the node's clock leads the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock_ahead_ms: Option<i64>,
    pub(crate) rings: Vec<RingLine>,
    /// Report of the node, if it answered just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<ProcessReport>,
}

/// Moving replicas of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovesLine {
    pub(crate) ring: String,
    pub(crate) epoch: u64,
    pub(crate) partitions: u64,
    pub(crate) replicas: u64,
    /// Partitions of which a replica moves.
    pub(crate) partitions_moving: u64,
    pub(crate) replicas_moving: u64,
    /// Progress of the index ring's change. `None` for other rings, which have no phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<ChangeLine>,
}

/// Progress of a ring change of the index (rule P2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeLine {
    pub(crate) change: u64,
    /// `waiting`, `old`, `joint` or `new`: the holders that decide about moving replicas.
    pub(crate) phase: String,
    /// Devices that receive replicas, and the number of them that have all of theirs.
    pub(crate) receivers: u64,
    pub(crate) joined: u64,
}

/// Settings of a bucket beyond those of S3.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BucketLine {
    pub(crate) bucket: String,
    /// Id of the bucket in 32 hexadecimal digits, by which the index ring places its keys.
    pub(crate) id: String,
    pub(crate) index_shards: u16,
    /// `available`, `strict` or `any`: consistency of requests that name none.
    pub(crate) consistency: String,
    /// Name of the storage policy of new objects.
    pub(crate) storage_policy: String,
}

/// Status of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceLine {
    pub(crate) device: u32,
    /// Name of the device on its node; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// `ready`, `full`, `suspect` or `offline`.
    pub(crate) health: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// True if the device has its votes.
    pub(crate) voting: bool,
    pub(crate) total_bytes: u64,
    /// Free bytes of the file system. The ballast is not free.
    pub(crate) free_bytes: u64,
    /// Used bytes without the ballast.
    #[serde(default)]
    pub(crate) used_bytes: u64,
    /// Bytes reserved so that deletes work on a full device.
    #[serde(default)]
    pub(crate) reserve_bytes: u64,
    pub(crate) extents: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) quarantined: u64,
    /// Hints: writes that the device keeps for other devices.
    pub(crate) hints: u64,
    /// Highest term of ring changes that the device has stored (rule P1).
    #[serde(default)]
    pub(crate) term: u64,
    /// Last ring change of which the device holds all replicas that moved to it (rule P2).
    #[serde(default)]
    pub(crate) joined: u64,
}

/// Workers of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessWorkers {
    /// Role and name of the process.
    pub(crate) process: String,
    /// Age of the report. `None` if the process itself was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) heard_ms_ago: Option<u64>,
    pub(crate) workers: Vec<WorkerLine>,
}

/// Status of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerLine {
    pub(crate) worker: String,
    pub(crate) steps: u64,
    pub(crate) failures: u64,
    /// Items per second, recent average.
    pub(crate) rate: f64,
    pub(crate) items: u64,
    /// Items completed.
    #[serde(default)]
    pub(crate) done: u64,
    pub(crate) freed_extents: u64,
    pub(crate) freed_bytes: u64,
    #[serde(default)]
    pub(crate) copied_extents: u64,
    #[serde(default)]
    pub(crate) copied_bytes: u64,
    /// Bytes read from devices to rebuild lost fragments.
    #[serde(default)]
    pub(crate) read_bytes: u64,
    /// Registers copied to a replica that lacked them.
    #[serde(default)]
    pub(crate) repaired: u64,
    pub(crate) kept: u64,
    /// Items of this pass that are still to be examined.
    #[serde(default)]
    pub(crate) ahead: u64,
    pub(crate) backlog: u64,
    pub(crate) oldest_age_ms: u64,
    /// Estimated seconds for `ahead` and `backlog` at this rate. `None` if nothing is left, or if
    /// the time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) eta_s: Option<u64>,
    pub(crate) yields: u64,
    pub(crate) idle: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Error reply, with its reason.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorReply {
    pub(crate) error: String,
}

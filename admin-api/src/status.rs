//! JSON messages about the status of processes, devices, rings and workers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the OpenAPI document of all routes.
pub const DOCUMENT: &str = "/openapi.json";
/// Path of the status of a process and its cluster.
pub const STATUS: &str = "/admin/v1/status";
/// Path of the background workers.
pub const WORKERS: &str = "/admin/v1/workers";
/// Path of the capacity forecast.
pub const CAPACITY: &str = "/admin/v1/capacity";
/// Path of the rings' balance and dispersion.
pub const DISPERSION: &str = "/admin/v1/dispersion";

/// Path that raises the format level of the cluster.
pub const FINALIZE: &str = "/admin/v1/cluster/finalize";
/// Path of the settings of a process.
pub const SETTINGS: &str = "/admin/v1/settings";
/// Path of the archive for support; POST makes one.
pub const SUPPORT_BUNDLE: &str = "/admin/v1/support-bundle";

/// Settings of a process that are set; others have the defaults of its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsReply {
    /// Version of Martlet.
    pub version: String,
    /// Values by their names. Secrets are left out, and of URLs all but the host.
    pub settings: BTreeMap<String, String>,
    /// Sources of the values by the settings' names: `flag`, `environment`, or the line of a file.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// Status of a process, and its view of the cluster.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatus {
    /// Report of the queried process.
    #[serde(flatten)]
    pub own: ProcessReport,
    /// Known storage nodes, including the queried process if it is one.
    #[serde(default)]
    pub nodes: Vec<NodeLine>,
    /// Other processes with recent reports, including the queried process if it is one of them.
    #[serde(default)]
    pub members: Vec<MemberLine>,
    /// Highest known term of ring changes (rule P1).
    #[serde(default)]
    pub term: u64,
    /// Epoch of the index ring that waits for the ring change before it to be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_epoch: Option<u64>,
    /// True if a ring change has begun that the index ring of the queried process doesn't contain.
    #[serde(default)]
    pub ring_overtaken: bool,
    /// Moving replicas of each ring.
    #[serde(default)]
    pub moves: Vec<MovesLine>,
}

/// Report of a process about itself, for operators and for the storage nodes of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessReport {
    /// Version of Martlet.
    pub version: String,
    /// `server`, or the role and name of a member of a cluster.
    #[serde(default)]
    pub role: String,
    /// Admin address of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_address: Option<SocketAddr>,
    /// True if the process is ready.
    pub ready: bool,
    /// Problems, including minor ones that don't keep the process from being ready.
    pub reasons: Vec<String>,
    /// Devices of the process.
    #[serde(default)]
    pub devices: Vec<DeviceLine>,
    /// Rings of the process.
    #[serde(default)]
    pub rings: Vec<RingLine>,
    /// Workers of the process.
    #[serde(default)]
    pub workers: Vec<WorkerLine>,
    /// Versions of the internal protocol and of stored formats. `None` in reports of releases before
    /// versions were announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseLine>,
    /// Milliseconds by which this machine's clock leads the cluster's.
    #[serde(default)]
    pub clock_ahead_ms: i64,
    /// Split of the memory of a process with devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLine>,
}

/// Versions that a process knows. Ranges include both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseLine {
    /// Oldest version of the internal protocol.
    pub wire_oldest: u16,
    /// Newest version of the internal protocol.
    pub wire_newest: u16,
    /// Oldest format level at which the process runs.
    pub formats_oldest: u16,
    /// Newest format level at which the process runs.
    pub formats_newest: u16,
    /// Format level that the process knows of its cluster, and writes.
    pub format_level: u16,
    /// True if the process deletes nothing while an operator holds collection. Releases without holds
    /// don't report this.
    #[serde(default)]
    pub knows_holds: bool,
}

/// Outcome of a finalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FinalizeReply {
    /// Format level of the cluster now.
    pub level: u16,
    /// Format level before. Equal to `level` if there was nothing to finalize.
    pub before: u16,
}

/// Split of the memory that a process with devices takes for them, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLine {
    /// All of it: the setting `memory`, or its default.
    pub memory_bytes: u64,
    /// Blocks of the indexes.
    pub index_cache_bytes: u64,
    /// Recent writes of the indexes.
    pub index_write_bytes: u64,
    /// Bodies on their way to devices.
    pub body_bytes: u64,
}

impl ProcessReport {
    /// Makes a report with the version and a role only.
    pub fn of(role: impl Into<String>) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), role: role.into(), ..Self::default() }
    }
}

/// Report of a process that is not a storage node, as storage nodes received it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberLine {
    /// Age of the report in milliseconds.
    pub heard_ms_ago: u64,
    /// Address from which the report came, as storage nodes saw it. `None` in lines of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<IpAddr>,
    /// The report.
    #[serde(flatten)]
    pub report: ProcessReport,
}

/// Edition of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RingLine {
    /// Name of the ring.
    pub name: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// First eight bytes of the ring's hash.
    pub hash: String,
}

/// Storage node as the queried process sees it, with the node's own report.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeLine {
    /// Name of the node.
    pub name: String,
    /// Address of the node in the rings.
    pub address: String,
    /// True if the node answered the last round, or has replied since.
    pub answers: bool,
    /// Time since the last reply, in milliseconds. `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_ms_ago: Option<u64>,
    /// Replies received from the node.
    pub replies: u64,
    /// Requests of rounds without a reply.
    pub silences: u64,
    /// Recent average latency, in microseconds.
    pub latency_us: u64,
    /// Milliseconds by which the node's clock leads the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// Rings that the node announced last.
    pub rings: Vec<RingLine>,
    /// Report of the node, if it answered just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ProcessReport>,
}

/// Moving replicas of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MovesLine {
    /// Name of the ring.
    pub ring: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Replicas of all partitions.
    pub replicas: u64,
    /// Partitions of which a replica moves.
    pub partitions_moving: u64,
    /// Replicas that are moving.
    pub replicas_moving: u64,
    /// Progress of the index ring's change. `None` for other rings, which have no phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeLine>,
}

/// Progress of a ring change of the index (rule P2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeLine {
    /// Number of the ring change.
    pub change: u64,
    /// `waiting`, `old`, `joint` or `new`: the holders that decide about moving replicas.
    pub phase: String,
    /// Devices that receive replicas.
    pub receivers: u64,
    /// Devices among the receivers that have all of their replicas.
    pub joined: u64,
}

/// Status of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceLine {
    /// Device id in the rings.
    pub device: u32,
    /// Name of the device on its node; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Folder of the device.
    pub path: PathBuf,
    /// `ready`, `full`, `suspect` or `offline`.
    pub health: String,
    /// Reason for the health, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the device has its votes.
    pub voting: bool,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free bytes of the file system. The ballast is not free.
    pub free_bytes: u64,
    /// Used bytes without the ballast.
    #[serde(default)]
    pub used_bytes: u64,
    /// Bytes reserved so that deletes work on a full device.
    #[serde(default)]
    pub reserve_bytes: u64,
    /// Extents on the device.
    pub extents: u64,
    /// Bytes of extents on the device.
    pub extent_bytes: u64,
    /// Quarantined files and records.
    pub quarantined: u64,
    /// Hints: writes that the device keeps for other devices.
    pub hints: u64,
    /// Highest term of ring changes that the device has stored (rule P1).
    #[serde(default)]
    pub term: u64,
    /// Last ring change of which the device holds all replicas that moved to it (rule P2).
    #[serde(default)]
    pub joined: u64,
}

/// Workers of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessWorkers {
    /// Role and name of the process.
    pub process: String,
    /// Age of the report. `None` if the process itself was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms_ago: Option<u64>,
    /// Status of each worker.
    pub workers: Vec<WorkerLine>,
}

/// Status of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLine {
    /// Name of the worker.
    pub worker: String,
    /// Completed steps.
    pub steps: u64,
    /// Failed steps.
    pub failures: u64,
    /// Items per second, recent average.
    pub rate: f64,
    /// Items examined.
    pub items: u64,
    /// Items completed.
    #[serde(default)]
    pub done: u64,
    /// Extents deleted.
    pub freed_extents: u64,
    /// Bytes of deleted extents.
    pub freed_bytes: u64,
    /// Extents copied.
    #[serde(default)]
    pub copied_extents: u64,
    /// Bytes of copied extents.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Bytes read from devices to rebuild lost fragments.
    #[serde(default)]
    pub read_bytes: u64,
    /// Registers copied to a replica that lacked them.
    #[serde(default)]
    pub repaired: u64,
    /// Items kept because a required reply was missing.
    pub kept: u64,
    /// Extents with different bytes on two primaries, as far as `audit` knows; at most 1,000.
    #[serde(default)]
    pub differing_extents: u64,
    /// Items of this pass that are still to be examined.
    #[serde(default)]
    pub ahead: u64,
    /// Items known to be waiting.
    pub backlog: u64,
    /// Age of the oldest waiting item, in milliseconds.
    pub oldest_age_ms: u64,
    /// Estimated seconds for `ahead` and `backlog` at this rate. `None` if nothing is left, or if
    /// the time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// Pauses in favour of client requests.
    pub yields: u64,
    /// True if the worker is idle.
    pub idle: bool,
    /// Error of the last step, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

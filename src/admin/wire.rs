//! What the admin address and `martlet admin` say to each other, as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the commands find their answers.
pub(crate) const EXTENTS: &str = "/admin/v1/extents";
/// As above.
pub(crate) const STATUS: &str = "/admin/v1/status";
/// As above.
pub(crate) const WORKERS: &str = "/admin/v1/workers";

/// As above, by PUT too.
pub(crate) const BUCKET: &str = "/admin/v1/bucket";

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

/// How a process is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    pub(crate) version: String,
    /// `server`, or the role and name of a member of a cluster.
    #[serde(default)]
    pub(crate) role: String,
    pub(crate) ready: bool,
    pub(crate) reasons: Vec<String>,
    /// Its own devices.
    pub(crate) devices: Vec<DeviceLine>,
    /// The rings that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rings: Vec<RingLine>,
    /// The storage nodes that it knows, itself left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeLine>,
    /// How far this machine's clock is ahead of the cluster's.
    #[serde(default)]
    pub(crate) clock_ahead_ms: i64,
}

impl ServerStatus {
    /// Of a process of this version, before anything else is known of it.
    pub(crate) fn of(role: impl Into<String>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role.into(),
            ready: false,
            reasons: Vec::new(),
            devices: Vec::new(),
            rings: Vec::new(),
            nodes: Vec::new(),
            clock_ahead_ms: 0,
        }
    }
}

/// An edition of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingLine {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    /// The first eight bytes of its hash.
    pub(crate) hash: String,
}

/// How another node is, as this process sees it.
#[derive(Debug, Serialize, Deserialize)]
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
}

/// The settings of a bucket that aren't S3's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BucketLine {
    pub(crate) bucket: String,
    /// `available`, `strict` or `any`: what requests get that ask for nothing else.
    pub(crate) consistency: String,
}

/// How a device is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeviceLine {
    pub(crate) device: u32,
    pub(crate) path: PathBuf,
    /// `ready`, `full`, `suspect` or `offline`.
    pub(crate) health: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Whether it has its votes.
    pub(crate) voting: bool,
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) extents: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) quarantined: u64,
    /// Writes that it keeps for other devices.
    pub(crate) hints: u64,
}

/// How a worker is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkerLine {
    pub(crate) worker: String,
    pub(crate) steps: u64,
    pub(crate) failures: u64,
    pub(crate) rate: f64,
    pub(crate) items: u64,
    pub(crate) freed_extents: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) kept: u64,
    pub(crate) backlog: u64,
    pub(crate) oldest_age_ms: u64,
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

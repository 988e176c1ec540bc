//! What the admin address and `martlet admin` say to each other, as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the commands find their answers.
pub(crate) const EXTENTS: &str = "/admin/v1/extents";
/// As above.
pub(crate) const STATUS: &str = "/admin/v1/status";
/// As above.
pub(crate) const WORKERS: &str = "/admin/v1/workers";

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

/// How the server is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) reasons: Vec<String>,
    pub(crate) devices: Vec<DeviceLine>,
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
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) extents: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) quarantined: u64,
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

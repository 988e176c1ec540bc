//! Status of a node's devices.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{DeviceId, DeviceIdentity};
use crate::term::Term;

/// Status of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// The device's id in the ring.
    pub device: DeviceId,
    /// Identity of this formatting. A device that was formatted again has another identity than its
    /// peers remember.
    pub identity: DeviceIdentity,
    /// True if the device has its votes (rule G1).
    pub voting: bool,
    /// The device's folder.
    pub path: PathBuf,
    /// Health, with the reason if the device doesn't serve.
    pub health: DeviceHealth,
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Free bytes of the file system.
    pub free_bytes: u64,
    /// Bytes in extents.
    pub extent_bytes: u64,
    /// Number of extents.
    pub extents: u64,
    /// Number of extents in quarantine.
    pub quarantined: u64,
    /// Number of hints kept for other devices.
    pub hints: u64,
    /// Highest term of the device (rule P1).
    pub term: Term,
    /// Last ring change whose registers and extents the device holds (rule P2).
    pub joined: u64,
}

/// Health of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceHealth {
    /// Serves reads and writes.
    Ready,
    /// Above its high-water mark: serves reads and deletes, and refuses new bytes.
    Full,
    /// A sync failed: the device serves reads, and refuses writes until it was opened again. Or its
    /// peers have not confirmed its identity (rule G1); then its votes don't count.
    Suspect(String),
    /// Serves nothing.
    Offline(String),
}

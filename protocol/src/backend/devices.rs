//! What a node says of its devices.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{DeviceId, DeviceIdentity};
use crate::term::Term;

/// A device and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its id in the ring.
    pub device: DeviceId,
    /// Which formatting of it this is: a device that forgot has another than its peers remember.
    pub identity: DeviceIdentity,
    /// Whether it has its votes (rule G1).
    pub voting: bool,
    /// Its folder.
    pub path: PathBuf,
    /// Whether it serves, and if not, why.
    pub health: DeviceHealth,
    /// Bytes that the file system has.
    pub total_bytes: u64,
    /// Bytes that it has free.
    pub free_bytes: u64,
    /// Bytes in extents.
    pub extent_bytes: u64,
    /// Extents.
    pub extents: u64,
    /// Extents in quarantine.
    pub quarantined: u64,
    /// Writes that are kept for other devices.
    pub hints: u64,
    /// The highest term that it was told (rule P1).
    pub term: Term,
    /// The last ring change for which it holds what moved to it (rule P2).
    pub joined: u64,
}

/// Whether a device serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceHealth {
    /// It serves.
    Ready,
    /// It is above its high-water mark: reads and deletes only, new bytes go elsewhere.
    Full,
    /// A sync failed: it serves reads, and refuses writes until it was opened again. Or its peers have
    /// not confirmed that it is the one they remember (rule G1). What it says of its votes is silence.
    Suspect(String),
    /// It serves nothing.
    Offline(String),
}

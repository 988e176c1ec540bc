//! Settings of a device, and the state that all devices of a node share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use martlet_protocol::backend::RingEpochs;
use martlet_protocol::opening::Uuid;
use martlet_protocol::release::FORMATS;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, DeviceId, VersionRange};

use crate::disk::Disk;
use crate::index::Caches;

/// Settings of one device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Device id in the ring.
    pub id: DeviceId,
    /// Folder of the device.
    pub path: PathBuf,
    /// Space held back for deletes.
    pub reserve: Reserve,
    /// Name of its place for messages, as `n1/d1`.
    pub place: String,
    /// Formatting of a known device. The device is not opened from a folder that holds another
    /// formatting or none. Without it, the first opening makes an empty folder a device.
    pub formatting: Option<Uuid>,
}

/// Space that a device holds back for deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// 2 % of the file system, at least 2 GiB, at most 10 %.
    #[default]
    Standard,
    /// A fixed number of bytes.
    Bytes(u64),
}

impl DeviceConfig {
    /// Returns the settings of a device with the standard reserve.
    pub fn new(id: DeviceId, path: impl Into<PathBuf>) -> Self {
        let (path, reserve) = (path.into(), Reserve::Standard);
        Self { id, path, reserve, place: String::new(), formatting: None }
    }
}

/// State of a device that outlives its openings.
#[derive(Debug, Default)]
pub(super) struct DeviceHistory {
    /// Damage found in the index; cleared when the device opens with another index.
    pub(super) damage: Option<String>,
    /// Formattings that the folder may hold: the last one, and one that may have replaced it. Empty
    /// until the device is known; an empty folder becomes a device only then.
    pub(super) formattings: Vec<Uuid>,
}

/// Format level of the devices of a node. It rises and never falls.
#[derive(Debug)]
pub(crate) struct DeviceLevel {
    level: AtomicU16,
    known: VersionRange,
}

impl Default for DeviceLevel {
    fn default() -> Self {
        Self::new(FORMATS.oldest, FORMATS)
    }
}

impl DeviceLevel {
    /// Creates the level at which devices are opened, for a release that knows the levels `known`.
    pub(crate) fn new(level: u16, known: VersionRange) -> Self {
        Self { level: AtomicU16::new(level), known }
    }

    /// Returns the level.
    pub(crate) fn get(&self) -> u16 {
        self.level.load(Ordering::Acquire)
    }

    /// Raises the level, if `level` is above it.
    pub(crate) fn raise(&self, level: u16) {
        self.level.fetch_max(level, Ordering::AcqRel);
    }

    /// Newest level that the release knows.
    pub(crate) fn newest(&self) -> u16 {
        self.known.newest
    }
}

/// State that all devices of a node share.
#[derive(Clone)]
pub(crate) struct SharedResources {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) caches: Caches,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) cluster: Option<Uuid>,
    pub(crate) votes_when_new: bool,
    pub(crate) introduced: bool,
    pub(crate) tree_key: TreeKey,
    /// Format level of the devices.
    pub(crate) level: Arc<DeviceLevel>,
    /// True if devices lend descriptors of their extents to other processes.
    pub(crate) lends: bool,
    /// Rings of the node, if others may have other rings (rule X9).
    pub(crate) rings: Option<Arc<RingEpochs>>,
    /// Time without the end of a call after which a device is suspect.
    pub(crate) stall_after: Duration,
}

impl SharedResources {
    /// Returns true if other devices hold copies of what these devices hold.
    pub(super) fn peers(&self) -> bool {
        !self.votes_when_new
    }
}

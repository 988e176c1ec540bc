//! Items in the quarantine of a device.

use serde::{Deserialize, Serialize};

use crate::id::ExtentId;

/// Page of the items in quarantine, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinePage {
    /// The items.
    pub items: Vec<QuarantinedItem>,
    /// Name of the last item; none at the end of the quarantine.
    pub next: Option<String>,
}

/// Item in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedItem {
    /// Name within the folder.
    pub name: String,
    /// Kind of the item, with what its name shows.
    pub kind: QuarantineKind,
    /// Length in bytes of the file, or of the record; none for a folder.
    pub bytes: Option<u64>,
    /// Time at which the item came into quarantine, or its name was last changed, in milliseconds since
    /// 1970. None if the disk has no times.
    pub since_ms: Option<u64>,
}

/// Kind of an item in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuarantineKind {
    /// File of an extent.
    Extent(ExtentId),
    /// Record within a volume, whose space is set aside.
    Record {
        /// Number of the volume.
        volume: u32,
        /// Offset of the record's header.
        offset: u64,
    },
    /// Index that was damaged.
    Index {
        /// Generation of the device that had the index.
        generation: u64,
    },
    /// Something with another name.
    Other,
}

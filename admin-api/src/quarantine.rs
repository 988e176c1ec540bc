//! JSON messages and path of the items in quarantine of a device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the quarantine of a device; GET returns a page of [`QuarantineLine`]s.
pub const QUARANTINE: &str = "/admin/v1/devices/quarantine";
/// Maximum number of items in a page.
pub const PAGE_MAX: usize = 500;
/// Number of items in a page, unless the request names another one.
pub const PAGE_DEFAULT: usize = 100;

/// Kind of the file of an extent.
pub const EXTENT: &str = "extent";
/// Kind of a record within a volume.
pub const RECORD: &str = "record";
/// Kind of a damaged index.
pub const INDEX: &str = "index";
/// Kind of everything else.
pub const OTHER: &str = "other";

/// Item in the quarantine of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineLine {
    /// Name within the folder `quarantine` of the device.
    pub name: String,
    /// `extent`: file of an extent; `record`: record within a volume, for which an empty file stands;
    /// `index`: folder of a damaged index; `other`.
    pub kind: String,
    /// Id of the extent, for the file of one.
    #[serde(default)]
    pub extent: Option<String>,
    /// Number of the volume of a record.
    #[serde(default)]
    pub volume: Option<u32>,
    /// Offset of a record within its volume.
    #[serde(default)]
    pub offset: Option<u64>,
    /// Generation of the device that had the index.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Length of the file or record; none for a folder.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Time at which the item came into quarantine, in milliseconds since 1970.
    #[serde(default)]
    pub since_ms: Option<u64>,
}

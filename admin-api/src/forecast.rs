//! JSON messages about the forecast of device fullness, and about rings' balance and dispersion.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Capacity of the cluster now, and after all pending moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// Fullness of each device.
    pub devices: Vec<DeviceCapacity>,
    /// Number of copies or fragments of each extent under the first policy.
    pub replicas: u64,
    /// `replicated`, or the code of the first policy.
    #[serde(default)]
    pub redundancy: String,
    /// Size of all file systems.
    pub total_bytes: u64,
    /// Used bytes without the ballasts.
    pub used_bytes: u64,
    /// Bytes of extents.
    pub extent_bytes: u64,
    /// Bytes of objects that fit before the first device passes its high-water mark.
    pub writable_until_first_full_bytes: u64,
    /// Bytes of objects that fit while `replicas` distinct nodes have room.
    pub writable_until_all_full_bytes: u64,
    /// Warnings about devices that will pass their high-water mark.
    pub warnings: Vec<String>,
    /// Nodes without a report, whose devices are left out above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// Fullness of a device now, and after all pending moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCapacity {
    /// Device id in the rings.
    pub device: u32,
    /// Name of the node.
    pub node: String,
    /// Name of the device on its node.
    pub name: String,
    /// Region of the device in the rings of extents. `None` outside of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u32>,
    /// Zone of the device within its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<u32>,
    /// Size of the device's file system.
    pub total_bytes: u64,
    /// Used bytes without the ballast, which is reserved, not used.
    pub used_bytes: u64,
    /// Bytes of extents.
    pub extent_bytes: u64,
    /// Bytes reserved so that deletes work on a full device.
    pub reserve_bytes: u64,
    /// Replicas that all data rings together assign to the device.
    pub replicas: u64,
    /// Replicas that move to the device.
    pub replicas_coming: u64,
    /// Replicas that leave the device.
    pub replicas_going: u64,
    /// Bytes that move to the device.
    pub bytes_in: u64,
    /// Bytes that leave the device.
    pub bytes_out: u64,
    /// Share of its bytes in use now, from 0 to 1.
    pub fullness: f64,
    /// Share in use after all pending moves, from 0 to 1.
    pub fullness_projected: f64,
    /// Share in use at worst, from 0 to 1: all replicas have arrived and none has left.
    pub fullness_peak: f64,
    /// Share of its bytes above which the device accepts no new bytes.
    pub high_water: f64,
}

/// Balance and dispersion of a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RingSpread {
    /// Name of the ring.
    pub ring: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// First eight bytes of the ring's hash: builders may make several rings of one epoch. Empty from
    /// processes of earlier releases.
    #[serde(default)]
    pub hash: String,
    /// Number of partitions.
    pub partitions: u64,
    /// Replicas of each partition.
    pub replicas: f64,
    /// Number of devices.
    pub devices: u64,
    /// Worst deviation of a device from its share, in percent.
    pub balance: f64,
    /// Replicas that are closer together than necessary, in percent.
    pub dispersion: f64,
    /// Replicas that are moving.
    pub replicas_moving: u64,
    /// Devices furthest from their share.
    pub worst: Vec<DeviceSpread>,
    /// Regions, zones and nodes where replicas are too close together.
    pub crowded: Vec<CrowdedLine>,
}

/// Deviation of a device from its share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSpread {
    /// Device id in the rings.
    pub device: u32,
    /// Location of the device in the ring.
    pub place: String,
    /// Assigned replicas.
    pub replicas: u64,
    /// Replicas that its weight entitles it to.
    pub desired: f64,
    /// Deviation in percent; above zero the device holds too much.
    pub deviation: f64,
}

/// Region, zone or node that holds too many replicas of some partitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrowdedLine {
    /// Region, zone or node.
    pub place: String,
    /// Most replicas of one partition in this place.
    pub replicas_max: u64,
    /// Partitions with too many replicas in this place.
    pub partitions: u64,
}

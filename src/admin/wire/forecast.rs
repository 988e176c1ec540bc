//! JSON messages about the forecast of device fullness, and about rings' balance and dispersion.

use serde::{Deserialize, Serialize};

/// Capacity of the cluster now, and after all pending moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Capacity {
    pub(crate) devices: Vec<DeviceCapacity>,
    /// Number of copies or fragments of each extent under the first policy.
    pub(crate) replicas: u64,
    /// `replicated`, or the code of the first policy.
    #[serde(default)]
    pub(crate) redundancy: String,
    pub(crate) total_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) extent_bytes: u64,
    /// Bytes of objects that fit before the first device passes its high-water mark.
    pub(crate) writable_until_first_full_bytes: u64,
    /// Bytes of objects that fit while `replicas` distinct nodes have room.
    pub(crate) writable_until_all_full_bytes: u64,
    /// Warnings about devices that will pass their high-water mark.
    pub(crate) warnings: Vec<String>,
    /// Nodes without a report, whose devices are left out above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) silent: Vec<String>,
}

/// Fullness of a device now, and after all pending moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceCapacity {
    pub(crate) device: u32,
    pub(crate) node: String,
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    /// Used bytes without the ballast, which is reserved, not used.
    pub(crate) used_bytes: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) reserve_bytes: u64,
    /// Replicas that all data rings together assign to the device.
    pub(crate) replicas: u64,
    /// Replicas that move to the device, and that leave it.
    pub(crate) replicas_coming: u64,
    pub(crate) replicas_going: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Share of its bytes in use now, from 0 to 1.
    pub(crate) fullness: f64,
    /// Share in use after all pending moves, from 0 to 1.
    pub(crate) fullness_projected: f64,
    /// Share in use at worst, from 0 to 1: all replicas have arrived and none has left.
    pub(crate) fullness_peak: f64,
    /// Share of its bytes above which the device accepts no new bytes.
    pub(crate) high_water: f64,
}

/// Balance and dispersion of a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RingSpread {
    pub(crate) ring: String,
    pub(crate) epoch: u64,
    pub(crate) partitions: u64,
    pub(crate) replicas: f64,
    pub(crate) devices: u64,
    /// Worst deviation of a device from its share, in percent.
    pub(crate) balance: f64,
    /// Replicas that are closer together than necessary, in percent.
    pub(crate) dispersion: f64,
    pub(crate) replicas_moving: u64,
    /// Devices furthest from their share.
    pub(crate) worst: Vec<DeviceSpread>,
    /// Regions, zones and nodes where replicas are too close together.
    pub(crate) crowded: Vec<CrowdedLine>,
}

/// Deviation of a device from its share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceSpread {
    pub(crate) device: u32,
    pub(crate) place: String,
    pub(crate) replicas: u64,
    pub(crate) desired: f64,
    /// Deviation in percent; above zero the device holds too much.
    pub(crate) deviation: f64,
}

/// Region, zone or node that holds too many replicas of some partitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CrowdedLine {
    pub(crate) place: String,
    pub(crate) replicas_max: u64,
    pub(crate) partitions: u64,
}

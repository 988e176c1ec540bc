//! How full devices are and will be, and how well rings spread what they place.

use serde::{Deserialize, Serialize};

/// How full the cluster is, and how full it will be once replicas on their way have arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Capacity {
    pub(crate) devices: Vec<DeviceCapacity>,
    /// Copies, or fragments, of everything that is written under the first policy.
    pub(crate) replicas: u64,
    /// `replicated`, or the code of the first policy.
    #[serde(default)]
    pub(crate) redundancy: String,
    pub(crate) total_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) extent_bytes: u64,
    /// Bytes of objects that fit before the first device passes its high-water mark.
    pub(crate) writable_until_first_full_bytes: u64,
    /// Bytes of objects that fit before no `replicas` distinct nodes have room for more.
    pub(crate) writable_until_all_full_bytes: u64,
    /// Devices that will pass their high-water mark, in words.
    pub(crate) warnings: Vec<String>,
    /// Nodes that did not say how full their devices are: they count for nothing above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) silent: Vec<String>,
}

/// How full a device is, and how full it will be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceCapacity {
    pub(crate) device: u32,
    pub(crate) node: String,
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    /// The ballast left out: what it holds is held back, not used.
    pub(crate) used_bytes: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) reserve_bytes: u64,
    /// Replicas that the data rings give it, all of them together.
    pub(crate) replicas: u64,
    /// Replicas that are coming and going.
    pub(crate) replicas_coming: u64,
    pub(crate) replicas_going: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Share of its bytes in use now, from 0 to 1.
    pub(crate) fullness: f64,
    /// The same when everything has come and gone.
    pub(crate) fullness_projected: f64,
    /// The same at the worst moment: everything has come and nothing has gone.
    pub(crate) fullness_peak: f64,
    /// Above this share it takes no new bytes.
    pub(crate) high_water: f64,
}

/// How well a ring spreads what it places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RingSpread {
    pub(crate) ring: String,
    pub(crate) epoch: u64,
    pub(crate) partitions: u64,
    pub(crate) replicas: f64,
    pub(crate) devices: u64,
    /// Worst deviation of a device from its share, in percent.
    pub(crate) balance: f64,
    /// Replicas that lie closer together than need be, in percent.
    pub(crate) dispersion: f64,
    pub(crate) replicas_moving: u64,
    /// The devices furthest from their share.
    pub(crate) worst: Vec<DeviceSpread>,
    /// Where replicas lie too close together.
    pub(crate) crowded: Vec<Crowded>,
}

/// How far a device is from its share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceSpread {
    pub(crate) device: u32,
    pub(crate) place: String,
    pub(crate) replicas: u64,
    pub(crate) desired: f64,
    /// In percent: above zero it holds too much.
    pub(crate) deviation: f64,
}

/// A region, zone or node that holds too many replicas of some partitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Crowded {
    pub(crate) place: String,
    pub(crate) replicas_max: u64,
    pub(crate) partitions: u64,
}

//! Devices, and their failure domains: region, zone, node.

use std::fmt;

use martlet_protocol::DeviceId;
use serde::{Deserialize, Serialize};

/// Machine of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// Name, unique within its zone.
    pub name: String,
    /// Address of the node's internal port, as `host:port`.
    pub address: String,
}

/// A disk that holds replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Id in this ring, never used again after removal.
    pub id: DeviceId,
    /// Region: the largest failure domain.
    pub region: u32,
    /// Zone within the region: a room, a rack, a power feed.
    pub zone: u32,
    /// Node within the zone.
    pub node: Node,
    /// Name on the node, such as `sdb`.
    pub name: String,
    /// Share of the data, relative to the other devices' weights.
    pub weight: f64,
    /// Free text for operators.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub meta: String,
}

impl Device {
    /// Path of the zone: zones of different regions are different.
    pub fn zone_path(&self) -> (u32, u32) {
        (self.region, self.zone)
    }

    /// Path of the node: nodes of different zones are different.
    pub fn node_path(&self) -> (u32, u32, &str) {
        (self.region, self.zone, &self.node.name)
    }
}

/// `r1z2-alpha/sdb`
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}z{}-{}/{}", self.region, self.zone, self.node.name, self.name)
    }
}

//! Devices, and the failure domains that they stand in: region, zone, node.

use std::fmt;

use martlet_protocol::DeviceId;
use serde::{Deserialize, Serialize};

/// The machine that a device is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// Its name, unique within its zone.
    pub name: String,
    /// Where its internal port answers, as `host:port`.
    pub address: String,
}

/// A disk that holds replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its id in this ring, never used again once it is removed.
    pub id: DeviceId,
    /// Its region: the largest thing that can fail at once.
    pub region: u32,
    /// Its zone within the region: a room, a rack, a power feed.
    pub zone: u32,
    /// Its node within the zone.
    pub node: Node,
    /// Its name on the node, such as `sdb`.
    pub name: String,
    /// Its share of the data, in proportion to the other devices' weights.
    pub weight: f64,
    /// Whatever else people want to know of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub meta: String,
}

impl Device {
    /// The zone as a path: zones of different regions are different zones.
    pub fn zone_path(&self) -> (u32, u32) {
        (self.region, self.zone)
    }

    /// The node as a path: nodes of different zones are different nodes.
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

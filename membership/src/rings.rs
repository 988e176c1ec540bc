//! All rings of a cluster: one for the index, one for each storage policy, and the nodes that they
//! name.
//!
//! A device has one id in all rings, a node one name and one address. Rings that disagree are
//! refused together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use martlet_protocol::http::{Announcement, RingTag};
use martlet_protocol::{DeviceId, PolicyId};
use martlet_ring::Ring;

/// Name of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingName {
    /// Ring of the index, which places entries.
    Index,
    /// Ring of a storage policy, which places its extents.
    Data(PolicyId),
}

impl fmt::Display for RingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => f.write_str("index"),
            Self::Data(policy) => write!(f, "data-{}", policy.0),
        }
    }
}

impl FromStr for RingName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let policy = || text.strip_prefix("data-")?.parse().ok().map(PolicyId);
        let name = if text == "index" { Some(Self::Index) } else { policy().map(Self::Data) };
        // Each ring has one name: no leading zeros, no signs.
        name.filter(|name| name.to_string() == text).ok_or_else(|| {
            format!("\"{text}\" is not a ring's name: use index, data-0, data-1 and so on")
        })
    }
}

/// Node and name of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeDevice {
    /// Name of the node.
    pub node: String,
    /// Name of the device on its node.
    pub device: String,
}

/// Rings at one point in time, with the nodes and devices that they name. Immutable.
#[derive(Debug, Default)]
pub struct RingSet {
    by_name: BTreeMap<RingName, Arc<Ring>>,
    places: BTreeMap<DeviceId, NodeDevice>,
    /// Ids of the places, so that each device is found by its place.
    ids: HashMap<NodeDevice, DeviceId>,
    addresses: BTreeMap<String, String>,
    /// Names of the nodes on the index ring, sorted.
    index_nodes: Vec<String>,
}

impl RingSet {
    /// Combines these rings. Rings that disagree are an error.
    pub fn new(rings: BTreeMap<RingName, Arc<Ring>>) -> Result<Self, String> {
        let mut all = Self { by_name: rings, ..Self::default() };
        for (name, ring) in all.by_name.clone() {
            if let RingName::Data(policy) = name
                && ring.identity().policy != policy
            {
                return Err(format!(
                    "the ring {name} places policy {}: rename it after its policy",
                    ring.identity().policy.0
                ));
            }
            all.learn_places(name, &ring)?;
        }
        let index = all.index().into_iter().flat_map(|ring| ring.devices());
        let index: BTreeSet<&str> = index.map(|device| device.node.name.as_str()).collect();
        all.index_nodes = index.into_iter().map(str::to_owned).collect();
        Ok(all)
    }

    fn learn_places(&mut self, name: RingName, ring: &Ring) -> Result<(), String> {
        let mut zones: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for device in ring.devices() {
            let node = device.node.name.as_str();
            let zone = *zones.entry(node).or_insert(device.zone_path());
            if zone != device.zone_path() {
                return Err(format!(
                    "the ring {name} has two nodes called {node} in different zones: node names \
                     must be unique in the cluster"
                ));
            }
            let place = NodeDevice { node: node.to_owned(), device: device.name.clone() };
            if let Some((id, known)) = self.contradiction(device.id, &place) {
                return Err(format!(
                    "the ring {name} has {node}/{} as device {}, and another ring has {}/{} as \
                     device {id}: add devices to all builders in the same order, so that each has \
                     one id",
                    device.name, device.id, known.node, known.device
                ));
            }
            self.ids.insert(place.clone(), device.id);
            self.places.insert(device.id, place);
            // While a node moves, its address in the first ring by name counts.
            self.addresses.entry(node.to_owned()).or_insert_with(|| device.node.address.clone());
        }
        Ok(())
    }

    /// Returns the known device with this id and another place, or this place and another id. Costs
    /// two look-ups, whatever the number of devices.
    fn contradiction(&self, id: DeviceId, place: &NodeDevice) -> Option<(DeviceId, &NodeDevice)> {
        let elsewhere = self.places.get(&id).filter(|known| *known != place);
        let elsewhere = elsewhere.map(|known| (id, known));
        elsewhere.or_else(|| {
            let (known, other) =
                self.ids.get_key_value(place).filter(|(_, other)| **other != id)?;
            Some((*other, known))
        })
    }

    /// Returns these rings with one ring added or replaced.
    pub fn with(&self, name: RingName, ring: Arc<Ring>) -> Result<Self, String> {
        let mut rings = self.by_name.clone();
        rings.insert(name, ring);
        Self::new(rings)
    }

    /// Returns the ring of this name.
    pub fn get(&self, name: RingName) -> Option<&Arc<Ring>> {
        self.by_name.get(&name)
    }

    /// Returns the ring of the index.
    pub fn index(&self) -> Option<&Arc<Ring>> {
        self.get(RingName::Index)
    }

    /// Returns the rings of extents, by policy.
    pub fn data(&self) -> impl Iterator<Item = (PolicyId, &Arc<Ring>)> {
        self.by_name.iter().filter_map(|(name, ring)| match name {
            RingName::Data(policy) => Some((*policy, ring)),
            RingName::Index => None,
        })
    }

    /// Returns all rings, by name.
    pub fn named(&self) -> impl Iterator<Item = (RingName, &Arc<Ring>)> {
        self.by_name.iter().map(|(name, ring)| (*name, ring))
    }

    /// Returns the node and name of each device.
    pub fn places(&self) -> &BTreeMap<DeviceId, NodeDevice> {
        &self.places
    }

    /// Returns the address of each node.
    pub fn addresses(&self) -> &BTreeMap<String, String> {
        &self.addresses
    }

    /// Returns the devices of a node: their names and ids.
    pub fn devices_of(&self, node: &str) -> BTreeMap<String, DeviceId> {
        let mine = self.places.iter().filter(|(_, place)| place.node == node);
        mine.map(|(id, place)| (place.device.clone(), *id)).collect()
    }

    /// Returns the nodes that hold entries, sorted by name. Costs O(nodes).
    pub fn index_nodes(&self) -> Vec<&str> {
        self.index_nodes.iter().map(String::as_str).collect()
    }

    /// Returns the tags of all rings.
    pub(crate) fn tags(&self) -> Vec<RingTag> {
        self.by_name.iter().map(|(name, ring)| ring_tag(*name, ring)).collect()
    }

    /// Returns the announcement of the rings for replies.
    pub(crate) fn announcement(&self) -> Announcement {
        Announcement::new(&self.tags())
    }
}

/// Returns the tag of a ring: its name, its epoch and the first 8 bytes of its hash.
pub fn ring_tag(name: RingName, ring: &Ring) -> RingTag {
    let mut hash = [0; 8];
    hash.copy_from_slice(&ring.hash()[..8]);
    RingTag { name: name.to_string(), epoch: ring.epoch(), hash }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn names_read_as_they_are_written() {
        for name in [RingName::Index, RingName::Data(PolicyId(0)), RingName::Data(PolicyId(12))] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in ["", "data", "data-", "data-00", "data-+1", "data-70000", "Index", "../index"] {
            assert!(text.parse::<RingName>().is_err(), "{text}");
        }
    }

    #[test]
    fn rings_list_the_members() {
        let rings = [(RingName::Index, ring(0, 3)), (RingName::Data(PolicyId(0)), ring(0, 4))];
        let rings = RingSet::new(rings.into()).unwrap();
        assert_eq!(rings.index_nodes(), ["n1", "n2", "n3"]);
        assert_eq!(rings.addresses().len(), 4);
        assert_eq!(rings.addresses()["n4"], "127.0.0.1:7004");
        assert_eq!(rings.devices_of("n4"), BTreeMap::from([("d1".to_owned(), DeviceId(3))]));
        assert_eq!(rings.tags().len(), 2);
        assert_eq!(rings.announcement().rings().iter().collect::<Vec<_>>(), rings.tags());
    }

    #[test]
    fn rings_that_number_devices_differently_make_no_cluster() {
        let mut other = builder(0, 1);
        other.add(device(3, "d1")).unwrap();
        other.add(device(2, "d1")).unwrap();
        let rings =
            [(RingName::Index, ring(0, 3)), (RingName::Data(PolicyId(0)), next(&mut other))];
        let refusal = RingSet::new(rings.into()).unwrap_err();
        assert!(refusal.contains("in the same order"), "{refusal}");
        // Device 1 is that of node 2 in one ring, and that of node 3 in the other.
        assert!(refusal.contains("device d1"), "{refusal}");
        let mut fewer = builder(0, 1);
        fewer.add(device(3, "d1")).unwrap();
        let rings =
            [(RingName::Data(PolicyId(0)), next(&mut fewer)), (RingName::Index, ring(0, 3))];
        assert!(RingSet::new(rings.into()).is_err(), "in any order of the rings");
        let misnamed = [(RingName::Data(PolicyId(1)), ring(0, 3))];
        assert!(RingSet::new(misnamed.into()).unwrap_err().contains("places policy 0"));
    }
}

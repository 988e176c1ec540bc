//! Devices of this node: the devices to open, and devices in the rings without a folder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use martlet_membership::RingSet;
use martlet_protocol::DeviceId;
use martlet_serving::Failure;

/// Returns the configured devices by their ids in the rings. A device that the rings don't name is
/// an error.
pub(super) fn by_id(
    rings: &RingSet,
    node: &str,
    given: &BTreeMap<String, PathBuf>,
) -> Result<BTreeMap<DeviceId, PathBuf>, Failure> {
    let named = rings.devices_of(node);
    if named.is_empty() {
        let nodes: Vec<&str> = rings.addresses().keys().map(String::as_str).collect();
        return Err(Failure::refused(format!(
            "the rings have no device of the node {node}; they have the nodes {}: use this node's \
             name in the rings, or add its devices with martlet ring",
            nodes.join(", ")
        )));
    }
    let mut devices = BTreeMap::new();
    for (name, path) in given {
        let id = named.get(name).ok_or_else(|| {
            let names: Vec<&str> = named.keys().map(String::as_str).collect();
            Failure::refused(format!(
                "the rings have no device {name} on the node {node}, only {}: use the device's \
                 name in the rings, or add it with martlet ring",
                names.join(", ")
            ))
        })?;
        devices.insert(*id, path.clone());
    }
    Ok(devices)
}

/// Returns the names of this node's devices in the rings that have no configured folder.
pub(super) fn missing(
    rings: &RingSet,
    node: &str,
    opened: &BTreeMap<DeviceId, PathBuf>,
) -> Vec<String> {
    let named = rings.devices_of(node).into_iter();
    named.filter(|(_, id)| !opened.contains_key(id)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use martlet_membership::RingName;
    use martlet_membership::testing::ring;

    use super::*;

    fn given(names: &[&str]) -> BTreeMap<String, PathBuf> {
        names.iter().map(|name| ((*name).to_owned(), PathBuf::from("/x"))).collect()
    }

    #[test]
    fn devices_are_known_by_their_names_in_the_rings() {
        let rings = RingSet::new([(RingName::Index, ring(0, 3))].into()).unwrap();
        let devices = by_id(&rings, "n2", &given(&["d1"])).unwrap();
        assert_eq!(devices, BTreeMap::from([(DeviceId(1), "/x".into())]));
        assert!(missing(&rings, "n2", &devices).is_empty());
        assert_eq!(missing(&rings, "n2", &BTreeMap::new()), ["d1"]);
    }

    #[test]
    fn unknown_nodes_and_devices_are_errors_with_the_known_ones() {
        let rings = RingSet::new([(RingName::Index, ring(0, 2))].into()).unwrap();
        let refusal = by_id(&rings, "n9", &given(&["d1"])).unwrap_err().to_string();
        assert!(refusal.contains("they have the nodes n1, n2"), "{refusal}");
        let refusal = by_id(&rings, "n1", &given(&["d1", "sdz"])).unwrap_err().to_string();
        assert!(refusal.contains("no device sdz on the node n1, only d1"), "{refusal}");
    }
}

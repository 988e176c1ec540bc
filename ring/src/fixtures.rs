//! Devices for tests of other crates.

use martlet_protocol::DeviceId;

use crate::{Device, Node};

/// A device of weight 1 on a node. All devices are in one region and zone.
pub fn device(id: u32, node: impl Into<String>, name: impl Into<String>) -> Device {
    Device {
        id: DeviceId(id),
        region: 1,
        zone: 1,
        node: Node { name: node.into(), address: String::new() },
        name: name.into(),
        weight: 1.0,
        meta: String::new(),
    }
}

/// Devices 1, 2, … with `on_each_node` devices on each node.
pub fn devices(count: u32, on_each_node: u32) -> Vec<Device> {
    let device = |id| device(id, format!("n{}", (id - 1) / on_each_node), format!("d{id}"));
    (1..=count).map(device).collect()
}

//! Rings of small clusters, for tests.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::sync::Arc;

use martlet_protocol::{PolicyId, Redundancy};
use martlet_ring::{Builder, DeviceLocation, NewDevice, RebalanceContext, Ring, RingSettings};

/// Makes a builder of a ring over `nodes` nodes with one device each.
pub fn builder(policy: u16, nodes: u32) -> Builder {
    let settings = RingSettings {
        policy: PolicyId(policy),
        policy_name: "test".into(),
        redundancy: Redundancy::Replicated,
        part_power: 4,
        replicas: f64::from(nodes.min(3)),
        min_part_hours: 1,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [1; 16]).unwrap();
    for n in 1..=nodes {
        builder.add(device(n, "d1")).unwrap();
    }
    builder
}

/// Makes a device of the node with this number.
pub fn device(node: u32, name: &str) -> NewDevice {
    let place = format!("r1z{node}-n{node}@127.0.0.1:{}/{name}", 7000 + node);
    place.parse::<DeviceLocation>().unwrap().with(1.0, "")
}

/// Makes the next ring of a builder.
pub fn next(builder: &mut Builder) -> Arc<Ring> {
    builder.pretend_min_part_hours_passed();
    builder.rebalance(RebalanceContext::default()).unwrap();
    Arc::new(builder.ring().unwrap())
}

/// Makes the first ring of a new builder.
pub fn ring(policy: u16, nodes: u32) -> Arc<Ring> {
    next(&mut builder(policy, nodes))
}

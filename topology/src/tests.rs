//! Tests of clusters, of the highest known term, and of what clones of a topology share.

use std::collections::HashMap;
use std::sync::Arc;

use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, Error, ErrorKind, ManualClock, PolicyId, Term};
use martlet_ring::{Device, Node, Ring};

use crate::{Cluster, KnownTerm, Topology};

/// Returns a ring of a policy over devices 0 to `count` - 1, one on each node.
fn ring(policy: u16, count: u32) -> Arc<Ring> {
    let device = |id: u32| Device {
        id: DeviceId(id),
        region: 1,
        zone: 1,
        node: Node { name: format!("n{id}"), address: String::new() },
        name: "d".into(),
        weight: 1.0,
        meta: String::new(),
    };
    let devices: Vec<Device> = (0..count).map(device).collect();
    Arc::new(Ring::of_devices(PolicyId(policy), 1, &devices).unwrap())
}

/// Returns one node for devices 0 to `count` - 1.
fn nodes(count: u32) -> HashMap<DeviceId, Arc<dyn Backend>> {
    let clock = Arc::new(ManualClock::at(1));
    let node = Arc::new(MemoryBackend::new(clock, (0..count).map(DeviceId)));
    (0..count).map(|id| (DeviceId(id), node.clone() as Arc<dyn Backend>)).collect()
}

#[test]
fn a_cluster_of_an_object_layer_has_a_data_ring_and_a_node_for_each_device() {
    let refusal = |data: &[u16], count| {
        let data = data.iter().map(|policy| ring(*policy, 3)).collect();
        let error = Cluster::new(ring(0, 2), data, nodes(count)).err()?;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        Some(error.to_string())
    };
    assert_eq!(refusal(&[0, 1], 3), None);
    assert_eq!(refusal(&[], 3).unwrap(), "a cluster needs a data ring");
    assert_eq!(refusal(&[0], 2).unwrap(), "no node is known for device d2");
    assert_eq!(refusal(&[1, 1], 3).unwrap(), "two data rings have the same policy");
}

#[test]
fn a_partial_cluster_refuses_missing_nodes_and_rings_alone() {
    let cluster = Cluster::partial(ring(0, 3), Vec::new(), nodes(2)).unwrap();
    assert!(cluster.node(DeviceId(1)).is_ok());
    let refusal = cluster.node(DeviceId(2)).err().unwrap();
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal.to_string(), "no node is known for device d2");
    let refusal = cluster.data(PolicyId(4)).err().unwrap();
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal.to_string(), "there is no ring for the storage policy 4");
    let cluster = Cluster::partial(ring(0, 3), vec![ring(4, 2)], nodes(2)).unwrap();
    assert!(cluster.data(PolicyId(4)).is_ok());
}

#[test]
fn each_node_is_named_once_in_the_order_of_devices() {
    let (mut nodes, other) = (nodes(3), nodes(1));
    nodes.insert(DeviceId(1), other[&DeviceId(0)].clone());
    let cluster = Cluster::new(ring(0, 3), vec![ring(0, 3)], nodes.clone()).unwrap();
    let found = cluster.nodes();
    assert_eq!(found.len(), 2);
    assert!(Arc::ptr_eq(found[0], &nodes[&DeviceId(0)]));
    assert!(Arc::ptr_eq(found[1], &nodes[&DeviceId(1)]));
    assert_eq!((cluster.node_name(DeviceId(2)), cluster.index_nodes()), (Some("n2"), 3));
    assert_eq!(cluster.rings().map(|ring| ring.devices().len()).sum::<usize>(), 6);
}

#[test]
fn p3_a_known_term_only_rises_and_all_clones_hear_of_it() {
    let known = KnownTerm::default();
    let other = known.clone();
    assert!(other.raise(Term(7)));
    assert!(!other.raise(Term(5)) && !other.raise(Term(7)) && !other.raise(Term::ANY));
    known.learn(&Error::unavailable("out"));
    assert_eq!(known.get(), Term(7));
    known.learn(&Error::outdated(Term(9)));
    assert_eq!(other.get(), Term(9));
}

#[test]
fn p3_a_term_that_leaves_no_room_above_is_ignored() {
    let known = KnownTerm::default();
    assert!(known.raise(Term(RING_AHEAD_MAX)));
    for far in [u64::MAX - 1, 2 * RING_AHEAD_MAX + 1] {
        assert!(!known.raise(Term(far)), "{far}");
        known.learn(&Error::outdated(Term(far)));
        assert_eq!(known.get(), Term(RING_AHEAD_MAX));
    }
    assert!(known.raise(Term(2 * RING_AHEAD_MAX)));
}

#[test]
fn clones_of_a_topology_share_cluster_and_term_and_readers_keep_theirs() {
    let cluster = |count| Cluster::new(ring(0, count), vec![ring(0, count)], nodes(3)).unwrap();
    let term = KnownTerm::default();
    let topology = Topology::with_term(cluster(2), term.clone());
    let (clone, before) = (topology.clone(), topology.cluster());
    clone.set_cluster(cluster(3));
    assert_eq!((before.index_nodes(), topology.cluster().index_nodes()), (2, 3));
    term.raise(Term(3));
    assert_eq!((topology.term(), clone.term()), (Term(3), Term(3)));
    clone.learn(&Error::outdated(Term(4)));
    assert_eq!((topology.term(), term.get()), (Term(4), Term(4)));
}

#[test]
fn p3_a_ring_has_spread_by_its_own_record_alone() {
    let first = ring(0, 2);
    let cluster = Cluster::new(first.clone(), vec![first.clone()], nodes(2)).unwrap();
    let topology = Topology::from(cluster);
    assert!(topology.has_spread(&first), "a process of all roles has every ring");
    let clone = topology.clone();
    topology.set_spread(&first, false);
    assert!(!clone.has_spread(&first));
    topology.set_spread(&first, true);
    assert!(clone.has_spread(&first));
    let mut builder = martlet_ring::Builder::from_ring(&first, 0, 0.0, 0).unwrap();
    builder.set_weight(DeviceId(0), 2.0).unwrap();
    builder.rebalance(martlet_ring::RebalanceContext { now_ms: 1, seed: 0 }).unwrap();
    let second = builder.ring().unwrap();
    assert!(!clone.has_spread(&second), "nobody has confirmed the newer ring");
}

//! Tests of clusters, of the highest known term, and of what clones of a topology share.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, Error, ErrorKind, ManualClock, PolicyId, Term};
use martlet_ring::{Device, Node, Ring};

use crate::cluster::first_of_each;
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

/// Identity of a node that counts comparisons.
struct CountedNode<'a>(u32, &'a Cell<usize>);

impl Hash for CountedNode<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for CountedNode<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.1.set(self.1.get() + 1);
        self.0 == other.0
    }
}

impl Eq for CountedNode<'_> {}

#[test]
fn the_nodes_of_many_devices_take_one_comparison_for_each_device() {
    let compared = Cell::new(0);
    let (devices, count) = (60_000, 1000);
    let found = first_of_each(0..devices, |device| CountedNode(device % count, &compared));
    assert_eq!(found, (0..count).collect::<Vec<_>>());
    // The hash table may compare some nodes of equal hash tags, at a probe and where it grows.
    let most = devices as usize * 3 / 2;
    assert!(compared.get() <= most, "{} comparisons", compared.get());
}

#[test]
fn nodes_of_some_devices_leave_out_other_nodes_and_unknown_devices() {
    let (mut nodes, other) = (nodes(4), nodes(2));
    nodes.insert(DeviceId(1), other[&DeviceId(0)].clone());
    let cluster = Cluster::new(ring(0, 4), vec![ring(0, 4)], nodes.clone()).unwrap();
    let of = |devices: &[u32]| cluster.nodes_of(devices.iter().map(|id| DeviceId(*id)));
    assert!(of(&[]).is_empty() && of(&[77]).is_empty());
    assert_eq!(of(&[0, 2, 3]).len(), 1);
    let both = of(&[77, 1, 3, 1]);
    assert_eq!(both.len(), 2);
    assert!(
        Arc::ptr_eq(both[0], &nodes[&DeviceId(1)]) && Arc::ptr_eq(both[1], &nodes[&DeviceId(3)])
    );
}

#[test]
fn p3_a_known_term_only_rises_in_all_clones() {
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

//! Tests of rings: creation, reuse, and growth for a joining node.

use martlet_protocol::{Phase, Term};

use super::super::layout::tests::{coded, layout};
use super::super::ports::Ports;
use super::*;

fn made() -> (tempfile::TempDir, ClusterLayout) {
    made_of(layout())
}

fn made_of(layout: ClusterLayout) -> (tempfile::TempDir, ClusterLayout) {
    let place = tempfile::tempdir().unwrap();
    make_missing(place.path(), &layout).unwrap();
    (place, layout)
}

fn hashes(place: &tempfile::TempDir, layout: &ClusterLayout) -> Vec<martlet_ring::RingHash> {
    load(place.path(), layout).unwrap().iter().map(|(_, ring)| ring.hash()).collect()
}

#[test]
fn both_rings_know_a_device_by_the_same_id_and_address() {
    let (place, layout) = made();
    let rings = load(place.path(), &layout).unwrap();
    let [(_, index), (_, data)] = &rings[..] else { panic!("there are {}", rings.len()) };
    assert_eq!(index.devices(), data.devices());
    assert_eq!((index.replicas(), index.devices().len()), (3, 8));
    let address = loopback(layout.nodes[3].internal_port).to_string();
    assert_eq!(index.devices()[7].node.address, address);
    for partition in index.partitions() {
        let nodes = index.primaries(partition).filter_map(|id| index.device(id));
        let nodes: std::collections::HashSet<_> = nodes.map(|it| &it.node.name).collect();
        assert_eq!(nodes.len(), 3, "{partition:?} has copies on one node");
    }
}

#[test]
fn a_second_start_keeps_the_rings() {
    let (place, layout) = made();
    let before = hashes(&place, &layout);
    make_missing(place.path(), &layout).unwrap();
    assert_eq!(hashes(&place, &layout), before);
    // A lost ring file is written again from its builder.
    std::fs::remove_file(ring_path(place.path(), "data-0")).unwrap();
    make_missing(place.path(), &layout).unwrap();
    assert_eq!(hashes(&place, &layout), before);
}

#[test]
fn a_node_that_joins_gets_its_share_of_all_rings() {
    let (place, mut layout) = made_of(coded());
    let before = load(place.path(), &layout).unwrap();
    let node = layout.add_node(None, &mut Ports::default()).unwrap().clone();
    let joining = JoinRings::of(place.path(), &layout, &node).unwrap();
    assert_eq!(load(place.path(), &layout).unwrap()[1].1.epoch(), 1, "written before it was asked");
    joining.save(place.path()).unwrap();
    let after = load(place.path(), &layout).unwrap();
    assert_eq!(
        joining.rings().map(|it| &*it.name).collect::<Vec<_>>(),
        ["data-0", "data-1", "index"]
    );
    for (((name, old), (_, new)), widened) in before.iter().zip(&after).zip(&joining.0) {
        let report = &widened.report;
        assert_eq!((new.epoch(), new.devices().len()), (2, 10), "{name}");
        old.check_index_successor(new, Term::of(old.change(), Phase::New)).unwrap();
        // Every replica that moved to the new node names its previous holder.
        let mut moved = 0;
        for partition in new.partitions() {
            let pairs = old.primaries(partition).zip(new.primaries(partition));
            for (replica, (from, to)) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
                moved += 1;
                assert_eq!(new.previous(partition, replica), Some(from));
                assert_eq!(new.device(to).unwrap().node.name, "n5");
            }
        }
        assert!(moved == report.moved && moved > 0, "{name}");
    }
}

#[test]
fn ids_stay_the_same_in_both_builders_however_many_join() {
    let (place, mut layout) = made();
    let node = layout.add_node(None, &mut Ports::default()).unwrap().clone();
    JoinRings::of(place.path(), &layout, &node).unwrap().save(place.path()).unwrap();
    let ids = |name| {
        let builder = Builder::load(&builder_path(place.path(), name)).unwrap();
        builder.devices().map(|it| (it.id, it.node.clone(), it.name.clone())).collect::<Vec<_>>()
    };
    assert_eq!(ids(INDEX), ids("data-0"));
}

#[test]
fn a_second_node_waits_until_the_moves_for_the_first_are_done() {
    let (place, mut layout) = made();
    let ports = &mut Ports::default();
    let node = layout.add_node(None, ports).unwrap().clone();
    JoinRings::of(place.path(), &layout, &node).unwrap().save(place.path()).unwrap();
    let node = layout.add_node(None, ports).unwrap().clone();
    let Err(refusal) = JoinRings::of(place.path(), &layout, &node) else {
        panic!("it was allowed")
    };
    assert!(refusal.to_string().contains("min-part-hours"), "{refusal}");
}

#[test]
fn a_policy_of_fragments_has_a_ring_over_the_same_devices() {
    let (place, layout) = made_of(coded());
    assert_eq!(names(&layout), ["index", "data-0", "data-1"]);
    let rings = load(place.path(), &layout).unwrap();
    let identity = rings[2].1.identity();
    assert_eq!((identity.policy, identity.policy_name.as_str()), (PolicyId(1), "ec"));
    assert_eq!((identity.redundancy.to_string(), rings[2].1.replicas()), ("4+2".to_owned(), 6));
    assert_eq!(rings[2].1.devices(), rings[0].1.devices());
    assert_eq!(rings[1].1.identity().redundancy, Redundancy::Replicated);
}

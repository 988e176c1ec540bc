//! Order of handoffs: complete, far apart, pinned, and stable when devices are added or removed.

use std::collections::BTreeSet;

use martlet_protocol::{DeviceId, Partition};

use crate::builder::Builder;
use crate::device::Device;
use crate::handoff::HandoffOrder;
use crate::ring::Ring;
use crate::testing::{TestRng, builder, device, new_device, rebalance};

fn cluster() -> Builder {
    let mut builder = builder(8, 3.0);
    for (region, zone, nodes) in [(1, 1, 3), (1, 2, 3), (2, 1, 2), (2, 2, 1)] {
        for node in 1..=nodes {
            for disk in 0..2 {
                builder.add(new_device(region, zone, node, disk, 100.0)).unwrap();
            }
        }
    }
    rebalance(&mut builder, 1);
    builder
}

fn ids(ring: &Ring, partition: Partition) -> Vec<u32> {
    ring.handoffs(partition).map(|id| id.0).collect()
}

#[test]
fn every_other_device_comes_once() {
    let ring = cluster().ring().unwrap();
    for partition in ring.partitions() {
        let mut all: Vec<DeviceId> =
            ring.primaries(partition).chain(ring.handoffs(partition)).collect();
        all.sort_unstable();
        assert!(all.iter().eq(ring.devices().iter().map(|device| &device.id)), "{partition:?}");
    }
}

/// Region, zone or node of a device.
type DomainPath = for<'a> fn(&'a Device) -> (u32, u32, &'a str);

/// Unused domains come first: regions, then zones, then nodes, then any device.
#[test]
fn unused_regions_zones_and_nodes_come_first() {
    let ring = cluster().ring().unwrap();
    let paths: [DomainPath; 3] = [
        |device| (device.region, 0, ""),
        |device| (device.region, device.zone, ""),
        Device::node_path,
    ];
    for partition in ring.partitions() {
        let order: Vec<&Device> = ring
            .primaries(partition)
            .chain(ring.handoffs(partition))
            .map(|id| ring.device(id).unwrap())
            .collect();
        for path in paths {
            let all: BTreeSet<_> = ring.devices().iter().map(path).collect();
            let mut used: BTreeSet<_> = order[..3].iter().copied().map(path).collect();
            for device in &order[3..] {
                let fresh = used.insert(path(device));
                assert!(fresh || used == all, "{partition:?}: {device} comes too early");
            }
        }
    }
}

#[test]
fn a_device_without_weight_comes_last() {
    let mut builder = cluster();
    builder.set_weight(DeviceId(4), 0.0).unwrap();
    while rebalance(&mut builder, 1).rebalances_to_go > 0 {}
    let ring = builder.ring().unwrap();
    assert!(ring.partitions().all(|partition| ids(&ring, partition).last() == Some(&4)));
}

/// Devices before a removed device keep their positions. Of the devices behind, only one moves
/// forward: to replace it as the first of its region, zone or node.
#[test]
fn a_device_that_goes_leaves_the_others_in_their_order() {
    let mut lots = TestRng::new(11);
    let devices: Vec<Device> = (0..40)
        .map(|id| device(id, 1 + lots.below(2), 1 + lots.below(3), &format!("n{}", lots.below(3))))
        .collect();
    let order = |devices: &[Device], partition| -> Vec<u32> {
        let order = HandoffOrder::new(devices, 100.0);
        order.handoffs(partition, &[]).map(|slot| devices[usize::from(slot)].id.0).collect()
    };
    for partition in (0..50).map(Partition) {
        let before = order(&devices, partition);
        let gone = lots.below(40);
        let fewer: Vec<Device> = devices.iter().filter(|d| d.id.0 != gone).cloned().collect();
        let after = order(&fewer, partition);
        let place = before.iter().position(|id| *id == gone).unwrap();
        assert_eq!(before[..place], after[..place], "{partition:?} without {gone}");
        // At each level one device may move forward; without these, both orders are equal.
        let rest: Vec<u32> = before.iter().copied().filter(|id| *id != gone).collect();
        let moved = fewest_out_of_order(&rest, &after);
        assert!(moved <= 3, "{partition:?} without {gone}: {rest:?} became {after:?}");
    }
}

/// Number of elements to remove from two permutations to make them equal.
fn fewest_out_of_order(a: &[u32], b: &[u32]) -> usize {
    let mut longest = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            longest[i + 1][j + 1] =
                if x == y { longest[i][j] + 1 } else { longest[i][j + 1].max(longest[i + 1][j]) };
        }
    }
    a.len() - longest[a.len()][b.len()]
}

#[test]
fn a_new_device_leaves_the_others_in_their_order() {
    let devices: Vec<Device> = (0..20).map(|id| device(id, 1, 1, "n")).collect();
    let more: Vec<Device> = (0..21).map(|id| device(id, 1, 1, "n")).collect();
    for partition in (0..50).map(Partition) {
        let (few, many) = (HandoffOrder::new(&devices, 100.0), HandoffOrder::new(&more, 100.0));
        let before: Vec<u16> = few.handoffs(partition, &[]).collect();
        let after: Vec<u16> = many.handoffs(partition, &[]).filter(|slot| *slot != 20).collect();
        assert_eq!(before, after, "{partition:?}");
    }
}

/// A heavier device is a handoff more often, in proportion to its weight.
#[test]
fn handoffs_follow_weight() {
    let mut devices: Vec<Device> = (0..10).map(|id| device(id, 1, 1, "n")).collect();
    devices[3].weight = 300.0;
    let order = HandoffOrder::new(&devices, 100.0);
    let first = |partition| order.handoffs(Partition(partition), &[]).next();
    let heavy = (0..12_000).filter(|partition| first(*partition) == Some(3)).count();
    assert!((2500..3500).contains(&heavy), "{heavy} of 12000, and 3000 would be in proportion");
}

/// Golden: the location of copies on handoffs depends on these orders, which must never change.
#[test]
fn the_orders_are_pinned() {
    let ring = cluster().ring().unwrap();
    let order = HandoffOrder::new(ring.devices(), 100.0);
    let slots = |partition| order.handoffs(Partition(partition), &[]).collect::<Vec<u16>>();
    assert_eq!([0, 1, 255].map(slots), GOLDEN);
}

const GOLDEN: [[u16; 18]; 3] = [
    [9, 12, 1, 16, 10, 6, 5, 2, 14, 13, 8, 0, 11, 4, 3, 7, 17, 15],
    [0, 15, 8, 16, 3, 10, 4, 6, 13, 1, 2, 14, 12, 5, 9, 17, 11, 7],
    [11, 13, 3, 17, 6, 8, 0, 4, 15, 12, 7, 1, 2, 5, 10, 16, 9, 14],
];

//! Fragments away from their primaries: on handoffs or on their way to another device, and their
//! reported locations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_erasure::FragmentIndex;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, ErrorKind, PolicyId, SystemClock};
use martlet_ring::{Builder, NewDevice, Node, RebalanceContext, Ring, RingSettings};
use tokio::time::Instant;

use super::fixture::{CodedFixture, POLICY};
use super::read_fixture::{fragments, kind};
use crate::tests::extents::wayward::{Conduct, Wayward};
use crate::tests::harness::pattern;
use crate::{Cluster, ObjectStore, StoreOptions};

/// Handoffs of an extent, in order.
fn handoffs(fixture: &CodedFixture, extent: &ExtentRef) -> Vec<DeviceId> {
    fixture.ring.handoffs(fixture.ring.partition(extent.id.placement())).collect()
}

async fn stray(
    fixture: &CodedFixture,
    extent: &ExtentRef,
    bytes: &Bytes,
    fragment: FragmentIndex,
    to: DeviceId,
) {
    fixture.lose(extent, &[fragment]).await;
    fixture.keep_fragment(extent, bytes, fragment, to).await;
}

#[tokio::test(start_paused = true)]
async fn handoffs_are_read_only_if_too_few_primaries_reply() {
    let fixture = CodedFixture::new("4+2", 12).await;
    let bytes = pattern(2_000_000, 1);
    let extent = fixture.keep(&bytes).await;
    let handoffs = handoffs(&fixture, &extent);
    let mut away = Vec::new();
    for (fragment, to) in fragments(&[1, 3, 0, 4, 5, 2]).into_iter().zip(handoffs.iter().rev()) {
        stray(&fixture, &extent, &bytes, fragment, *to).await;
        away.push(fragment);
        fixture.node.reads();
        assert!(fixture.read_whole(&extent).await.unwrap() == bytes, "{away:?} are away");
        let reads =
            fixture.node.reads().into_iter().filter(|(device, _)| handoffs.contains(device));
        assert_eq!(reads.count() > 0, away.len() > 2, "{away:?} are away");
    }
    // A corrupt fragment returns to its primary: the read ignores it and uses the copy on the
    // handoff.
    let home = fixture.home(extent.id, away[0]);
    fixture.keep_fragment(&extent, &bytes, away[0], home).await;
    fixture.node.memory.corrupt(home, extent.id.fragment(away[0].0));
    assert!(fixture.read_whole(&extent).await.unwrap() == bytes);
}

#[tokio::test(start_paused = true)]
async fn strays_are_found_among_devices_that_are_out() {
    let fixture = CodedFixture::new("4+2", 40).await;
    let bytes = pattern(2_000_000, 2);
    let extent = fixture.keep(&bytes).await;
    let handoffs = handoffs(&fixture, &extent);
    for (fragment, to) in fragments(&[0, 1, 2]).into_iter().zip([33, 30, 31]) {
        stray(&fixture, &extent, &bytes, fragment, handoffs[to]).await;
    }
    for conduct in [Conduct::Hangs, Conduct::Refuses(ErrorKind::Unavailable)] {
        fixture.let_be(handoffs[..30].iter().copied(), conduct);
        assert!(fixture.read_whole(&extent).await.unwrap() == bytes, "{conduct:?}");
    }
    fixture.lose(&extent, &fragments(&[0])).await;
    let read = fixture.read(&[extent], 0..1000).await;
    assert!(read.is_ok(), "fragments 1 to 5 are enough");
    fixture.lose(&extent, &fragments(&[1, 2])).await;
    let read = fixture.read(&[extent], 0..1000).await;
    assert_eq!(kind(read), Some(ErrorKind::Unavailable), "thirty devices don't answer");
    fixture.let_be(fixture.devices(), Conduct::Well);
    let read = fixture.read(&[extent], 0..1000).await;
    assert_eq!(kind(read), Some(ErrorKind::Internal), "and now all do");
}

#[tokio::test(start_paused = true)]
async fn a_fragment_at_a_home_that_is_not_its_own_is_found() {
    let fixture = CodedFixture::new("2+1", 3).await;
    let bytes = pattern(500_000, 3);
    let extent = fixture.keep(&bytes).await;
    // As after two ring changes in a row, three fragments have changed places.
    for (fragment, of) in [(0, 1), (1, 2), (2, 0)] {
        let (fragment, of) = (FragmentIndex(fragment), FragmentIndex(of));
        stray(&fixture, &extent, &bytes, fragment, fixture.home(extent.id, of)).await;
    }
    assert!(fixture.read_whole(&extent).await.unwrap() == bytes);
}

#[tokio::test(start_paused = true)]
async fn locations_of_an_object_are_those_of_its_data_fragments() {
    let fixture = CodedFixture::new("4+2", 9).await;
    let bytes = pattern(900_000, 4);
    let extent = fixture.keep(&bytes).await;
    let handoffs = handoffs(&fixture, &extent);
    stray(&fixture, &extent, &bytes, FragmentIndex(2), handoffs[1]).await;
    let places = fixture.store.services.bodies.stat_parts(POLICY, extent).await.unwrap();
    let offsets: Vec<_> = places
        .iter()
        .map(|(offset, device, stat)| {
            (*offset, *device, stat.record.extent.id, stat.location.length)
        })
        .collect();
    let at = |number| FragmentIndex(number);
    let id = |number| extent.id.fragment(number);
    let expected = [
        (0, fixture.home(extent.id, at(0)), id(0), 262_144),
        (262_144, fixture.home(extent.id, at(1)), id(1), 262_144),
        (524_288, handoffs[1], id(2), 262_144),
        (786_432, fixture.home(extent.id, at(3)), id(3), 113_568),
    ];
    assert_eq!(offsets, expected);
    fixture.lose(&extent, &fragments(&[1])).await;
    let places = fixture.store.services.bodies.stat_parts(POLICY, extent).await.unwrap();
    let offsets: Vec<_> = places.iter().map(|(offset, ..)| *offset).collect();
    assert_eq!(offsets, [0, 524_288, 786_432], "what is lost lies nowhere");
    fixture
        .let_be([fixture.home(extent.id, at(0)), fixture.home(extent.id, at(3))], Conduct::Hangs);
    let begun = Instant::now();
    let places = fixture.store.services.bodies.stat_parts(POLICY, extent).await.unwrap();
    assert_eq!((places.len(), places[0].1), (1, handoffs[1]), "and so does what is out of reach");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

fn add(builder: &mut Builder, id: u32) {
    let device = NewDevice {
        region: 1,
        zone: 1,
        node: Node { name: format!("n{id}"), address: format!("10.0.0.{id}:1") },
        name: "disk".into(),
        weight: 1.0,
        meta: String::new(),
    };
    builder.add(device).unwrap();
}

fn rebalanced(builder: &mut Builder) -> Arc<Ring> {
    builder.rebalance(RebalanceContext { now_ms: 1_000_000, seed: 7 }).unwrap();
    Arc::new(builder.ring().unwrap())
}

/// A 2+1 ring over `count` devices, and the next ring with one more device.
fn growing(count: u32) -> (Arc<Ring>, Arc<Ring>) {
    let settings = RingSettings {
        policy: POLICY,
        policy_name: "coded".into(),
        redundancy: "2+1".parse().unwrap(),
        part_power: 6,
        replicas: 3.0,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [7; 16]).unwrap();
    (0..count).for_each(|id| add(&mut builder, id));
    let before = rebalanced(&mut builder);
    add(&mut builder, count);
    (before, rebalanced(&mut builder))
}

fn fixture_on(
    ring: &Arc<Ring>,
    node: &Arc<Wayward>,
    codec: martlet_erasure::Codec,
) -> CodedFixture {
    let all = ring.devices().to_vec();
    let nodes: HashMap<_, _> =
        all.iter().map(|device| (device.id, node.clone() as Arc<dyn Backend>)).collect();
    let index = Arc::new(Ring::of_devices(PolicyId(0), 3, &all).unwrap());
    let cluster = Cluster::new(index, vec![ring.clone()], nodes).unwrap();
    let store = ObjectStore::new(cluster, Arc::new(SystemClock), StoreOptions::default());
    CodedFixture { store, node: node.clone(), ring: ring.clone(), codec }
}

#[tokio::test(start_paused = true)]
async fn a_fragment_on_its_way_is_read_where_it_was_and_where_it_will_be() {
    let (before, moving) = growing(4);
    let devices = moving.devices().iter().map(|device| device.id);
    let node = Arc::new(Wayward::new(Arc::new(MemoryBackend::new(Arc::new(SystemClock), devices))));
    let codec = martlet_erasure::Codec::new(martlet_erasure::Code::new(2, 1).unwrap());
    let (old, new) = (fixture_on(&before, &node, codec.clone()), fixture_on(&moving, &node, codec));
    let bytes = pattern(400_000, 5);
    let mut moved = [0; 3];
    for _ in 0..200 {
        let extent = old.keep(&bytes).await;
        let partition = moving.partition(extent.id.placement());
        let step = moving.moves().iter().find(|step| step.partition == partition);
        let Some(step) = step else { continue };
        let fragment = FragmentIndex(step.replica);
        moved[usize::from(step.replica)] += 1;
        let is_data = new.code().is_data(fragment);
        for arrived in [false, true] {
            if arrived {
                stray(&new, &extent, &bytes, fragment, new.home(extent.id, fragment)).await;
            }
            node.reads();
            assert!(new.read_whole(&extent).await.unwrap() == bytes);
            let mut reads: Vec<_> = node.reads().into_iter().map(|(device, _)| device).collect();
            let misses = usize::from(is_data && arrived);
            assert_eq!(reads.len(), 2 + misses, "nothing is made of others");
            if misses == 1 {
                let miss = reads.iter().position(|reads| *reads == step.previous);
                reads.remove(miss.expect("who had it is asked first"));
            }
            let holder = if arrived { new.home(extent.id, fragment) } else { step.previous };
            assert_eq!(reads.contains(&holder), is_data);
        }
        // Another fragment is lost, and the moving fragment is needed to rebuild it.
        let lost = FragmentIndex((fragment.0 + 1) % 3);
        new.lose(&extent, &[lost]).await;
        assert!(new.read_whole(&extent).await.unwrap() == bytes);
    }
    assert!(moved.iter().all(|moved| *moved > 0), "{moved:?}");
}

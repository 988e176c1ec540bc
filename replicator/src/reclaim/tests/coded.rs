//! Reclaim of coded extents: the devices that it asks, and the ids that it asks about at once.

use std::sync::Arc;

use martlet_protocol::backend::{Call, CallKind};
use martlet_protocol::entry::Body;
use martlet_protocol::testing::{CallHook, FaultyBackend};
use martlet_protocol::{DeviceId, ManualClock};
use parking_lot::Mutex;

use super::*;
use crate::replicate::testing::extent_id;
use crate::testing::multi_node::MultiNodeWorld;
use crate::testing::stripes::{CODED, coded_ring, noise};

/// Calls about extents, with the number of ids in each.
type ExtentCalls = Arc<Mutex<Vec<(DeviceId, CallKind, usize)>>>;

struct ExtentCallRecorder(ExtentCalls);

impl CallHook for ExtentCallRecorder {
    fn before<'a>(&self, device: DeviceId, call: Call<'a>) -> Result<Call<'a>> {
        let ids = match &call {
            Call::SeekExtents(ids) | Call::DeleteUnneeded { ids, .. } => ids.len(),
            _ => return Ok(call),
        };
        self.0.lock().push((device, call.kind(), ids));
        Ok(call)
    }
}

/// Returns a cluster of `count` devices under the code 4+2, and its calls about extents.
async fn coded_world(count: u32) -> (MultiNodeWorld, ExtentCalls) {
    let calls = ExtentCalls::default();
    let seen = calls.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(count, clock, move |_, inner| {
        Arc::new(FaultyBackend::hooked(inner, ExtentCallRecorder(seen.clone())))
    });
    world.set_coded_ring(Arc::new(coded_ring(4, 2, count)));
    world.make_bucket(CODED).await;
    (world, calls)
}

/// Writes an object with extents of `bytes` bytes each, and replaces it by an empty one.
async fn replaced(world: &MultiNodeWorld, key: &str, extents: std::ops::Range<u16>, bytes: usize) {
    let mut made = Vec::new();
    for n in extents {
        made.push(world.stripe(extent_id(n).whole(), &noise(1, bytes), key).await);
    }
    world.commit_coded(key, made).await;
    world.clock.advance_ms(1);
    world.commit_body(key, Body::Empty).await;
    world.clock.advance_ms(GRACE_MS + 1);
}

async fn reclaim(world: &MultiNodeWorld) -> StepProgress {
    let options = ReclaimOptions { grace_ms: GRACE_MS };
    let mut worker = Reclaim::new(world.shared.clone(), world.clock.clone(), options);
    run_once(&mut worker).await.unwrap()
}

#[tokio::test]
async fn a_short_coded_extent_is_sought_where_its_fragments_should_be_alone() {
    let (world, calls) = coded_world(40).await;
    // Fragments 0, 4 and 5.
    replaced(&world, "k", 1..2, 10_000).await;
    calls.lock().clear();
    reclaim(&world).await;
    assert!(world.fragments(40).await.is_empty());
    let (ring, homes) = (world.coded_ring(), world.homes(extent_id(1)));
    let handoffs = ring.handoffs(ring.partition(extent_id(1).placement())).take(2);
    let likely: BTreeSet<DeviceId> =
        [0, 4, 5].into_iter().map(|at: usize| homes[at]).chain(handoffs).collect();
    let of = |kind: CallKind| {
        let calls = calls.lock();
        let devices = calls.iter().filter(|call| call.1 == kind).map(|call| call.0);
        devices.collect::<BTreeSet<_>>()
    };
    assert_eq!(of(CallKind::SeekExtents), likely);
    assert_eq!(of(CallKind::DeleteUnneeded), [0, 4, 5].map(|at: usize| homes[at]).into());
    // Each of the three replicas of the index has a record.
    let ids =
        |call: &(DeviceId, CallKind, usize)| (call.1 == CallKind::SeekExtents).then_some(call.2);
    let sought: usize = calls.lock().iter().filter_map(ids).sum();
    assert_eq!(sought, 3 * (3 + 2 * 3));
}

#[tokio::test]
async fn a_fragment_on_any_device_is_found_where_a_home_lacks_it() {
    let (world, calls) = coded_world(40).await;
    replaced(&world, "k", 1..2, 4 * 65_536).await;
    let (homes, id) = (world.homes(extent_id(1)), extent_id(1).whole());
    // One fragment lies on the home of another one, and one far away.
    let far = world.devices().into_iter().find(|device| !homes.contains(device)).unwrap();
    let held = world.memory(homes[0]).stat_extent(homes[0], id.fragment(0)).await.unwrap().record;
    let (stripe, owner) = (held.layout.stripe.unwrap(), held.owner);
    for (number, to) in [(1, homes[3]), (2, far)] {
        world.lose(id, number).await;
        let bytes = noise(2, 65_536);
        world.fragment_on(to, id.fragment(number), bytes, stripe, owner.clone()).await;
    }
    calls.lock().clear();
    reclaim(&world).await;
    assert!(world.fragments(40).await.is_empty());
    let asked: BTreeSet<DeviceId> = calls.lock().iter().map(|call| call.0).collect();
    assert_eq!(asked.len(), 40);
}

#[tokio::test]
async fn the_extents_of_a_long_object_are_handled_in_slices() {
    let (world, calls) = coded_world(6).await;
    let extents = u16::try_from(FRAGMENTS_MAX / 6 + 100).unwrap();
    replaced(&world, "k", 0..extents, 100).await;
    calls.lock().clear();
    let progress = reclaim(&world).await;
    assert_eq!(progress.freed, u64::from(extents));
    assert!(world.fragments(6).await.is_empty());
    let calls = calls.lock();
    let first = calls.iter().take_while(|call| call.1 == CallKind::SeekExtents);
    let ids: usize = first.map(|call| call.2).sum();
    // A home is asked about its own fragment: three of each short extent.
    assert_eq!(ids, 3 * (FRAGMENTS_MAX / 6));
}
